//! The stream of events, over a real socket.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

mod fake;

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use fake::{Answer, Fake};
use jobtree_client::events::{Filter, What};
use jobtree_client::protocol::{AddonId, ErrorCode, EventKind, JobId};
use jobtree_client::{Client, ClientError};
use watchdog::Watchdog;

const JOB: &str = "019a0000-0000-7000-8000-000000000001";

fn event(id: u64, kind: &str) -> String {
    format!(
        "id: {id}\nevent: {kind}\ndata: {{\"cursor\":{id},\"job_id\":\"{JOB}\",\"at\":\"2026-01-01T00:00:00Z\",\
         \"event\":\"{kind}\",\"addon_id\":\"photos\",\"job_type\":\"thumbnail\"}}\n\n"
    )
}

/// A server whose streams come from the test, one after the other.
fn streaming() -> (Fake, mpsc::Sender<mpsc::Receiver<String>>) {
    let (give, streams) = mpsc::channel();
    let streams = Mutex::new(streams);
    let fake = Fake::new(move |_| match streams.lock().unwrap().recv() {
        Ok(stream) => Answer::Stream(stream),
        Err(_) => Answer::problem(403, "forbidden", "no more"),
    });
    (fake, give)
}

fn kinds(happened: &What) -> EventKind {
    match happened {
        What::Event(event) => event.kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_come_as_they_happen_and_go_on_after_a_break() {
    let _watch = Watchdog::watching("events");
    let (fake, streams) = streaming();
    let client = Client::new(fake.url()).unwrap();
    let filter = Filter {
        addon_id: AddonId::new("photos").ok(),
        job_id: JOB.parse::<JobId>().ok(),
        kinds: vec![EventKind::Done, EventKind::Running],
        ..Filter::default()
    };
    let mut events = client.events(filter, None);
    let (send, stream) = mpsc::channel();
    streams.send(stream).unwrap();
    // In pieces that know nothing of lines.
    send.send(": here\n\n".to_owned()).unwrap();
    let text = event(7, "RUNNING");
    let (head, tail) = text.split_at(31);
    send.send(head.to_owned()).unwrap();
    send.send(tail.to_owned()).unwrap();
    let first = events.next().unwrap().unwrap();
    assert_eq!(
        (first.cursor, kinds(&first.what)),
        (Some(7), EventKind::Running)
    );
    assert_eq!(first.addon_id.unwrap().as_str(), "photos");
    send.send(event(8, "DONE").replace("\n\n", "")).unwrap();
    drop(send);

    let (send, stream) = mpsc::channel();
    streams.send(stream).unwrap();
    send.send(event(8, "DONE")).unwrap();
    let second = events.next().unwrap().unwrap();
    assert_eq!(
        (second.cursor, kinds(&second.what)),
        (Some(8), EventKind::Done)
    );
    let asked = fake.asked();
    assert!(asked[0].path.ends_with(&format!(
        "?event=DONE&event=RUNNING&addon_id=photos&job_id={JOB}"
    )));
    assert_eq!(asked[0].header("Last-Event-ID"), None);
    assert_eq!(asked[0].header("Accept"), Some("text/event-stream"));
    assert_eq!(
        asked[1].header("Last-Event-ID"),
        Some("7"),
        "the half of the second was no event"
    );
    assert_eq!(events.last_event_id(), Some(8));
}

#[test]
fn what_is_only_told_has_no_place_and_what_is_newer_is_passed_over() {
    let _watch = Watchdog::watching("load events");
    let (fake, streams) = streaming();
    let client = Client::new(fake.url()).unwrap();
    let (send, stream) = mpsc::channel();
    streams.send(stream).unwrap();
    let load = "event: LOAD\ndata: {\"at\":\"2026-01-01T00:00:00Z\",\"busy\":1.0,\"state\":\"QUIET\",\"capacity\":9,\
                \"used\":1}\n\n";
    send.send("event: WEATHER\ndata: {\"sun\":true}\n\n".to_owned())
        .unwrap();
    send.send(load.to_owned()).unwrap();
    let mut events = client.events(Filter::default(), Some(3));
    let told = events.next().unwrap().unwrap();
    assert!(matches!(told.what, What::Load(sample) if sample.capacity == 9));
    assert_eq!((told.cursor, events.last_event_id()), (None, Some(3)));
    assert_eq!(fake.asked()[0].header("Last-Event-ID"), Some("3"));
}

#[test]
fn a_refusal_ends_the_stream() {
    let _watch = Watchdog::watching("a refused stream");
    let (fake, streams) = streaming();
    drop(streams);
    let client = Client::new(fake.url()).unwrap();
    let mut events = client.events(Filter::default(), None);
    let error = events.next().unwrap().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Forbidden));
    assert!(events.next().is_none());
}

#[test]
fn a_stream_that_waits_can_be_stopped() {
    let _watch = Watchdog::watching("a stopped stream");
    let (fake, streams) = streaming();
    let client = Client::new(fake.url()).unwrap();
    let (send, stream) = mpsc::channel();
    streams.send(stream).unwrap();
    send.send(event(1, "DONE")).unwrap();
    let mut events = client.events(Filter::default(), None);
    events.next().unwrap().unwrap();
    let stopper = events.stopper();
    let waiting = std::thread::spawn(move || events.next().is_none());
    stopper.stop();
    assert!(waiting.join().unwrap());
    drop(send);
}

#[test]
fn patience_ends() {
    let _watch = Watchdog::watching("patience with a stream");
    let url = Fake::new(|_| Answer::Nothing).url();
    let client = Client::new(url).unwrap();
    let mut events = client
        .events(Filter::default(), None)
        .patience(Duration::ZERO);
    let error = events.next().unwrap().unwrap_err();
    assert!(
        matches!(error, ClientError::Unreachable { .. }),
        "{error:?}"
    );
    assert!(events.next().is_none());
}
