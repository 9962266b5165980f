//! The history of a job as a trace, in the JSON that Chrome's tracing page and Perfetto read: its states, attempts and leases as
//! bars over one time, everything else that happened as marks, and what its worker reported last of the jobs below it.

use jiff::Timestamp;
use jobtree_protocol::{Event, EventKind, JobState, JobView, LeaseId, TreeView, to_micros};
use serde_json::{Value, json};

/// The rows of the process that stands for the job.
const STATES: u32 = 1;
const ATTEMPTS: u32 = 2;
const LEASES: u32 = 3;
const MARKS: u32 = 4;
const ROWS: [(u32, &str); 4] = [
    (STATES, "states"),
    (ATTEMPTS, "attempts"),
    (LEASES, "leases"),
    (MARKS, "events"),
];
/// The processes of the trace.
const JOB: u32 = 1;
const WORKER: u32 = 2;

/// A bar that has not ended.
struct Open {
    name: String,
    from: Timestamp,
    args: Value,
}

/// Builds the trace of a job from its events, in their order. What lasts ends now.
pub(crate) fn trace(
    job: &JobView,
    events: &[Event],
    tree: Option<&TreeView>,
    now: Timestamp,
) -> Value {
    let mut out = vec![named(
        "process_name",
        JOB,
        0,
        &format!("job {}", job.job_id),
    )];
    out.extend(ROWS.map(|(row, name)| named("thread_name", JOB, row, name)));
    out.extend(history(events, now));
    if let Some(tree) = tree {
        out.push(named(
            "process_name",
            WORKER,
            0,
            &format!("worker {}", tree.instance_id),
        ));
        out.extend(tasks(tree));
    }
    json!({
        "displayTimeUnit": "ms",
        "otherData": {
            "job_id": job.job_id,
            "addon_id": job.addon_id,
            "job_type": job.job_type,
            "state": job.state,
            "traceparent": job.trace().to_string(),
            "at": now,
        },
        "traceEvents": out,
    })
}

/// Builds the bars and marks of events, which are in their order.
fn history(events: &[Event], now: Timestamp) -> Vec<Value> {
    let mut out = Vec::new();
    let (mut state, mut attempt) = (None::<(JobState, Open)>, None::<Open>);
    let mut leases: Vec<(LeaseId, Open)> = Vec::new();
    // A later event may name a lease that has ended.
    let mut seen = Vec::new();
    for event in events {
        let at = event.at;
        let changed = event
            .state
            .filter(|is| state.as_ref().map(|(was, _)| was) != Some(is));
        if let Some(is) = changed {
            if let Some((_, open)) = state.take() {
                out.push(open.bar(STATES, at));
            }
            state = (!is.is_ended()).then(|| (is, Open::new(is.as_str(), event)));
        }
        if event.kind == EventKind::Running {
            out.extend(attempt.take().map(|open| open.bar(ATTEMPTS, at)));
            let name = format!("attempt {}", event.attempt.unwrap_or(1));
            attempt = Some(Open::new(name, event));
        } else if event.state.is_some_and(|is| is != JobState::Running) {
            let reason = json!(event.reason);
            out.extend(
                attempt
                    .take()
                    .map(|open| open.because(reason).bar(ATTEMPTS, at)),
            );
        }
        if let Some(lease) = event.lease_id
            && !seen.contains(&lease)
        {
            seen.push(lease);
            leases.push((lease, Open::new(format!("lease {}", seen.len()), event)));
        }
        if ends_lease(event) {
            let of_event =
                |(id, _): &(LeaseId, Open)| event.lease_id.is_none_or(|lease| lease == *id);
            let over: Vec<_> = leases.extract_if(.., |lease| of_event(lease)).collect();
            out.extend(over.into_iter().map(|(_, open)| open.bar(LEASES, at)));
        }
        out.push(mark(event));
    }
    out.extend(state.map(|(_, open)| open.bar(STATES, now)));
    out.extend(attempt.map(|open| open.bar(ATTEMPTS, now)));
    out.extend(leases.into_iter().map(|(_, open)| open.bar(LEASES, now)));
    out
}

/// Returns `true` if the job is no longer under its lease after an event.
fn ends_lease(event: &Event) -> bool {
    match event.kind {
        EventKind::LeaseExpired | EventKind::LeaseReleased | EventKind::LeaseRevoked => true,
        _ => event
            .state
            .is_some_and(|is| is.is_ended() || is == JobState::Queued),
    }
}

impl Open {
    fn new(name: impl Into<String>, event: &Event) -> Self {
        Self {
            name: name.into(),
            from: event.at,
            args: json!({
                "lease_id": event.lease_id,
                "node_id": event.node_id,
                "attempt": event.attempt,
                "reason": event.reason,
            }),
        }
    }

