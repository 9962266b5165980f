//! Two readings of the machine's counters make one sample.
//!
//! Counters only grow, but not all of them always: idle time goes back by some ticks when a processor goes away, a disk's
//! time wraps at 32 bits, and a machine that was suspended or moved has counters that jump. So a pair that cannot be is
//! no sample (the older reading is dropped, and the next pair decides), and what is only noise is bounded.

use std::time::Duration;

/// What the machine had counted at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    /// When, by a clock that nobody sets.
    pub(crate) at: Duration,
    /// CPU time of all processors, idle included, in ticks.
    pub(crate) total: u64,
    /// The part of it in which nothing was to be done, or in which only a disk was waited for.
    pub(crate) idle: u64,
    /// Each disk's name, and the milliseconds it has been at work.
    pub(crate) disks: Vec<(String, u64)>,
    /// The network interfaces whose speed is known.
    pub(crate) interfaces: Vec<Interface>,
}

/// What a network interface had counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// Bytes that came in.
    pub(crate) received: u64,
    /// Bytes that went out.
    pub(crate) sent: u64,
    /// Bytes a second that it can carry in each direction.
    pub(crate) speed: u64,
}

/// Why two readings are no sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPair {
    /// Too little time lies between them for the coarse counters.
    TooSoon,
    /// A counter went back, or time did.
    Jumped,
}

/// What happened between two readings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interval {
    /// CPU time of all processors, in ticks.
    pub(crate) total: u64,
    /// Idle part of it, 0..=1.
    pub(crate) idle: f64,
    /// Part of the time that the busiest disk was at work, 0..=1.
    pub(crate) disk_busy: Option<f64>,
    /// Part of its speed that the busiest interface was used at, 0..=1.
    pub(crate) network: Option<f64>,
    /// How long it was.
    pub(crate) time: Duration,
}

/// With fewer ticks than this between two readings, one tick would be more than a tenth.
const FEWEST_TICKS: u64 = 10;

/// How far idle time may go back without a meaning: some kernels correct it by a few ticks a processor.
const IDLE_SLACK: u64 = 100;

impl Counters {
    /// What happened from `before` until now.
    pub(crate) fn since(&self, before: &Counters) -> Result<Interval, NoPair> {
        if self.at < before.at || self.total < before.total {
            return Err(NoPair::Jumped);
        }
        let total = self.total - before.total;
        if total < FEWEST_TICKS || self.at == before.at {
            return Err(NoPair::TooSoon);
        }
        if self.idle + IDLE_SLACK < before.idle {
            return Err(NoPair::Jumped);
        }
        let idle = self.idle.saturating_sub(before.idle).min(total);
        let time = self.at - before.at;
        Ok(Interval {
            total,
            idle: idle as f64 / total as f64,
            disk_busy: self.busiest_disk(before, time),
            network: self.busiest_interface(before, time),
            time,
        })
    }

    /// The busier direction of the busiest interface. One whose counters went back, as after a reset, says nothing.
    fn busiest_interface(&self, before: &Counters, time: Duration) -> Option<f64> {
        let parts = self.interfaces.iter().filter_map(|now| {
            let then = before.interfaces.iter().find(|it| it.name == now.name)?;
            let received = now.received.checked_sub(then.received)?;
            let sent = now.sent.checked_sub(then.sent)?;
            let most = now.speed as f64 * time.as_secs_f64();
            (most > 0.0).then(|| received.max(sent) as f64 / most)
        });
        parts.reduce(f64::max).map(|part| part.min(1.0))
    }

    fn busiest_disk(&self, before: &Counters, time: Duration) -> Option<f64> {
        let parts = self.disks.iter().filter_map(|(name, now)| {
            let (_, then) = before.disks.iter().find(|(other, _)| other == name)?;
            let millis = grown(*then, *now, time)?;
            Some(millis as f64 / time.as_secs_f64() / 1000.0)
        });
        parts.reduce(f64::max).map(|part| part.min(1.0))
    }
}

/// By how many milliseconds a disk's time has grown, which may have begun again at 2³² since. `None` if it is none that
/// could have passed.
fn grown(then: u64, now: u64, time: Duration) -> Option<u64> {
    let grown = match now.checked_sub(then) {
        Some(grown) => grown,
        None => (now + (1 << 32)).checked_sub(then)?,
    };
    // Twice the time, and a tick: the two were not read at the same instant.
    let possible = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    (grown <= possible.saturating_mul(2).saturating_add(20)).then_some(grown)
}

/// The average over a minute of a value that is known at intervals, as the load average is one: what of that average is
/// ours.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MinuteAverage(f64);

