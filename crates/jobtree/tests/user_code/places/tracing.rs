//! A subscriber of `tracing`, which is called for every event of a job.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jobtree::{Job, nursery};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::place::Place;
use crate::stage::Stage;

pub const PLACES: &[Place] = &[
    Place::new("tracing/event", |stage| subscribed(stage, Method::Event)),
    Place::new("tracing/new-span", |stage| {
        subscribed(stage, Method::NewSpan)
    }),
    Place::new("tracing/record", |stage| subscribed(stage, Method::Record)),
    Place::new("tracing/close-span", |stage| {
        subscribed(stage, Method::Close)
    }),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Event,
    NewSpan,
    Record,
    Close,
}

struct Subscribed {
    stage: Arc<Stage>,
    method: Method,
    spans: AtomicU64,
}

impl Subscribed {
    fn called(&self, method: Method) {
        // Calls of the program's own events are not what this is about, and the one for its own span neither.
        if self.method == method && Job::current().is_some() {
            self.stage.act();
        }
    }
}

impl Subscriber for Subscribed {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("jobtree") || metadata.target() == "cell"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.called(Method::NewSpan);
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        self.called(Method::Record);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.called(Method::Event);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn try_close(&self, _: Id) -> bool {
        self.called(Method::Close);
        true
    }
}

fn subscribed(stage: &Arc<Stage>, method: Method) {
    let subscriber = Subscribed {
        stage: stage.clone(),
        method,
        spans: AtomicU64::new(0),
    };
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let handle = stage.in_job(|| {
        let span = tracing::info_span!(target: "cell", "followed");
        Job::current().unwrap().trace_below(&span);
        let outcome = nursery(|n| {
            let child = n.spawn(|| Ok(nursery(|n| Ok(n.launch(|| Ok(()))))?));
            Ok(drop(child.join()))
        });
        Ok(drop(outcome))
    });
    // A subscriber that panics may fail the job whose event it was told of, or not.
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}
