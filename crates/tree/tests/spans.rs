//! Jobs as spans of `tracing`. A program of its own, and one test: who listens is remembered for the whole process.

#![cfg(feature = "tracing")]

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use jobtree_tree::{Body, BodyResult, Job, JobOptions, Tree};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Writes down which spans begin below which, and how they end.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Written>>);

#[derive(Default)]
struct Written {
    names: HashMap<u64, String>,
    lines: Vec<String>,
}

/// The value of one field.
struct Find(&'static str, Option<String>);

impl Visit for Find {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == self.0 {
            self.1 = Some(format!("{value:?}").trim_matches('"').to_owned());
        }
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut written = self.0.lock().unwrap();
        let mut label = Find("label", None);
        span.record(&mut label);
        let name = label.1.unwrap_or_else(|| span.metadata().name().to_owned());
        let above = span
            .parent()
            .map(|id| written.names[&id.into_u64()].clone());
        written.lines.push(format!(
            "{name} below {}",
            above.as_deref().unwrap_or("none")
        ));
        let id = written.names.len() as u64 + 1;
        written.names.insert(id, name);
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut state = Find("state", None);
        values.record(&mut state);
        let mut written = self.0.lock().unwrap();
        let line = format!("{} {}", written.names[&id.into_u64()], state.1.unwrap());
        written.lines.push(line);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn labelled(parent: &Job, label: &'static str) -> (Job, Body) {
    let options = JobOptions::new().label(label).started();
    parent.attach(options).unwrap()
}

#[test]
fn jobs_below_a_followed_one_are_spans() {
    let notes = Notes::default();
    tracing::subscriber::with_default(notes.clone(), || {
        let tree = Tree::new();
        let (_, apart) = labelled(tree.root(), "apart");
        let (run, run_body) = labelled(tree.root(), "run");
        assert!(run.span().is_none());
        let request = tracing::info_span!("request");
        run.trace_below(&request);
        assert_eq!(run.span().unwrap().id(), request.id());
        let (lane, lane_body) = labelled(&run, "lane");
        let nameless = lane.attach(JobOptions::new().started()).unwrap().1;
        nameless.end(BodyResult::Value);
        let (pixel, pixel_body) = labelled(&lane, "pixel");
        assert!(pixel.span().is_some());
        pixel.cancel("enough");
        pixel_body.end(BodyResult::Cancelled);
        assert!(pixel.span().is_none(), "it has ended");
        lane_body.end(BodyResult::Value);
        run_body.end(BodyResult::Value);
        assert!(run.span().is_none());
        // Nobody is followed any more.
        run.trace_below(&request);
        assert!(run.span().is_none(), "it has ended before");
        let (_, late) = labelled(tree.root(), "late");
        late.end(BodyResult::Value);
        apart.end(BodyResult::Value);
    });
    let expected = [
        "request below none",
        "lane below request",
        "task below lane",
        "task completed",
        "pixel below lane",
        "pixel cancelled",
        "lane completed",
    ];
    assert_eq!(notes.0.lock().unwrap().lines, expected);
}
