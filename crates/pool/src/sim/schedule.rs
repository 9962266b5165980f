//! The order of turns in a simulation: everything that a seed decides.
//!
//! Choosing evenly at every step would explore little: two threads that change places all the time never get far
//! apart, and most races need one of them to stand still while the other does a lot. So the seed first chooses the
//! *manner* of the run: how densely running fibers are interrupted, and whether workers take turns by chance or by
//! ranks that change only now and then, so that one of them is out of luck for a while.

/// SplitMix64: every seed, however small, is a stream of its own.
pub(super) struct Stream(u64);

impl Stream {
    pub(super) fn new(seed: u64) -> Stream {
        Stream(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Returns `true` with a chance of one in `2^shift`.
    fn one_in(&mut self, shift: u32) -> bool {
        self.next() >> 32 & ((1 << shift) - 1) == 0
    }
}

/// The manner in which workers take turns.
enum Manner {
    /// Every worker that can run is as likely as any other.
    Even,
    /// The highest rank runs. At a turn, with a chance of one in `2^change`, some worker's rank is drawn anew.
    Ranked { ranks: Vec<u64>, change: u32 },
}

/// In a ranked run, one turn in `2^this` goes to any worker: none spins for ever for what a lower rank would do.
const MERCY: u32 = 4;

/// See the module's head.
pub(super) struct Schedule {
    stream: Stream,
    /// A fiber is interrupted at one in `2^this` of the points where it can be.
    rarity: u32,
    manner: Manner,
}

/// The rarest interruptions are one in 64 points.
const RAREST: usize = 6;

impl Schedule {
    pub(super) fn new(seed: u64, workers: usize) -> Schedule {
        let mut stream = Stream::new(seed);
        // The lower of two: most programs under test are short, and pass few points.
        let rarity = stream.below(RAREST + 1).min(stream.below(RAREST + 1)) as u32;
        let manner = if stream.one_in(1) {
            Manner::Even
        } else {
            Manner::Ranked {
                ranks: (0..workers).map(|_| stream.next()).collect(),
                change: 1 + stream.below(5) as u32,
            }
        };
        Schedule {
            stream,
            rarity,
            manner,
        }
    }

    /// A number below `bound`, which must not be 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.stream.below(bound)
    }

    /// Returns `true` if the fiber that `worker` runs is interrupted here. Among ranks an interrupt mostly
    /// costs the worker its rank: else it would continue at once.
    pub(super) fn interrupts(&mut self, worker: usize) -> bool {
        let interrupts = self.stream.one_in(self.rarity);
        if interrupts && !self.stream.one_in(2) {
            self.gives_way(worker);
        }
        interrupts
    }

    /// Returns the one of `runnable` (worker numbers, not empty) that gets the next turn.
    pub(super) fn turn(&mut self, runnable: &[usize]) -> usize {
        let Schedule { stream, manner, .. } = self;
        if let Manner::Ranked { ranks, change } = manner {
            if stream.one_in(*change) {
                let whose = stream.below(ranks.len());
                ranks[whose] = stream.next();
            }
            if !stream.one_in(MERCY) {
                return *runnable
                    .iter()
                    .max_by_key(|worker| ranks[**worker])
                    .expect("somebody can run");
            }
        }
        runnable[stream.below(runnable.len())]
    }

    /// `worker` says itself that others shall go first.
    pub(super) fn gives_way(&mut self, worker: usize) {
        if let Manner::Ranked { ranks, .. } = &mut self.manner {
            let lowest = ranks.iter().copied().min().unwrap_or(0);
            ranks[worker] = lowest.saturating_sub(1);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The first turns and interruptions of a run with three workers.
    fn beginning(seed: u64) -> Vec<(usize, bool)> {
        let mut schedule = Schedule::new(seed, 3);
        (0..100)
            .map(|_| (schedule.turn(&[0, 1, 2]), schedule.interrupts(0)))
            .collect()
    }

    #[test]
    fn a_seed_decides_everything_and_seeds_differ() {
        assert_eq!(beginning(7), beginning(7));
        let seeds = if cfg!(miri) { 10 } else { 200 };
        let runs: std::collections::HashSet<_> = (0..seeds).map(beginning).collect();
        assert_eq!(runs.len(), seeds as usize);
    }

    #[test]
    fn everybody_gets_a_turn_in_every_manner() {
        for seed in 0..if cfg!(miri) { 3 } else { 100 } {
            let mut schedule = Schedule::new(seed, 4);
            let mut seen = [false; 4];
            for _ in 0..2000 {
                seen[schedule.turn(&[0, 1, 2, 3])] = true;
            }
            assert_eq!(seen, [true; 4], "seed {seed}");
        }
    }

    #[test]
    fn some_runs_are_interrupted_at_every_point_and_some_hardly_ever() {
        let (points, seeds) = if cfg!(miri) { (100, 16) } else { (1024, 64) };
        let density = |seed| {
            let mut schedule = Schedule::new(seed, 4);
            (0..points).filter(|_| schedule.interrupts(0)).count()
        };
        let densities: Vec<_> = (0..seeds).map(density).collect();
        assert!(densities.contains(&points), "{densities:?}");
        let few = points / 25;
        assert!(densities.iter().any(|count| *count < few), "{densities:?}");
    }

    #[test]
    fn who_gives_way_comes_last_among_ranks() {
        for seed in 0..if cfg!(miri) { 6 } else { 50 } {
            let mut schedule = Schedule::new(seed, 2);
            if matches!(schedule.manner, Manner::Even) {
                continue;
            }
            let mut turns = 0;
            for _ in 0..100 {
                schedule.gives_way(0);
                turns += usize::from(schedule.turn(&[0, 1]) == 0);
            }
            assert!(turns < 60, "seed {seed}: {turns} of 100");
        }
    }
}
