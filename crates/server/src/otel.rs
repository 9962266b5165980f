//! Traces for a collector of OpenTelemetry, over HTTP in protobuf; with the feature `otel`.
//!
//! What the queue does with a job, its worker's run and the jobs below it are spans of `tracing` in any case; here they
//! leave the process. The standard's variables say where to and how: `OTEL_EXPORTER_OTLP_ENDPOINT` (or
//! `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`), without which nothing leaves; `OTEL_EXPORTER_OTLP_HEADERS` and `_TIMEOUT`;
//! `OTEL_SERVICE_NAME` (`jobtree` if absent) and `OTEL_RESOURCE_ATTRIBUTES`; `OTEL_TRACES_SAMPLER`; `OTEL_BSP_*`; and
//! `OTEL_SDK_DISABLED=true` or `OTEL_TRACES_EXPORTER=none` against it all.
//!
//! Spans are sent by a thread of their own, in batches; what a collector does not take is lost, and no job waits for it.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

/// How long a collector may take to answer, beside what `OTEL_EXPORTER_OTLP_TIMEOUT` says.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest answer that is read.
const MOST_ANSWER: u64 = 1 << 20;
/// How long the end of the program waits for what was not sent yet.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Spans are sent while this is there. Dropped, it sends what is left.
#[must_use = "dropped, nothing is sent any more"]
pub struct Exporting(SdkTracerProvider);

impl Drop for Exporting {
    fn drop(&mut self) {
        // A collector that does not answer has missed them.
        let _ = self.0.shutdown_with_timeout(LAST_WORDS);
    }
}

impl fmt::Debug for Exporting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporting").finish_non_exhaustive()
    }
}

/// Traces cannot be sent.
#[derive(Debug)]
pub enum OtelError {
    /// A variable asks for another protocol than the one that this program speaks.
    Protocol(String),
    /// A variable says something that cannot be done.
    Exporter(ExporterBuildError),
}

impl fmt::Display for OtelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OtelError::Protocol(protocol) => write!(
                f,
                "OTEL_EXPORTER_OTLP_PROTOCOL is {protocol:?}: write http/protobuf, with the endpoint of that (often port 4318)"
            ),
            OtelError::Exporter(error) => {
                write!(
                    f,
                    "the variables OTEL_EXPORTER_OTLP_* are wrong: {error}; correct them"
                )
            }
        }
    }
}

impl std::error::Error for OtelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OtelError::Protocol(_) => None,
            OtelError::Exporter(error) => Some(error),
        }
    }
}

/// A layer for a subscriber of `tracing`, which sends all spans of jobs; `None` if the environment does not name a
/// collector, or forbids it.
///
/// # Errors
/// If the environment asks for something that cannot be done.
pub fn layer<S>() -> Result<Option<(impl Layer<S> + Send + Sync, Exporting)>, OtelError>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    layer_of(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

fn layer_of<S>(
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<(impl Layer<S> + Send + Sync, Exporting)>, OtelError>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    if !is_wanted(&variable) {
        return Ok(None);
    }
    let asked = variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        .or_else(|| variable("OTEL_EXPORTER_OTLP_PROTOCOL"));
    if let Some(other) = asked.filter(|protocol| protocol != "http/protobuf") {
        return Err(OtelError::Protocol(other));
    }
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_http_client(Ureq::new())
        .build()
        .map_err(OtelError::Exporter)?;
    let mut resource = Resource::builder();
    let attributes = variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    if variable("OTEL_SERVICE_NAME").is_none() && !attributes.contains("service.name=") {
        resource = resource.with_service_name("jobtree");
    }
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.build())
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("jobtree"))
        .with_location(false)
        .with_threads(false)
        .with_filter(Targets::new().with_target("jobtree", LevelFilter::DEBUG));
    Ok(Some((layer, Exporting(provider))))
}

fn is_wanted(variable: &impl Fn(&str) -> Option<String>) -> bool {
    let endpoints = [
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    ];
    let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|off| off.eq_ignore_ascii_case("true"))
        || variable("OTEL_TRACES_EXPORTER").is_some_and(|exporter| exporter == "none");
    !is_off && endpoints.iter().any(|name| variable(name).is_some())
}

/// The client that this program has anyway. It blocks, on the thread that sends batches and does nothing else.
#[derive(Debug)]
struct Ureq(ureq::Agent);

impl Ureq {
    fn new() -> Ureq {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .build();
        Ureq(config.into())
    }
}

#[async_trait]
impl HttpClient for Ureq {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let request = Request::from_parts(parts, body.to_vec());
        let (parts, mut body) = self.0.run(request)?.into_parts();
        let read = body.with_config().limit(MOST_ANSWER).read_to_vec()?;
        Ok(Response::from_parts(parts, read.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(given: &[(&str, &str)]) -> bool {
        is_wanted(&|name| {
            let found = given.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_leaves_unless_a_collector_is_named() {
        let collector = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        assert!(!wanted(&[]));
        assert!(wanted(&[collector]));
        assert!(wanted(&[(
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "http://x/v1/traces"
        )]));
        assert!(!wanted(&[collector, ("OTEL_SDK_DISABLED", "TRUE")]));
        assert!(!wanted(&[collector, ("OTEL_TRACES_EXPORTER", "none")]));
        assert!(wanted(&[collector, ("OTEL_TRACES_EXPORTER", "otlp")]));
    }

    #[test]
    fn a_protocol_that_is_not_spoken_is_refused() {
        let environment = |name: &str| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://127.0.0.1:4317".to_owned()),
            "OTEL_EXPORTER_OTLP_PROTOCOL" => Some("grpc".to_owned()),
            _ => None,
        };
        let error = layer_of::<tracing_subscriber::Registry>(environment).map(drop);
        let said = error.unwrap_err().to_string();
        assert!(said.contains("\"grpc\": write http/protobuf"), "{said}");
    }
}
