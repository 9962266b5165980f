//! Traces of a daemon, as a collector of OpenTelemetry gets them.

#![cfg(feature = "otel")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{self, Sender};
use std::thread;

use jobtree_client::Client;
use jobtree_protocol::{Json, SubmitRequest};
use serde_json::json;
use support::{ALWAYS, Beside, Folder, Ran, watch};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A span, as far as this test looks.
struct Span {
    trace: String,
    name: String,
}

#[test]
fn a_trace_runs_from_the_submission_through_the_tree_of_jobs() {
    let _watchdog = watch();
    let (endpoint, spans) = collector();
    let folder = Folder::new();
    let mut daemon = folder.command();
    daemon
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        .env("OTEL_BSP_SCHEDULE_DELAY", "100")
        .args(["serve", "--demo", "--listen", "127.0.0.1:0"])
        .args(["--store", "memory", "--policy", ALWAYS, "--data-dir"])
        .arg(folder.join("data"))
        .stdout(Stdio::piped());
    let mut daemon = Beside::start(&mut daemon);
    let mut url = String::new();
    let mut stdout = BufReader::new(daemon.0.stdout.take().unwrap());
    stdout.read_line(&mut url).unwrap();
    let token = std::fs::read_to_string(folder.join("data/admin.token")).unwrap();
    let client = Client::builder(url.trim()).token(token.trim()).build();
    let request = SubmitRequest {
        payload: Some(Json::of(&json!({"steps": 4, "step_ms": 1})).unwrap()),
        traceparent: Some(format!("00-{TRACE}-00f067aa0ba902b7-01")),
        time_sensitive: true,
        ..SubmitRequest::new("photos", "index", 1)
    };
    client.unwrap().submit(request).unwrap();
    // The last step is its end. A job of the demo is a nursery of four, and each of them is a step.
    let mut names = Vec::new();
    let mut wanted = vec!["SUBMITTED", "RUNNING", "job index", "DONE"];
    let mut below = 5;
    while !wanted.is_empty() || below > 0 {
        let span: Span = spans.recv().unwrap();
        if span.trace != TRACE {
            continue;
        }
        wanted.retain(|wanted| *wanted != span.name);
        if span.name == "task" {
            // A job without a label.
            below -= 1;
        }
        names.push(span.name);
    }
    let count = |name: &str| names.iter().filter(|known| *known == name).count();
    assert_eq!((count("SUBMITTED"), count("DONE")), (1, 1), "{names:?}");
}

#[test]
fn a_protocol_that_is_not_spoken_is_an_error() {
    let _watchdog = watch();
    let folder = Folder::new();
    let mut daemon = folder.command();
    daemon
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let ran = Ran::of(&mut daemon, &["serve", "--listen", "127.0.0.1:0"]).exits(2);
    assert!(ran.stderr.contains("write http/protobuf"), "{ran:?}");
}

/// Takes spans at an address, and passes them on.
fn collector() -> (String, mpsc::Receiver<Span>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (told, tells) = mpsc::channel();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let told = told.clone();
            thread::spawn(move || answer(connection.unwrap(), &told));
        }
    });
    (endpoint, tells)
}

/// Answers requests until there is none.
fn answer(connection: TcpStream, told: &Sender<Span>) {
    let mut write = connection.try_clone().unwrap();
    let mut read = BufReader::new(connection);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if read.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        assert!(first.starts_with("POST /v1/traces "), "{first}");
        loop {
            let mut line = String::new();
            read.read_line(&mut line).unwrap();
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(given) = line.strip_prefix("content-length:") {
                length = given.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        read.read_exact(&mut body).unwrap();
        // ExportTraceServiceRequest.resource_spans.scope_spans.spans: `trace_id` is 1, `name` 5.
        for span in inside(&[1, 2, 2], &body) {
            let text = |number| inside(&[number], span).next().unwrap_or_default();
            let hex = text(1).iter().map(|byte| format!("{byte:02x}"));
            // Nobody takes them when the test is over.
            let _ = told.send(Span {
                trace: hex.collect(),
                name: String::from_utf8(text(5).to_vec()).unwrap(),
            });
        }
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        write.write_all(head.as_bytes()).unwrap();
    }
}

/// What lies in a message of protobuf under these numbers, one below the other.
fn inside<'a>(path: &[u64], message: &'a [u8]) -> Box<dyn Iterator<Item = &'a [u8]> + 'a> {
    let Some((&number, path)) = path.split_first() else {
        return Box::new(std::iter::once(message));
    };
    let path = path.to_vec();
    let found = Parts(message).filter(move |(own, _)| *own == number);
    Box::new(found.flat_map(move |(_, part)| inside(&path, part)))
}

/// The fields of a message that have a length; the others are passed over.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(part)
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let key = self.number()?;
            match key & 7 {
                0 => drop(self.number()?),
                1 => drop(self.take(8)?),
                2 => {
                    let length = usize::try_from(self.number()?).ok()?;
                    return Some((key >> 3, self.take(length)?));
                }
                5 => drop(self.take(4)?),
                _ => return None,
            }
        }
    }
}
