//! The machines that share the store, as each of them describes itself.
//!
//! Each scheduler of a shared store writes a small record of its own machine every few seconds, under the machine's name, and
//! reads those of the others. A record is a description for people, and nothing is decided by it: capacity follows from the
//! leases and reservations that name a node, and a node that is gone loses them by their terms.
//!
//! A record that is not renewed shows as silent, and is forgotten after a while. How long that is goes by this process's monotonic
//! clock, from the reading that showed the record's last change, since the wall clocks of two machines may differ. Only the age of
//! a record that this process reads for the first time is told by the wall clocks.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{Json, NodeId, NodeStatus};

use super::operations::{PutNote, ReadNodes};
use super::turn::Turn;

/// The beginning of the names of all records.
pub(super) const PREFIX: &str = "node/";

/// The interval at which a scheduler writes its record and reads those of others.
const EVERY: Duration = Duration::from_secs(5);
/// A machine whose record was not renewed for so long is silent: some records may be late on a busy database.
const SILENT: Duration = Duration::from_secs(30);
/// A machine that was silent for so long is forgotten. (Picked by feel: a machine that is off overnight is still shown.)
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);

/// A record of another machine.
#[derive(Debug)]
struct Heard {
    status: NodeStatus,
    /// When it was renewed, by the monotonic clock.
    renewed: Duration,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Nodes {
    next: Option<Duration>,
    others: BTreeMap<NodeId, Heard>,
}

impl Nodes {
    pub(super) fn new(turn: &Turn) -> Self {
        Self {
            next: turn.config.options.shared.then_some(turn.now.mono),
            others: BTreeMap::new(),
        }
    }

    /// Returns `true` if the record of this machine is to be written.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.next.is_some_and(|at| at <= now)
    }

    pub(super) fn next(&self) -> Option<Duration> {
        self.next
    }

    /// Writes the record of this machine, and reads those of the others.
    pub(super) fn renew(&mut self, own: NodeStatus, turn: &mut Turn) {
        self.next = Some(turn.now.mono + turn.rng.jittered(EVERY));
        // What may grow is not in a record that is written every few seconds.
        let own = NodeStatus {
            streaks: Vec::new(),
            ..own
        };
        if let Ok(value) = Json::of(&own) {
            let (name, value) = (name_of(&own.node_id), Some(value));
            turn.ask(PutNote { name, value });
        }
        turn.ask(ReadNodes);
    }

    /// All records were read.
    pub(super) fn read(&mut self, notes: &[(String, Json)], turn: &mut Turn) {
        let now = turn.now;
        let mut before = std::mem::take(&mut self.others);
        for (name, value) in notes {
            let Some(status) = record_of(name, value) else {
                continue;
            };
            if status.node_id == turn.config.node {
                continue;
            }
            let renewed = match before.remove(&status.node_id) {
                Some(known) if known.status.last_seen == status.last_seen => known.renewed,
                Some(_) => now.mono,
                None => now.mono.saturating_sub(age(status.last_seen, now.wall)),
            };
            if now.mono.saturating_sub(renewed) >= FORGOTTEN {
                let (name, value) = (name.clone(), None);
                turn.ask(PutNote { name, value });
                continue;
            }
            let node = status.node_id.clone();
            self.others.insert(node, Heard { status, renewed });
        }
    }

    /// Returns how the other machines stand, by their names.
    pub(super) fn others(&self, now: Duration) -> impl Iterator<Item = NodeStatus> {
        self.others.values().map(move |heard| NodeStatus {
            silent: now.saturating_sub(heard.renewed) >= SILENT,
            ..heard.status.clone()
        })
    }
}

fn name_of(node: &NodeId) -> String {
    format!("{PREFIX}{node}")
}

/// Reads a record; none if a version wrote it that is not known.
fn record_of(name: &str, value: &Json) -> Option<NodeStatus> {
    let node = name.strip_prefix(PREFIX)?;
    let status: NodeStatus = value.read().ok()?;
    (status.node_id.as_str() == node).then_some(status)
}