    fn because(mut self, reason: Value) -> Self {
        self.args["ended"] = reason;
        self
    }

    fn bar(self, row: u32, to: Timestamp) -> Value {
        bar(JOB, row, &self.name, (self.from, to), self.args)
    }
}

fn bar(
    process: u32,
    row: u32,
    name: &str,
    (from, to): (Timestamp, Timestamp),
    args: Value,
) -> Value {
    let (from, to) = (to_micros(from), to_micros(to));
    json!({
        "ph": "X", "cat": "jobtree", "name": name, "pid": process, "tid": row,
        "ts": from, "dur": (to - from).max(0), "args": args,
    })
}

fn mark(event: &Event) -> Value {
    json!({
        "ph": "i", "s": "t", "cat": "jobtree", "name": event.kind.as_str(), "pid": JOB, "tid": MARKS,
        "ts": to_micros(event.at), "args": event,
    })
}

fn named(what: &str, process: u32, row: u32, name: &str) -> Value {
    json!({"ph": "M", "name": what, "pid": process, "tid": row, "args": {"name": name}})
}

/// Returns the jobs below this one, each in a row of its own, since siblings overlap.
fn tasks(tree: &TreeView) -> impl Iterator<Item = Value> {
    let nodes = (1..).zip(&tree.tree.nodes);
    nodes.flat_map(move |(row, node): (u32, _)| {
        let name = format!("{}{}", "· ".repeat(node.depth as usize), node.label);
        let age = std::time::Duration::from_millis(node.age_ms);
        let from = tree.at.checked_sub(age).unwrap_or(tree.at);
        let args = json!({
            "depth": node.depth, "state": node.state, "waiting_for": node.waiting_for,
        });
        [
            named("thread_name", WORKER, row, &name),
            bar(WORKER, row, &node.label, (from, tree.at), args),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, second: i64, state: JobState, lease: Option<LeaseId>) -> Event {
        Event {
            job_id: None,
            at: Timestamp::from_second(second).unwrap(),
            kind,
            state: Some(state),
            lease_id: lease,
            node_id: None,
            attempt: (kind == EventKind::Running).then_some(1),
            revision: None,
            reason: None,
        }
    }

    /// The bars as name, row, begin and length in seconds, in the order in which they begin.
    fn bars(trace: &[Value]) -> Vec<(String, u64, i64, i64)> {
        let mut bars: Vec<_> = trace
            .iter()
            .filter(|it| it["ph"] == "X")
            .map(|it| {
                let seconds = |field: &str| it[field].as_i64().unwrap() / 1_000_000;
                let name = it["name"].as_str().unwrap().to_owned();
                (
                    name,
                    it["tid"].as_u64().unwrap(),
                    seconds("ts"),
                    seconds("dur"),
                )
            })
            .collect();
        bars.sort_by_key(|(_, row, from, _)| (*from, *row));
        bars
    }

    #[test]
    fn states_attempts_and_leases_are_bars_that_meet() {
        use EventKind::{Done, LeaseExpired, Running, Submitted};
        let (one, two) = (
            LeaseId::from(uuid::Uuid::from_u128(1)),
            LeaseId::from(uuid::Uuid::from_u128(2)),
        );
        let events = [
            event(Submitted, 10, JobState::Queued, None),
            event(Running, 20, JobState::Running, Some(one)),
            event(LeaseExpired, 50, JobState::Queued, Some(one)),
            event(Running, 60, JobState::Running, Some(two)),
            event(Done, 90, JobState::Done, Some(two)),
        ];
        let at = |name: &str, row, from, length| (name.to_owned(), u64::from(row), from, length);
        let now = Timestamp::from_second(100).unwrap();
        let whole = history(&events, now);
        let expected = [
            at("QUEUED", STATES, 10, 10),
            at("RUNNING", STATES, 20, 30),
            at("attempt 1", ATTEMPTS, 20, 30),
            at("lease 1", LEASES, 20, 30),
            at("QUEUED", STATES, 50, 10),
            at("RUNNING", STATES, 60, 30),
            at("attempt 1", ATTEMPTS, 60, 30),
            at("lease 2", LEASES, 60, 30),
        ];
        assert_eq!(bars(&whole), expected);
        // What lasts ends now.
        let part = history(&events[..4], now);
        let last: Vec<_> = bars(&part).split_off(5);
        let lasts = [
            at("RUNNING", STATES, 60, 40),
            at("attempt 1", ATTEMPTS, 60, 40),
            at("lease 2", LEASES, 60, 40),
        ];
        assert_eq!(last, lasts);
    }
}
