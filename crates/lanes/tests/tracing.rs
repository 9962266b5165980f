//! Notices as events of `tracing`. A program of its own: whether anybody listens is remembered for the whole process, and
//! other tests would have it that nobody does.

#![cfg(feature = "tracing")]

use std::fmt;
use std::sync::{Arc, Mutex};

use jobtree_lanes::{JobManager, Lane, LaneJob};
use jobtree_runtime::Runtime;

#[test]
fn notices_go_to_tracing_as_warnings() {
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    impl Visit for Lines {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            self.0.lock().unwrap().push(format!("{field}: {value:?}"));
        }
    }

    impl tracing::Subscriber for Lines {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            metadata.target() == "jobtree::lanes"
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            assert_eq!(*event.metadata().level(), tracing::Level::WARN);
            event.record(&mut self.clone());
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    let runtime = Runtime::builder().workers(1).build().unwrap();
    let manager = JobManager::builder()
        .runtime(&runtime)
        .queue_warning(2)
        .build()
        .unwrap();
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        for _ in 0..3 {
            let job = LaneJob::action(|| Ok(())).lane(Lane::Main);
            drop(manager.schedule(job));
        }
    });
    let lines = lines.0.lock().unwrap();
    assert_eq!(lines.len(), 1);
    let said = "message: 2 jobs of priority normal wait in lane main";
    assert!(lines[0].starts_with(said), "{}", lines[0]);
}
