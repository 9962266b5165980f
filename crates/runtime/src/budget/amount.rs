//! Budgets as plain values: five counters and their arithmetic.

use std::fmt;

use jobtree_pool::raw::fuel::Turn;

/// One of the five things that a budget limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Counter {
    /// Operations of any kind.
    Ops,
    /// Bytes of memory.
    Memory,
    /// Jobs spawned that have not ended.
    Spawns,
    /// Operations on channels.
    ChannelOps,
    /// Calls of the system.
    Syscalls,
}

impl Counter {
    /// Whether it is a rate, which is refilled. The others are quotas: taken and given back.
    pub const fn is_rate(self) -> bool {
        matches!(self, Counter::Ops | Counter::ChannelOps | Counter::Syscalls)
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Counter::Ops => "operations",
            Counter::Memory => "bytes of memory",
            Counter::Spawns => "spawns",
            Counter::ChannelOps => "channel operations",
            Counter::Syscalls => "system calls",
        })
    }
}

/// How much a job may do: five counters. Also what something costs.
///
/// Operations, channel operations and system calls are *rates*: when one is used up, the job gives way to others, and its
/// [`Profile`](super::Profile) says how it comes by more. Memory and spawns are *quotas*: taken, and given back.
///
/// ```
/// use jobtree_runtime::budget::{Budget, Counter};
///
/// let mut budget = Budget { channel_ops: 1, ..Budget::CHILD };
/// assert_eq!(budget.try_take(Budget::CHANNEL_OP), Ok(()));
/// assert_eq!(budget.try_take(Budget::CHANNEL_OP), Err(Counter::ChannelOps));
/// assert_eq!(budget.ops, 9_999, "what fails takes nothing");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Operations of any kind.
    pub ops: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Jobs that it may have spawned at a time.
    pub spawns: u64,
    /// Operations on channels.
    pub channel_ops: u64,
    /// Calls of the system.
    pub syscalls: u64,
}

const MEGABYTE: u64 = 1 << 20;

/// As much as one likes: taking from it leaves as much.
const UNLIMITED: u64 = u64::MAX;

impl Budget {
    /// Nothing.
    pub const NONE: Budget = Budget {
        ops: 0,
        memory: 0,
        spawns: 0,
        channel_ops: 0,
        syscalls: 0,
    };

    /// As much as one likes of everything.
    pub const UNLIMITED: Budget = Budget {
        ops: UNLIMITED,
        memory: UNLIMITED,
        spawns: UNLIMITED,
        channel_ops: UNLIMITED,
        syscalls: UNLIMITED,
    };

    /// What a job has of whom nothing is asked but to let others run, too.
    pub const OPEN: Budget = Budget {
        ops: 100_000,
        ..Budget::UNLIMITED
    };

    /// What a spawned job has if nothing is said, where budgets are limited.
    pub const CHILD: Budget = Budget {
        ops: 10_000,
        memory: MEGABYTE,
        spawns: 0,
        channel_ops: 100,
        syscalls: 10,
    };

    /// What a scope or job directly under the root has in [`Profile::Service`](super::Profile::Service).
    pub const SERVICE: Budget = Budget {
        ops: 100_000,
        memory: 10 * MEGABYTE,
        spawns: 100,
        channel_ops: 1_000,
        syscalls: 100,
    };

    /// What a scope or job directly under the root has in [`Profile::Cluster`](super::Profile::Cluster).
    pub const CLUSTER: Budget = Budget {
        ops: 1_000_000,
        memory: 100 * MEGABYTE,
        spawns: 1_000,
        channel_ops: 10_000,
        syscalls: 1_000,
    };

    /// The cost of a plain operation.
    pub const OP: Budget = Budget {
        ops: 1,
        ..Budget::NONE
    };

    /// The cost of a spawn.
    pub const SPAWN: Budget = Budget {
        spawns: 1,
        ..Budget::OP
    };

    /// The cost of sending or receiving.
    pub const CHANNEL_OP: Budget = Budget {
        channel_ops: 1,
        ..Budget::OP
    };

    /// The cost of calling the system.
    pub const SYSCALL: Budget = Budget {
        syscalls: 1,
        ..Budget::OP
    };

    /// The cost of an allocation.
    pub const fn allocation(bytes: u64) -> Budget {
        Budget {
            memory: bytes,
            ..Budget::OP
        }
    }

    /// How much there is of one thing.
    pub const fn get(&self, counter: Counter) -> u64 {
        match counter {
            Counter::Ops => self.ops,
            Counter::Memory => self.memory,
            Counter::Spawns => self.spawns,
            Counter::ChannelOps => self.channel_ops,
            Counter::Syscalls => self.syscalls,
        }
    }

    /// The first of the rates, in order, of which nothing is left: the job has to give way.
    pub fn exhausted_rate(&self) -> Option<Counter> {
        [Counter::Ops, Counter::ChannelOps, Counter::Syscalls]
            .into_iter()
            .find(|counter| self.get(*counter) == 0)
    }

