//! A manager's counts as Prometheus reads them: its text format, version 0.0.4.

use std::fmt::{Display, Write};

use super::{ManagerStats, PriorityStats, WAIT_BOUNDS};
use crate::priority::Priority;

impl ManagerStats {
    /// All counts in Prometheus's text format.
    ///
    /// ```
    /// # use jobtree_lanes::JobManager;
    /// let manager = JobManager::builder().build()?;
    /// let text = manager.stats().to_prometheus();
    /// assert!(text.contains("jobtree_jobs_scheduled_total{lane=\"any\",priority=\"high\"} 0\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_prometheus(&self) -> String {
        let mut page = Page(String::new());
        page.by_bucket(
            self,
            "jobtree_jobs_queued",
            "gauge",
            "Jobs that wait in a queue.",
            |counts| counts.queued,
        );
        page.by_bucket(
            self,
            "jobtree_jobs_scheduled_total",
            "counter",
            "Jobs that were scheduled.",
            |counts| counts.scheduled,
        );
        page.endings(self);
        page.by_bucket(
            self,
            "jobtree_job_requeues_total",
            "counter",
            "How often a job came back for another dispatch.",
            |counts| counts.requeues,
        );
        page.by_bucket(
            self,
            "jobtree_job_aged_turns_total",
            "counter",
            "Dispatches that a job had because of its age.",
            |counts| counts.aged_turns,
        );
        page.waits(self);
        page.alone(
            "jobtree_manager_workers",
            "Workers that run jobs at once, at most.",
            Some(self.workers),
        );
        page.alone(
            "jobtree_job_slots_in_use",
            "Jobs that are scheduled and have not ended.",
            Some(self.slots.in_use),
        );
        page.alone(
            "jobtree_job_slots_capacity",
            "Jobs that may be scheduled at once.",
            self.slots.capacity,
        );
        page.0
    }

    /// Each bucket with its labels.
    fn buckets(&self) -> impl Iterator<Item = (String, &PriorityStats)> {
        self.lanes.iter().flat_map(|lane| {
            let name = escaped(lane.lane.name());
            let each = Priority::ALL.into_iter().zip(&lane.priorities);
            each.map(move |(priority, counts)| {
                let labels = format!("lane=\"{name}\",priority=\"{priority}\"");
                (labels, counts)
            })
        })
    }
}

/// A label's value as it stands between quotes.
fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            other => escaped.push(other),
        }
    }
    escaped
}

struct Page(String);