fn age(seen: Option<Timestamp>, wall: Timestamp) -> Duration {
    let Some(seen) = seen else {
        return FORGOTTEN;
    };
    Duration::try_from(wall.duration_since(seen)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jobtree_protocol::QuietState;
    use jobtree_queue::Now;
    use jobtree_queue::policy::Policy;

    use super::super::operations::Op;
    use super::super::turn::{Config, Output};
    use super::*;
    use crate::options::Options;

    fn turn() -> Turn {
        let now = Now {
            wall: "2026-01-03T00:00:00Z".parse().unwrap(),
            mono: Duration::from_secs(1_000_000),
        };
        let options = Options {
            shared: true,
            ..Options::default()
        };
        Turn::new(Config::new(&options, Arc::new(Policy::default())), 7, now)
    }

    fn note(node: &str, last_seen: Timestamp) -> (String, Json) {
        let status = NodeStatus {
            node_id: node.parse().unwrap(),
            busy: 0.0,
            state: QuietState::Quiet,
            since: last_seen,
            capacity: 100,
            used: 7,
            reserved: 0,
            active_leases: 1,
            stale: false,
            load_ignored: false,
            streaks: Vec::new(),
            labels: vec!["gpu".to_owned()],
            version: "1.2.3".to_owned(),
            last_seen: Some(last_seen),
            silent: false,
        };
        (format!("{PREFIX}{node}"), Json::of(&status).unwrap())
    }

    fn pass(turn: &mut Turn, time: Duration) {
        turn.now = turn.now.after(time);
    }

    fn is_silent(nodes: &Nodes, turn: &Turn) -> Vec<bool> {
        nodes
            .others(turn.now.mono)
            .map(|node| node.silent)
            .collect()
    }

    #[test]
    fn a_record_that_is_not_renewed_is_silent_and_forgotten_later() {
        let mut turn = turn();
        let mut nodes = Nodes::new(&turn);
        let first = note("other", turn.now.wall);
        nodes.read(std::slice::from_ref(&first), &mut turn);
        assert_eq!(is_silent(&nodes, &turn), [false]);
        pass(&mut turn, SILENT);
        nodes.read(std::slice::from_ref(&first), &mut turn);
        assert_eq!(is_silent(&nodes, &turn), [true]);
        // It is renewed by a machine whose clock is an hour behind.
        let late = turn.now.wall - Duration::from_secs(3600);
        nodes.read(&[note("other", late)], &mut turn);
        assert_eq!(is_silent(&nodes, &turn), [false]);
        assert!(turn.take_outputs().is_empty());
        pass(&mut turn, FORGOTTEN);
        nodes.read(&[note("other", late)], &mut turn);
        assert_eq!(is_silent(&nodes, &turn), [true; 0]);
        let outputs = turn.take_outputs();
        let [
            Output::Op {
                op: Op::PutNote(put),
                ..
            },
        ] = &outputs[..]
        else {
            panic!("it is forgotten in the store, too: {outputs:?}");
        };
        assert_eq!((put.name.as_str(), &put.value), ("node/other", &None));
    }

    #[test]
    fn an_old_record_is_silent_from_the_first_reading_on() {
        let mut turn = turn();
        let mut nodes = Nodes::new(&turn);
        let old = turn.now.wall - Duration::from_secs(600);
        let own = note(turn.config.node.as_str(), turn.now.wall);
        let unknown = (
            "node/odd".to_owned(),
            Json::of(&"of another version").unwrap(),
        );
        nodes.read(&[note("other", old), own, unknown], &mut turn);
        assert_eq!(is_silent(&nodes, &turn), [true]);
    }

    #[test]
    fn a_scheduler_that_is_alone_writes_nothing() {
        let mut turn = turn();
        turn.config.options.shared = false;
        let nodes = Nodes::new(&turn);
        assert!(!nodes.is_due(Duration::MAX));
    }
}
