//! The state of things for Prometheus, as text.
//!
//! Names begin with `jobtree_`, end in their unit, and counters in `_total`. Addons are labels, jobs and leases are not:
//! there are few of the former and no end of the latter.

use std::fmt::{self, Write};

use jobtree_protocol::{JobState, QuietState, StatusView};
use jobtree_scheduler::core::Stats;
use jobtree_store::{Histogram, StoreNumbers};

/// What Prometheus expects to be told the text is.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text in the making.
#[derive(Default)]
pub struct Page(String);

impl Page {
    /// The text.
    pub fn finish(self) -> String {
        self.0
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl fmt::Display) {
        self.0.push_str(name);
        if !labels.is_empty() {
            self.0.push('{');
            for (place, (label, text)) in labels.iter().enumerate() {
                let comma = if place == 0 { "" } else { "," };
                let _ = write!(self.0, "{comma}{label}=\"{}\"", escaped(text));
            }
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// Something that goes up and down, one line for each of its labels.
    pub fn gauge<'a, V: fmt::Display>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, V)>,
    ) {
        self.head(name, "gauge", help);
        for (labels, value) in values {
            self.line(name, &labels, value);
        }
    }

    /// Something that only grows, one line for each of its labels.
    pub fn counter<'a, V: fmt::Display>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, V)>,
    ) {
        self.head(name, "counter", help);
        for (labels, value) in values {
            self.line(name, &labels, value);
        }
    }