impl Page {
    fn line(&mut self, line: impl Display) {
        writeln!(self.0, "{line}").expect("a string takes everything");
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn by_bucket<N: Display>(
        &mut self,
        stats: &ManagerStats,
        name: &str,
        kind: &str,
        help: &str,
        number: impl Fn(&PriorityStats) -> N,
    ) {
        self.head(name, kind, help);
        for (labels, counts) in stats.buckets() {
            self.line(format_args!("{name}{{{labels}}} {}", number(counts)));
        }
    }

    fn endings(&mut self, stats: &ManagerStats) {
        let name = "jobtree_jobs_ended_total";
        self.head(name, "counter", "Jobs that ended, by how they did.");
        for (labels, counts) in stats.buckets() {
            for (outcome, number) in [
                ("completed", counts.completed),
                ("canceled", counts.canceled),
                ("faulted", counts.faulted),
            ] {
                self.line(format_args!(
                    "{name}{{{labels},outcome=\"{outcome}\"}} {number}"
                ));
            }
        }
    }

    fn waits(&mut self, stats: &ManagerStats) {
        let name = "jobtree_job_wait_seconds";
        let help = "How long a job waited in a queue for a dispatch.";
        self.head(name, "histogram", help);
        for (labels, counts) in stats.buckets() {
            let mut up_to_here = 0;
            for (bound, number) in WAIT_BOUNDS.iter().zip(counts.waits) {
                up_to_here += number;
                let bound = bound.as_secs_f64();
                self.line(format_args!(
                    "{name}_bucket{{{labels},le=\"{bound}\"}} {up_to_here}"
                ));
            }
            let all: u64 = counts.waits.iter().sum();
            let total = counts.wait_total.as_secs_f64();
            self.line(format_args!("{name}_bucket{{{labels},le=\"+Inf\"}} {all}"));
            self.line(format_args!("{name}_sum{{{labels}}} {total}"));
            self.line(format_args!("{name}_count{{{labels}}} {all}"));
        }
    }

    fn alone(&mut self, name: &str, help: &str, number: Option<usize>) {
        if let Some(number) = number {
            self.head(name, "gauge", help);
            self.line(format_args!("{name} {number}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::super::{Ending, Endings, LaneStats, Slots, Tally};
    use super::*;
    use crate::lane::Lane;
    use crate::moment::Moment;

    fn stats(capacity: Option<usize>) -> ManagerStats {
        let (mut tally, endings) = (Tally::default(), Endings::default());
        endings.scheduled(Priority::Low);
        endings.ended(Priority::Low, Ending::Faulted);
        let now = Moment::BEGINNING;
        for millis in [1, 5, 1500, 60_000] {
            tally.dispatched(Priority::Low, Duration::from_millis(millis), false, now);
        }
        let odd = Lane::frame("a \"quoted\"\nback\\slash");
        let lane = |lane| LaneStats::new(lane, [0, 3, 0, 0, 0], &tally, &endings, now);
        ManagerStats {
            workers: 2,
            slots: Slots {
                in_use: 5,
                available: capacity.map(|capacity| capacity - 5),
                capacity,
            },
            lanes: vec![lane(Lane::Any), lane(odd)],
        }
    }

    #[test]
    fn the_numbers_stand_where_they_belong() {
        let text = stats(Some(8192)).to_prometheus();
        for line in [
            "jobtree_jobs_queued{lane=\"any\",priority=\"low\"} 3",
            "jobtree_jobs_scheduled_total{lane=\"any\",priority=\"low\"} 1",
            "jobtree_jobs_scheduled_total{lane=\"any\",priority=\"high\"} 0",
            "jobtree_jobs_ended_total{lane=\"any\",priority=\"low\",outcome=\"faulted\"} 1",
            "jobtree_job_wait_seconds_bucket{lane=\"any\",priority=\"low\",le=\"0.0001\"} 0",
            "jobtree_job_wait_seconds_bucket{lane=\"any\",priority=\"low\",le=\"0.001\"} 1",
            "jobtree_job_wait_seconds_bucket{lane=\"any\",priority=\"low\",le=\"10\"} 3",
            "jobtree_job_wait_seconds_bucket{lane=\"any\",priority=\"low\",le=\"+Inf\"} 4",
            "jobtree_job_wait_seconds_sum{lane=\"any\",priority=\"low\"} 61.506",
            "jobtree_job_wait_seconds_count{lane=\"any\",priority=\"low\"} 4",
            "jobtree_job_slots_in_use 5",
            "jobtree_job_slots_capacity 8192",
            "jobtree_manager_workers 2",
        ] {
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
        assert!(!stats(None).to_prometheus().contains("capacity"));
    }

    #[test]
    fn labels_are_escaped() {
        let text = stats(None).to_prometheus();
        let line =
            "jobtree_jobs_queued{lane=\"a \\\"quoted\\\"\\nback\\\\slash\",priority=\"low\"} 3";
        assert!(text.lines().any(|l| l == line), "{text}");
    }

    #[test]
    fn each_series_stands_once_below_its_help_and_type() {
        let text = stats(Some(8192)).to_prometheus();
        let (mut metrics, mut series) = (HashSet::new(), HashSet::new());
        let mut metric = "";
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                metric = help.split(' ').next().unwrap();
                assert!(metrics.insert(metric), "{metric} twice");
                let kind = lines.next().unwrap();
                assert!(kind.starts_with(&format!("# TYPE {metric} ")), "{kind}");
                continue;
            }
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(name.starts_with(metric), "{line} below {metric}");
            assert!(series.insert(name), "{name} twice");
        }
        assert_eq!(metrics.len(), 9);
        // Two lanes of five buckets: four single series, three endings, eleven of the histogram; and three alone.
        assert_eq!(series.len(), 10 * (4 + 3 + 11) + 3);
    }
}
