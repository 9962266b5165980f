//! Collects the steps of traces, as a listener of `tracing` finds them: those of the queue, the run, and jobs below it.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// All steps so far. Clones are the same collection.
#[derive(Clone, Default)]
pub struct Steps(Arc<Mutex<Vec<Step>>>);

#[derive(Debug)]
struct Step {
    trace: String,
    name: String,
    reason: String,
}

/// The trace that a span belongs to: its own, or that of the one above it.
struct Trace(String);

#[derive(Default)]
struct Fields {
    traceparent: Option<String>,
    event: Option<String>,
    label: Option<String>,
    reason: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "traceparent" => self.traceparent = Some(value.to_owned()),
            "event" => self.event = Some(value.to_owned()),
            "label" => self.label = Some(value.to_owned()),
            "reason" => self.reason = value.to_owned(),
            _ => {}
        }
    }
}

impl Steps {
    /// Collects from now on, whatever this process does.
    pub fn collect() -> Steps {
        static STEPS: OnceLock<Steps> = OnceLock::new();
        let begin = || {
            let steps = Steps::default();
            let subscriber = tracing_subscriber::registry().with(steps.clone());
            tracing::subscriber::set_global_default(subscriber).unwrap();
            steps
        };
        STEPS.get_or_init(begin).clone()
    }

    /// Each of these is a step of the trace, and comes for the first time after the one before it has.
    pub fn assert_in_order(&self, trace: &str, names: &[&str]) {
        let steps = self.0.lock().unwrap();
        let seen: Vec<&str> = steps
            .iter()
            .filter(|step| step.trace == trace)
            .map(|step| step.name.as_str())
            .collect();
        let places: Vec<_> = names
            .iter()
            .map(|name| seen.iter().position(|seen| seen == name))
            .collect();
        let found = places.iter().all(Option::is_some);
        assert!(found && places.is_sorted(), "{names:?} are not in {seen:?}");
    }

    /// What was said with a step.
    pub fn reason_of(&self, trace: &str, name: &str) -> String {
        let steps = self.0.lock().unwrap();
        let mut found = steps.iter().filter(|step| step.trace == trace);
        let step = found.find(|step| step.name == name);
        step.map(|step| step.reason.clone()).unwrap_or_default()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Steps {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.is_span() && metadata.target().starts_with("jobtree")
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let span = context.span(id).unwrap();
        let above = || {
            let parent = span.parent()?;
            let extensions = parent.extensions();
            extensions.get::<Trace>().map(|trace| trace.0.clone())
        };
        let Some(trace) = fields.traceparent.or_else(above) else {
            return;
        };
        span.extensions_mut().insert(Trace(trace.clone()));
        let name = fields.event.or(fields.label);
        self.0.lock().unwrap().push(Step {
            trace,
            name: name.unwrap_or_else(|| span.name().to_owned()),
            reason: fields.reason,
        });
    }
}