impl MinuteAverage {
    pub(crate) fn add(&mut self, value: f64, time: Duration) -> f64 {
        let kept = (-time.as_secs_f64() / 60.0).exp();
        self.0 = self.0 * kept + value * (1.0 - kept);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(millis: u64, total: u64, idle: u64, disk: u64) -> Counters {
        Counters {
            at: Duration::from_millis(millis),
            total,
            idle,
            disks: vec![("vda".to_owned(), disk)],
            interfaces: Vec::new(),
        }
    }

    #[test]
    fn the_busier_direction_of_the_busiest_interface_counts() {
        let with = |millis, total, bytes: [(&str, u64, u64); 2]| Counters {
            interfaces: bytes
                .map(|(name, received, sent)| Interface {
                    name: name.to_owned(),
                    received,
                    sent,
                    speed: 1000,
                })
                .into(),
            ..counters(millis, total, 0, 0)
        };
        let before = with(0, 1_000, [("eth0", 500, 500), ("eth1", 0, 0)]);
        let after = with(2_000, 1_200, [("eth0", 600, 2_000), ("eth1", 100, 100)]);
        assert_eq!(after.since(&before).unwrap().network, Some(0.75));
        let reset = with(2_000, 1_200, [("eth0", 0, 0), ("other", 9_000, 0)]);
        assert_eq!(reset.since(&before).unwrap().network, None);
    }

    #[test]
    fn parts_are_of_what_lies_between() {
        let before = counters(1_000, 10_000, 9_000, 400);
        let after = counters(2_000, 10_200, 9_050, 650);
        let interval = after.since(&before).unwrap();
        assert_eq!(interval.total, 200);
        assert_eq!(interval.idle, 0.25);
        assert_eq!(interval.disk_busy, Some(0.25));
        assert_eq!(interval.time, Duration::from_secs(1));
    }

    #[test]
    fn too_soon_is_no_pair() {
        let before = counters(1_000, 10_000, 9_000, 0);
        assert_eq!(before.since(&before), Err(NoPair::TooSoon));
        let soon = counters(1_020, 10_004, 9_004, 0);
        assert_eq!(soon.since(&before), Err(NoPair::TooSoon));
    }

    #[test]
    fn counters_that_went_back_are_no_pair() {
        let before = counters(1_000, 10_000, 9_000, 0);
        assert_eq!(
            counters(2_000, 200, 100, 0).since(&before),
            Err(NoPair::Jumped)
        );
        assert_eq!(
            counters(500, 10_200, 9_100, 0).since(&before),
            Err(NoPair::Jumped)
        );
        assert_eq!(
            counters(2_000, 10_200, 8_000, 0).since(&before),
            Err(NoPair::Jumped)
        );
    }

    #[test]
    fn noise_of_the_idle_time_is_bounded() {
        let before = counters(1_000, 10_000, 9_000, 0);
        assert_eq!(
            counters(2_000, 10_200, 8_998, 0)
                .since(&before)
                .unwrap()
                .idle,
            0.0
        );
        assert_eq!(
            counters(2_000, 10_200, 9_300, 0)
                .since(&before)
                .unwrap()
                .idle,
            1.0
        );
    }

    #[test]
    fn the_time_of_a_disk_wraps_at_32_bits() {
        let before = counters(1_000, 10_000, 9_000, u64::from(u32::MAX) - 99);
        let after = counters(2_000, 10_200, 9_100, 400);
        assert_eq!(after.since(&before).unwrap().disk_busy, Some(0.5));
    }

    #[test]
    fn a_disk_that_jumped_or_came_says_nothing() {
        let before = counters(1_000, 10_000, 9_000, 5_000);
        let replaced = counters(2_000, 10_200, 9_100, 0);
        assert_eq!(replaced.since(&before).unwrap().disk_busy, None);
        let jumped = counters(2_000, 10_200, 9_100, 90_000);
        assert_eq!(jumped.since(&before).unwrap().disk_busy, None);
        let mut without = before.clone();
        without.disks.clear();
        let after = counters(2_000, 10_200, 9_100, 5_100);
        assert_eq!(after.since(&without).unwrap().disk_busy, None);
    }

    #[test]
    fn the_busiest_disk_counts() {
        let mut before = counters(0, 1_000, 0, 0);
        let mut after = counters(1_000, 1_200, 0, 100);
        before.disks.push(("vdb".to_owned(), 50));
        after.disks.push(("vdb".to_owned(), 950));
        assert_eq!(after.since(&before).unwrap().disk_busy, Some(0.9));
    }

    #[test]
    fn the_minute_average_follows_as_the_load_average_does() {
        let mut average = MinuteAverage::default();
        let second = Duration::from_secs(1);
        let after_a_minute = (0..60).fold(0.0, |_, _| average.add(1.0, second));
        assert!((after_a_minute - (1.0 - (-1f64).exp())).abs() < 1e-9);
        let at_once = MinuteAverage::default().add(1.0, Duration::from_secs(60));
        assert!(
            (at_once - after_a_minute).abs() < 1e-9,
            "in one step or in sixty"
        );
    }
}