    /// How many were not above each bound.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        up_to: impl IntoIterator<Item = (f64, u64)>,
        count: u64,
        sum: f64,
    ) {
        self.head(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (bound, below) in up_to {
            self.line(&bucket, &[("le", &bound.to_string())], below);
        }
        self.line(&bucket, &[("le", "+Inf")], count);
        self.line(&format!("{name}_sum"), &[], sum);
        self.line(&format!("{name}_count"), &[], count);
    }

    /// Of microseconds, told in seconds.
    fn durations(&mut self, name: &str, help: &str, durations: &Histogram) {
        let seconds = |micros: u64| micros as f64 / 1e6;
        let up_to = durations.cumulative();
        self.histogram(
            name,
            help,
            up_to.map(|(bound, count)| (seconds(bound), count)),
            durations.count(),
            seconds(durations.sum),
        );
    }

    /// How things stand.
    pub fn status(&mut self, status: &StatusView) {
        let none = Vec::new;
        self.gauge(
            "jobtree_jobs",
            "Jobs of the store by state, ended ones as far as history is kept.",
            JobState::ALL.iter().map(|state| {
                let count = status.jobs.get(state).copied().unwrap_or(0);
                (vec![("state", state.as_str())], count)
            }),
        );
        self.gauge(
            "jobtree_oldest_queued_seconds",
            "Age of the oldest job that waits and could start.",
            [(none(), status.oldest_queued_sec.unwrap_or(0.0))],
        );
        self.gauge(
            "jobtree_addon_jobs",
            "Jobs of the store that have not ended, by addon and state.",
            status.addons.iter().flat_map(|(addon, counts)| {
                counts.jobs().map(move |(state, count)| {
                    let labels = vec![("addon", addon.as_str()), ("state", state.as_str())];
                    (labels, count)
                })
            }),
        );
        self.gauge(
            "jobtree_addon_paused",
            "1 if the addon is skipped.",
            status
                .addons
                .iter()
                .map(|(addon, counts)| (vec![("addon", addon.as_str())], u8::from(counts.paused))),
        );
        // A machine that is off does not answer, so the others tell of it.
        self.gauge(
            "jobtree_machine_silent",
            "1 if the machine has not described itself in the store for half a minute or more.",
            (status.nodes.iter())
                .map(|node| (vec![("node", node.node_id.as_str())], u8::from(node.silent))),
        );
        // Of all else each machine tells of itself, the first one: a collector that asks all would count the others twice.
        if let Some(node) = status.nodes.first() {
            let of_node = || vec![("node", node.node_id.as_str())];
            self.gauge(
                "jobtree_busy",
                "How busy this daemon's machine is, 0 to 10.",
                [(of_node(), node.busy)],
            );
            let state = match node.state {
                QuietState::Quiet => 0,
                QuietState::Normal => 1,
                QuietState::Busy => 2,
                QuietState::Panic => 3,
            };
            let help = "State of this daemon's machine: 0 QUIET, 1 NORMAL, 2 BUSY, 3 PANIC.";
            self.gauge("jobtree_quiet_state", help, [(of_node(), state)]);
            for (name, help, units) in [
                (
                    "jobtree_capacity_units",
                    "Units of this daemon's machine at its load.",
                    node.capacity,
                ),
                (
                    "jobtree_used_units",
                    "Units of this daemon's machine that leases and reservations hold.",
                    node.used,
                ),
                (
                    "jobtree_reserved_units",
                    "Of the used units, those of dispatches that no worker has accepted yet.",
                    node.reserved,
                ),
                (
                    "jobtree_active_leases",
                    "Leases that hold on this daemon's machine.",
                    node.active_leases,
                ),
                (
                    "jobtree_measurements_stale",
                    "1 if the measurements are too old to go by.",
                    u32::from(node.stale),
                ),
            ] {
                self.gauge(name, help, [(of_node(), units)]);
            }
        }
    }

    /// What the store's writer has done.
    pub fn store(&mut self, numbers: &StoreNumbers) {
        let none = Vec::new;
        for (name, help, count) in [
            (
                "jobtree_store_operations_total",
                "Calls of the store.",
                numbers.operations,
            ),
            (
                "jobtree_commits_total",
                "Commits that changed something.",
                numbers.commits,
            ),
            (
                "jobtree_failed_commits_total",
                "Commits that failed.",
                numbers.failed_commits,
            ),
        ] {
            self.counter(name, help, [(none(), count)]);
        }
        let help = "Calls that wait for the store's writer.";
        self.gauge("jobtree_store_waiting", help, [(none(), numbers.waiting)]);
        let sizes = &numbers.batch_sizes;
        self.histogram(
            "jobtree_commit_calls",
            "How many calls shared a commit.",
            sizes
                .cumulative()
                .map(|(bound, count)| (bound as f64, count)),
            sizes.count(),
            sizes.sum as f64,
        );
        self.durations(
            "jobtree_commit_seconds",
            "How long a commit took to write and to sync.",
            &numbers.commit_micros,
        );
    }

    /// Counts and histograms since the start.
    pub fn stats(&mut self, stats: &Stats) {
        let none = Vec::new;
        self.counter(
            "jobtree_events_total",
            "Events by kind: submissions, starts, ends, expired leases and all others.",
            stats
                .events
                .iter()
                .map(|(kind, count)| (vec![("event", *kind)], *count)),
        );
        self.counter(
            "jobtree_denials_total",
            "Denials by reason, each counted when the reason changed.",
            stats
                .denials
                .iter()
                .map(|(code, count)| (vec![("reason", code.as_str())], *count)),
        );
        self.durations(
            "jobtree_wait_seconds",
            "How long jobs waited from the moment they could start until they ran.",
            &stats.waited,
        );
        self.durations("jobtree_run_seconds", "How long runs took.", &stats.ran);
        for (name, help, count) in [
            (
                "jobtree_lost_proposals_total",
                "Proposals that lost against another scheduler or a caller.",
                stats.lost_proposals,
            ),
            (
                "jobtree_store_failures_total",
                "Operations of the store that failed, and were repeated or dropped.",
                stats.store_failures,
            ),
            (
                "jobtree_store_reads_total",
                "Times that the store was read again.",
                stats.reads,
            ),
        ] {
            self.counter(name, help, [(none(), count)]);
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_cumulative_and_labels_are_escaped() {
        let mut stats = Stats::default();
        stats.waited.add(700_000);
        stats.waited.add(700_000_000);
        stats.denials.insert("a \"b\"\\".to_owned(), 3);
        let mut page = Page::default();
        page.stats(&stats);
        let text = page.finish();
        for line in [
            "# TYPE jobtree_wait_seconds histogram",
            "jobtree_wait_seconds_bucket{le=\"0.5\"} 0",
            "jobtree_wait_seconds_bucket{le=\"1\"} 1",
            "jobtree_wait_seconds_bucket{le=\"+Inf\"} 2",
            "jobtree_wait_seconds_sum 700.7",
            "jobtree_denials_total{reason=\"a \\\"b\\\"\\\\\"} 3",
        ] {
            assert!(
                text.lines().any(|it| it == line),
                "{line} is not in\n{text}"
            );
        }
    }

    #[test]
    fn a_daemon_tells_of_its_own_machine_and_of_the_whole_store() {
        let node = |name: &str, silent: bool| {
            serde_json::json!({
                "node_id": name, "busy": 1.5, "state": "QUIET", "since": "2026-01-01T00:00:00Z",
                "capacity": 100, "used": 7, "active_leases": 2, "silent": silent,
            })
        };
        let status = serde_json::json!({
            "at": "2026-01-01T00:00:00Z",
            "nodes": [node("here", false), node("there", true)],
            "jobs": {"QUEUED": 40},
            "addons": {},
        });
        let mut page = Page::default();
        page.status(&serde_json::from_value(status).unwrap());
        let text = page.finish();
        assert!(text.contains("jobtree_busy{node=\"here\"} 1.5\n"), "{text}");
        assert!(
            text.contains("jobtree_jobs{state=\"QUEUED\"} 40\n"),
            "{text}"
        );
        let of_another: Vec<&str> = text.lines().filter(|line| line.contains("there")).collect();
        assert_eq!(of_another, ["jobtree_machine_silent{node=\"there\"} 1"]);
        // The help says so, where lines have no label that would.
        for (name, whose) in [
            ("jobtree_busy", "this daemon's machine"),
            ("jobtree_jobs", "the store"),
        ] {
            let help = text
                .lines()
                .find(|line| line.starts_with(&format!("# HELP {name} ")));
            assert!(help.is_some_and(|help| help.contains(whose)), "{text}");
        }
    }
}
