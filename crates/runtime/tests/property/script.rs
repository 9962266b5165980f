//! Random programs: the next step, chosen from what the model says is possible.

use std::collections::VecDeque;

use crate::model::Awaited;
use crate::program::{Ending, How, Op, ScopeKind, Step, Why};
use crate::told::Id;
use crate::world::{Doing, World};

/// SplitMix64: the same seed, the same program.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len())].clone())
    }
}

/// Jobs and scopes in a program at most.
const MOST_JOBS: usize = 40;
const MOST_DETACHED: usize = 4;
const MOST_DEPTH: usize = 5;
/// Bodies that wait for other jobs at the same time; the model looks at every order in which they go on.
const MOST_JOINS: usize = 3;

/// Makes up a program while it runs.
pub struct Script {
    random: Random,
    /// What comes first, as it is.
    given: VecDeque<Step>,
    steps_left: usize,
    next_job: Id,
    next_number: u32,
    detached: usize,
}

impl Script {
    pub fn new(seed: u64) -> Script {
        let mut random = Random::new(seed);
        Script {
            steps_left: 5 + random.below(26),
            random,
            given: VecDeque::new(),
            next_job: 0,
            next_number: 0,
            detached: 0,
        }
    }

    /// A program that is given, with a random end.
    pub fn given(steps: Vec<Step>, seed: u64) -> Script {
        Script {
            given: steps.into(),
            steps_left: 0,
            ..Script::new(seed)
        }
    }

    /// The next step; `None` when all bodies have returned.
    pub fn next(&mut self, world: &World) -> Option<Step> {
        if let Some(step) = self.given.pop_front() {
            return Some(step);
        }
        if self.steps_left == 0 {
            return self.wind_up(world).map(|op| vec![op]);
        }
        self.steps_left -= 1;
        let first = self.op(world);
        if self.random.one_in(3) {
            for _ in 0..4 {
                // A job that the first one makes is not there yet, so the second one cannot name it.
                let second = self.op(world);
                if may_race(world, &first, &second) {
                    return Some(vec![first, second]);
                }
            }
        }
        Some(vec![first])
    }

    fn op(&mut self, world: &World) -> Op {
        loop {
            if let Some(op) = self.try_op(world) {
                return op;
            }
        }
    }

    fn try_op(&mut self, world: &World) -> Option<Op> {
        let listening: Vec<Id> = listening(world).collect();
        if listening.is_empty() {
            return Some(self.detach_or_cancel(world));
        }
        let strand = self.random.pick(&listening)?;
        let waiters: Vec<usize> = (0..world.tree.waiters.len())
            .filter(|waiter| world.tree.waiters[*waiter].is_registered)
            .collect();
        match self.random.below(32) {
            0 => self.may_detach().then(|| Op::Detach {
                child: self.new_detached(),
            }),
            1 => self.may_detach().then(|| Op::DetachBy {
                strand,
                child: self.new_detached(),
            }),
            2..9 => self.spawn(world, strand),
            9..14 => self.open(world, strand),
            14..17 => self.join(world, strand),
            17 => Some(Op::Check { strand }),
            18..23 => Some(self.leave(world, strand)),
            23 => {
                let job = self.live_job(world)?;
                let why = self.why();
                Some(Op::CancelBy { strand, job, why })
            }
            24..26 => Some(Op::Cancel {
                job: self.live_job(world)?,
                why: self.why(),
            }),
            26..29 => self.wait(world),
            29 => Some(Op::Renew {
                waiter: self.random.pick(&awaiting_ends(world, &waiters))?,
            }),
            30 => Some(Op::StopWaiting {
                waiter: self.random.pick(&waiters)?,
            }),
            _ => Some(Op::DropHandle {
                job: self.handle(world)?,
            }),
        }
    }

    fn spawn(&mut self, world: &World, strand: Id) -> Option<Op> {
        world.strand(strand).top().nursery?;
        let child = self.new_job()?;
        let how = self.random.pick(&[
            How::Plain,
            How::Plain,
            How::Plain,
            How::Supervisor,
            How::Limited,
            How::Launched,
        ])?;
        let cancels = how != How::Launched && self.random.one_in(6);
        Some(Op::Spawn {
            strand,
            child,
            how,
            then_cancel: cancels.then(|| self.why()),
        })
    }

    fn open(&mut self, world: &World, strand: Id) -> Option<Op> {
        let frames = world.strand(strand).frames.len();
        if frames > MOST_DEPTH {
            return None;
        }
        let kind = self.random.pick(&[
            ScopeKind::Nursery,
            ScopeKind::Nursery,
            ScopeKind::Nursery,
            ScopeKind::Supervisor,
            ScopeKind::Shield,
            ScopeKind::Limit,
            ScopeKind::Local,
        ])?;
        Some(Op::Open {
            strand,
            scope: self.new_job()?,
            kind,
        })
    }

    fn join(&mut self, world: &World, strand: Id) -> Option<Op> {
        let joining = |job: &Id| {
            let strand = world.strands[*job].as_ref();
            strand.is_some_and(|strand| matches!(strand.doing, Doing::Joins { .. }))
        };
        if (0..world.strands.len()).filter(joining).count() >= MOST_JOINS {
            return None;
        }
        let target = self.handle(world).filter(|target| *target != strand)?;
        Some(Op::Join {
            strand,
            target,
            or_return: self.random.one_in(2),
        })
    }