    /// Takes `cost`: all of it or nothing.
    ///
    /// # Errors
    /// What there is too little of; then nothing was taken.
    pub fn try_take(&mut self, cost: Budget) -> Result<(), Counter> {
        const ALL: [Counter; 5] = [
            Counter::Ops,
            Counter::Memory,
            Counter::Spawns,
            Counter::ChannelOps,
            Counter::Syscalls,
        ];
        let lacks = |counter: &Counter| self.get(*counter) < cost.get(*counter);
        match ALL.into_iter().find(lacks) {
            Some(lacking) => Err(lacking),
            None => {
                *self = self.combine(cost, taken_from);
                Ok(())
            }
        }
    }

    /// Adds `more`; what does not fit into a counter is lost.
    pub fn recharge(&mut self, more: Budget) {
        *self = self.combine(more, u64::saturating_add);
    }

    /// Not more than `limit` of anything.
    pub fn clamped_to(self, limit: Budget) -> Budget {
        self.combine(limit, u64::min)
    }

    /// Whether there is nothing at all.
    pub fn is_none(&self) -> bool {
        *self == Budget::NONE
    }

    /// Its rates as they are; none of the quotas.
    pub(super) fn rates(self) -> Budget {
        Budget {
            memory: 0,
            spawns: 0,
            ..self
        }
    }

    /// Its rates as a strand counts them.
    pub(super) fn turn(self) -> Turn {
        let narrow = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
        Turn {
            ops: narrow(self.ops),
            channel_ops: narrow(self.channel_ops),
            syscalls: narrow(self.syscalls),
        }
    }

    /// What a strand counts as rates.
    pub(super) fn of_turn(turn: Turn) -> Budget {
        Budget {
            ops: turn.ops.into(),
            channel_ops: turn.channel_ops.into(),
            syscalls: turn.syscalls.into(),
            ..Budget::NONE
        }
    }

    fn combine(self, other: Budget, each: impl Fn(u64, u64) -> u64) -> Budget {
        Budget {
            ops: each(self.ops, other.ops),
            memory: each(self.memory, other.memory),
            spawns: each(self.spawns, other.spawns),
            channel_ops: each(self.channel_ops, other.channel_ops),
            syscalls: each(self.syscalls, other.syscalls),
        }
    }
}

fn taken_from(left: u64, cost: u64) -> u64 {
    if left == UNLIMITED {
        UNLIMITED
    } else {
        left - cost
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Amount(u64);
        impl fmt::Display for Amount {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    UNLIMITED => f.write_str("unlimited"),
                    amount => amount.fmt(f),
                }
            }
        }
        write!(
            f,
            "{} operations, {} bytes, {} spawns, {} channel operations, {} system calls",
            Amount(self.ops),
            Amount(self.memory),
            Amount(self.spawns),
            Amount(self.channel_ops),
            Amount(self.syscalls),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decrement_is_all_or_nothing_for_each_counter() {
        for (counter, cost) in [
            (Counter::Ops, Budget::OP),
            (Counter::Memory, Budget::allocation(1)),
            (Counter::Spawns, Budget::SPAWN),
            (Counter::ChannelOps, Budget::CHANNEL_OP),
            (Counter::Syscalls, Budget::SYSCALL),
        ] {
            let mut budget = cost;
            assert_eq!(budget.try_take(cost), Ok(()));
            assert_eq!(budget, Budget::NONE);
            let mut one_short = Budget::SERVICE;
            match counter {
                Counter::Ops => one_short.ops = 0,
                Counter::Memory => one_short.memory = 0,
                Counter::Spawns => one_short.spawns = 0,
                Counter::ChannelOps => one_short.channel_ops = 0,
                Counter::Syscalls => one_short.syscalls = 0,
            }
            let before = one_short;
            assert_eq!(one_short.try_take(cost), Err(counter));
            assert_eq!(one_short, before);
        }
    }

    #[test]
    fn recharging_saturates_and_unlimited_stays_so() {
        let mut budget = Budget {
            ops: u64::MAX - 1,
            ..Budget::CHILD
        };
        budget.recharge(Budget::CHILD);
        assert_eq!(budget.ops, u64::MAX);
        assert_eq!(budget.memory, 2 * Budget::CHILD.memory);
        let mut unlimited = Budget::UNLIMITED;
        assert_eq!(unlimited.try_take(Budget::CLUSTER), Ok(()));
        assert_eq!(unlimited, Budget::UNLIMITED);
    }

    #[test]
    fn a_budget_is_out_when_any_rate_is() {
        assert_eq!(Budget::CHILD.exhausted_rate(), None, "no spawns is no rate");
        for (counter, budget) in [
            (
                Counter::Ops,
                Budget {
                    ops: 0,
                    ..Budget::CHILD
                },
            ),
            (
                Counter::ChannelOps,
                Budget {
                    channel_ops: 0,
                    ..Budget::CHILD
                },
            ),
            (
                Counter::Syscalls,
                Budget {
                    syscalls: 0,
                    ..Budget::CHILD
                },
            ),
        ] {
            assert_eq!(budget.exhausted_rate(), Some(counter));
            assert!(counter.is_rate());
        }
    }
}