    fn leave(&mut self, world: &World, strand: Id) -> Op {
        let holds = world.strand(strand).top().held.is_some();
        let is_cancelled = world.tree.is_cancelled(world.strand(strand).top().job);
        let number = self.new_number();
        match self.random.below(8) {
            0 | 1 => Op::Return {
                strand,
                ending: Ending::Error(number),
            },
            2 => Op::Return {
                strand,
                ending: Ending::Panic(number),
            },
            3..6 if holds => Op::Return {
                strand,
                ending: Ending::Held {
                    layered: self.random.one_in(2),
                },
            },
            3..6 if is_cancelled => Op::Check { strand },
            _ => Op::Return {
                strand,
                ending: Ending::Value,
            },
        }
    }

    fn wait(&mut self, world: &World) -> Option<Op> {
        let waiter = world.tree.waiters.len();
        let awaited = self.random.pick(&[
            Awaited::End,
            Awaited::End,
            Awaited::Outcome,
            Awaited::Cancellation,
        ])?;
        let job = match awaited {
            Awaited::Outcome => self.handle(world)?,
            Awaited::End | Awaited::Cancellation => self.random.pick(&known(world))?,
        };
        Some(Op::Wait {
            waiter,
            job,
            awaited,
        })
    }

    fn why(&mut self) -> Why {
        let said = Why::Said(self.new_number());
        let whys = [
            said,
            said,
            Why::Unsaid,
            Why::Timeout,
            Why::Timeout,
            Why::Shutdown,
        ];
        whys[self.random.below(whys.len())]
    }

    fn live_job(&mut self, world: &World) -> Option<Id> {
        let mut live = known(world);
        live.retain(|job| !world.tree.has_ended(*job));
        self.random.pick(&live)
    }

    fn handle(&mut self, world: &World) -> Option<Id> {
        let handles: Vec<Id> = (0..world.handles.len())
            .filter(|job| world.handles[*job])
            .collect();
        self.random.pick(&handles)
    }

    fn new_job(&mut self) -> Option<Id> {
        (self.next_job < MOST_JOBS).then(|| {
            self.next_job += 1;
            self.next_job - 1
        })
    }

    fn may_detach(&self) -> bool {
        self.detached < MOST_DETACHED && self.next_job < MOST_JOBS
    }

    fn new_detached(&mut self) -> Id {
        self.detached += 1;
        self.next_job += 1;
        self.next_job - 1
    }

    fn new_number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }

    /// When no body listens: all have returned, or wait for each other.
    fn detach_or_cancel(&mut self, world: &World) -> Op {
        match self.live_job(world) {
            Some(job) if !self.may_detach() || self.random.one_in(3) => Op::Cancel {
                job,
                why: self.why(),
            },
            _ => Op::Detach {
                child: self.new_detached(),
            },
        }
    }

    /// Lets one body after the other leave what it is in.
    fn wind_up(&mut self, world: &World) -> Option<Op> {
        let listening: Vec<Id> = listening(world).collect();
        if let Some(strand) = self.random.pick(&listening) {
            return Some(self.leave(world, strand));
        }
        // Those that are left wait for each other: only a cancellation ends that.
        let strands = world.strands.iter().flatten();
        let joining: Vec<Id> = strands
            .filter(|strand| matches!(strand.doing, Doing::Joins { .. }))
            .map(|strand| strand.top().job)
            .collect();
        let job = self.random.pick(&joining)?;
        let why = self.why();
        Some(Op::Cancel { job, why })
    }
}

fn listening(world: &World) -> impl Iterator<Item = Id> {
    let listens = |job: &Id| {
        let strand = world.strands[*job].as_ref();
        strand.is_some_and(|strand| strand.doing == Doing::Listens)
    };
    (0..world.strands.len()).filter(listens)
}

fn known(world: &World) -> Vec<Id> {
    (0..world.known.len())
        .filter(|job| world.known[*job])
        .collect()
}

fn awaiting_ends(world: &World, waiters: &[usize]) -> Vec<usize> {
    let mut waiters = waiters.to_vec();
    waiters.retain(|waiter| world.tree.waiters[*waiter].awaited != Awaited::Cancellation);
    waiters
}

/// Whether two operations can begin at the same time: by different bodies, or one of them from outside; on different
/// handles; and with an effect that is certain in either order.
fn may_race(world: &World, first: &Op, second: &Op) -> bool {
    let different_bodies = match (first.strand(), second.strand()) {
        (None, None) => false,
        (one, other) => one != other,
    };
    let same_handle =
        first.takes_handle().is_some() && first.takes_handle() == second.takes_handle();
    // A handle that is polled at the very moment of the end gives up its wait, and may or may not be woken for it.
    let renews_handle = |op: &Op| match op {
        Op::Renew { waiter } => world.tree.waiters[*waiter].awaited == Awaited::Outcome,
        _ => false,
    };
    different_bodies && !same_handle && !renews_handle(first) && !renews_handle(second)
}
