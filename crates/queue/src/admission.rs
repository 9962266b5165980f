//! Admission: may this start now? A pure question about a machine, an ask and what is in use.
//!
//! Asked in this order, and the first that fails is the reason that is given:
//!
//! 1. the machine was measured, is not in PANIC and has cooled down since: waived for what was submitted so alone;
//! 2. the quiet conditions (state, windows, streak) as far as the ask's [`Waiver`] leaves them;
//! 3. the pressure on resources that the ask is heavy on, tightened;
//! 4. caps on leases, capacity, the ramp.
//!
//! Capacity depends on the constraints too: a job that is heavy on a resource sees the capacity of a machine as busy
//! as that resource, tightened. What is in use is passed in; it is computed from live leases and reservations.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, Constraints, Decision, JobId, LeaseLimits, LeaseNumbers, QuietState,
};

use crate::block::{Block, Calm, name};
use crate::busy::{Reading, Resource};
use crate::capacity::capacity;
use crate::deadline::Waiver;
use crate::now::{Now, wall_before, wall_until};
use crate::policy::{AddonTerms, Policy};
use crate::quiet::{QuietMachine, QuietRecord, enter_bound, leave_bound};
use crate::ramp::Ramp;
use crate::signal_names::{self, HighSignal};
use crate::signals::{Freshness, HostSignals, Sample, Signals};

/// What is in use, computed from live leases and reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Units of the node.
    pub units: u32,
    /// Live leases and reservations of the node.
    pub leases: u32,
    /// Units of the addon that asks.
    pub addon_units: u32,
    /// Live leases and reservations of the addon that asks.
    pub addon_leases: u32,
}

/// Who asks for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Units.
    pub cost: u32,
    /// What it is heavy on.
    pub constraints: Constraints,
    /// Which quiet conditions it may start without.
    pub waiver: Waiver,
}

/// A machine as admission sees it at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The moment.
    pub now: Now,
    /// Busy, 0..=10; `stale_busy` when it was not measured.
    pub busy: f64,
    /// CPU of others alone, 0..=10.
    pub cpu: f64,
    /// Pressure on each resource, 0..=10.
    pub pressure: [f64; 4],
    /// The state; PANIC when it was not measured.
    pub state: QuietState,
    /// Since when.
    pub since: Timestamp,
    /// The age of the last sample, when it is too old.
    pub stale: Option<Duration>,
    /// How long the cool-down after a PANIC still lasts.
    pub cooling: Option<Duration>,
    /// Whether a window is open; yes when there are none.
    pub in_window: bool,
    /// When the next one opens.
    pub opens: Option<Timestamp>,
    /// How long QUIET has lasted.
    pub streak: Duration,
    /// Whether one job may start without quiet because it did not come for so long.
    pub allow_one: bool,
    /// The policy says that load does not matter: the numbers above are those of an idle machine.
    pub ignored: bool,
}

impl View {
    /// Returns what something with this waiver may start without now: the one job that is allowed when quiet never comes
    /// waits for no quiet.
    pub fn waiver(&self, own: Waiver) -> Waiver {
        match self.allow_one {
            true => own.max(Waiver::Normal),
            false => own,
        }
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What is in the way; none when it is approved.
    pub denied: Option<Block>,
    /// When it is worth asking again.
    pub retry_after: Option<Duration>,
    /// The caps that hold for the ask.
    pub limits: LeaseLimits,
    /// The numbers it was decided by.
    pub numbers: LeaseNumbers,
    /// The machine's state then.
    pub state: QuietState,
    /// Load did not matter.
    pub load_ignored: bool,
}

impl Verdict {
    /// Whether it may start.
    pub fn approved(&self) -> bool {
        self.denied.is_none()
    }

    /// Why, in words, with the numbers.
    pub fn reason(&self) -> String {
        let LeaseNumbers {
            used,
            requested,
            capacity,
            busy,
        } = &self.numbers;
        match &self.denied {
            Some(block) => block.to_string(),
            None if self.load_ignored => {
                format!(
                    "Admitted whatever the load (busy.ignore): used={used}, requested={requested}, capacity={capacity}"
                )
            }
            None => {
                let state = name(self.state);
                format!(
                    "Admitted in {state}: busy={busy:.1}, used={used}, requested={requested}, capacity={capacity}"
                )
            }
        }
    }

    /// As an entry of the log of decisions.
    pub fn to_log(&self, at: Timestamp, job: Option<JobId>, addon: AddonId) -> Decision {
        Decision {
            at,
            job_id: job,
            addon_id: addon,
            approved: self.approved(),
            code: self
                .denied
                .as_ref()
                .map_or("admitted", Block::code)
                .to_owned(),
            reason: self.reason(),
            retry_after_sec: self.retry_after.map(whole_seconds),
            numbers: self.numbers.clone(),
        }
    }
}

fn whole_seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}

/// The machine's state over time, under a policy.
#[derive(Clone, Debug)]
pub struct Admission {
    policy: Arc<Policy>,
    signals: Signals,
    reading: Option<Reading>,
    quiet: QuietMachine,
    ramp: Ramp,
    started: Duration,
}

impl Admission {
    /// A machine that was not measured yet.
    pub fn new(policy: Arc<Policy>, now: Now) -> Admission {
        Admission {
            policy,
            signals: Signals::default(),
            reading: None,
            quiet: QuietMachine::new(now),
            ramp: Ramp::default(),
            started: now.mono,
        }
    }

    /// The policy in force.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Replaces the policy. States and streaks go on; the next sample is judged by the new one.
    pub fn set_policy(&mut self, policy: Arc<Policy>, now: Now) {
        self.policy = policy;
        self.read(now);
    }

    /// Takes a sample, measured with `used` units in use. Returns the state before when it changed.
    pub fn sample(&mut self, sample: Sample, used: u32, now: Now) -> Option<QuietState> {
        self.tick(now);
        if !self.signals.measure(sample, now.mono) {
            return None;
        }
        self.ramp.sample(used, now.mono);
        self.read(now);
        let busy = self.reading.as_ref().map(|reading| reading.busy)?;
        let before = self.quiet.observe(&self.policy, busy, now);
        self.tick(now);
        before
    }

    /// Takes what the host program says of itself; it counts from the next sample on.
    pub fn push(&mut self, signals: HostSignals, now: Now) {
        self.signals.push(signals, now.mono);
    }

    /// Lets time pass: counts how long jobs that need quiet have not been able to start.
    pub fn tick(&mut self, now: Now) {
        let view = self.view(now);
        let open = self
            .gate(&view, Waiver::None, Constraints::default())
            .is_none();
        self.quiet.count_starved(open, view.in_window, now);
    }

    fn read(&mut self, now: Now) {
        self.reading = match self.signals.freshness(&self.policy, now.mono) {
            Freshness::Fresh(sample, host) => Some(Reading::of(&self.policy, &sample, &host)),
            Freshness::Stale(_) => None,
        };
    }

    /// The last reading, with its parts.
    pub fn reading(&self) -> Option<&Reading> {
        self.reading.as_ref()
    }

    /// States and streaks.
    pub fn quiet(&self) -> &QuietMachine {
        &self.quiet
    }

    /// Goes on with the states that were kept before a restart.
    pub fn restore(&mut self, record: &QuietRecord, now: Now) {
        let policy = Arc::clone(&self.policy);
        self.quiet.restore(record, &policy, now);
    }

    /// Returns a change of state in words, with the signals that are above the bound of the better of both.
    pub fn change_of_state(&self, from: QuietState, to: QuietState) -> String {
        let bound = enter_bound(&self.policy.quiet, from.min(to));
        let high = signal_names::list(&self.high(bound));
        let (from, to) = (name(from), name(to));
        match high.is_empty() {
            true => format!("{to}, after {from}"),
            false => format!("{to}, after {from}: {high}"),
        }
    }

    /// The one job was allowed to start without quiet; returns what [`Self::take_back_one`] needs.
    pub fn allowed_one(&mut self) -> Duration {
        self.quiet.allowed_one()
    }

    /// The one job did not start after all.
    pub fn take_back_one(&mut self, starved: Duration) {
        self.quiet.take_back(starved);
    }

    /// What was measured and pushed last.
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// The machine at this moment.
    pub fn view(&self, now: Now) -> View {
        let policy = &*self.policy;
        let fresh = self.signals.freshness(policy, now.mono);
        let stale = match fresh {
            Freshness::Stale(age) => Some(
                age.min(
                    now.mono
                        .saturating_sub(self.started)
                        .max(policy.busy.stale_after),
                ),
            ),
            Freshness::Fresh(..) => None,
        };
        let reading = self.reading.as_ref().filter(|_| stale.is_none());
        let windows = &policy.quiet.windows;
        let in_window =
            windows.is_empty() || windows.iter().any(|window| window.contains(now.wall));
        let opens = if in_window {
            None
        } else {
            windows
                .iter()
                .filter_map(|window| window.next_open(now.wall))
                .min()
        };
        let limit = policy.quiet.allow_one_after;
        if policy.busy.ignore {
            return View {
                now,
                busy: 0.0,
                cpu: 0.0,
                pressure: [0.0; 4],
                state: QuietState::Quiet,
                since: wall_before(now.wall, now.mono.saturating_sub(self.started)),
                stale: None,
                cooling: None,
                in_window,
                opens,
                streak: now.mono.saturating_sub(self.started),
                allow_one: !limit.is_zero() && in_window && self.quiet.starved() >= limit,
                ignored: true,
            };
        }
        View {
            now,
            ignored: false,
            busy: reading.map_or(policy.busy.stale_busy, |reading| reading.busy),
            cpu: reading.map_or(policy.busy.stale_busy, |reading| reading.cpu),
            pressure: reading.map_or([policy.busy.stale_busy; 4], |reading| reading.pressure),
            state: if reading.is_some() {
                self.quiet.state()
            } else {
                QuietState::Panic
            },
            since: self.quiet.since().wall,
            stale: if reading.is_some() {
                None
            } else {
                Some(stale.unwrap_or(policy.busy.stale_after))
            },
            cooling: self
                .quiet
                .cooling_until(&policy.quiet, now)
                .map(|until| until - now.mono),
            in_window,
            opens,
            streak: if reading.is_some() {
                self.quiet.streak(now)
            } else {
                Duration::ZERO
            },
            allow_one: !limit.is_zero() && in_window && self.quiet.starved() >= limit,
        }
    }

    /// What is in the way of everything with this waiver and these constraints, whatever it costs: points 1 to 3.
    pub fn gate(&self, view: &View, waiver: Waiver, constraints: Constraints) -> Option<Block> {
        self.machine(view, waiver)
            .or_else(|| self.quiet_conditions(view, waiver).into_iter().next())
            .or_else(|| self.pressures(view, waiver, constraints).into_iter().next())
    }

    /// Point 1: PANIC, its cool-down, and missing samples.
    pub fn machine(&self, view: &View, waiver: Waiver) -> Option<Block> {
        let quiet = &self.policy.quiet;
        if waiver >= Waiver::Load {
            return None;
        }
        if let Some(age) = view.stale {
            return Some(Block::Stale {
                age,
                limit: self.policy.busy.stale_after,
            });
        }
        if view.state == QuietState::Panic {
            return Some(Block::Panic {
                busy: view.busy,
                bound: quiet.busy_max,
                high: self.high(quiet.busy_max),
                calm: Calm {
                    lasted: self.quiet.calm_for(QuietState::Busy, view.now),
                    needed: quiet.calm_after,
                },
                cooldown: match waiver {
                    Waiver::Cooldown => Duration::ZERO,
                    _ => quiet.panic_cooldown,
                },
            });
        }
        let cooling = view.cooling.filter(|_| waiver < Waiver::Cooldown);
        cooling.map(|left| Block::CoolingDown {
            left,
            whole: quiet.panic_cooldown,
        })
    }

    /// Point 2: every quiet condition that fails.
    pub fn quiet_conditions(&self, view: &View, waiver: Waiver) -> Vec<Block> {
        let quiet = &self.policy.quiet;
        let mut blocks = Vec::new();
        let needs = worst_state(waiver);
        if view.state > needs {
            let bound = enter_bound(quiet, needs);
            let needed = match needs {
                QuietState::Quiet => quiet.enter_after,
                _ => quiet.calm_after,
            };
            blocks.push(Block::NotQuiet {
                state: view.state,
                busy: view.busy,
                needs,
                bound,
                high: self.high(bound),
                calm: Calm {
                    lasted: self.quiet.calm_for(needs, view.now),
                    needed,
                },
            });
        }
        if waiver < Waiver::Window && !view.in_window {
            blocks.push(Block::OutsideWindow { opens: view.opens });
        }
        if waiver < Waiver::Streak && view.streak < quiet.min_streak {
            blocks.push(Block::StreakTooShort {
                streak: view.streak,
                needed: quiet.min_streak,
            });
        }
        blocks
    }

    /// Point 3: every resource whose pressure is too high.
    pub fn pressures(&self, view: &View, waiver: Waiver, constraints: Constraints) -> Vec<Block> {
        if waiver >= Waiver::Load {
            return Vec::new();
        }
        let bound = leave_bound(&self.policy.quiet, worst_state(waiver));
        let heavy = heavy_on(constraints);
        let levels = heavy.map(|resource| (resource, self.tightened(view, resource)));
        let over = levels.filter(|&(_, level)| level > bound);
        over.map(|(resource, level)| Block::Pressure {
            resource,
            level,
            bound,
        })
        .collect()
    }

    /// The signals that are above a level.
    fn high(&self, level: f64) -> Vec<HighSignal> {
        self.reading
            .as_ref()
            .map_or_else(Vec::new, |reading| reading.above(level))
    }

    fn tightened(&self, view: &View, resource: Resource) -> f64 {
        (view.pressure[resource as usize] * self.policy.busy.tighten).min(10.0)
    }

    /// Units there are for jobs with these constraints.
    pub fn capacity(&self, view: &View, constraints: Constraints) -> u32 {
        self.capacity_for(view, constraints, Waiver::None)
    }

    /// Units there are for jobs with these constraints. What ignores the load has those of an idle machine.
    pub fn capacity_for(&self, view: &View, constraints: Constraints, waiver: Waiver) -> u32 {
        if waiver >= Waiver::Load {
            return capacity(&self.policy.capacity, 0.0);
        }
        let heavy = heavy_on(constraints).map(|resource| self.tightened(view, resource));
        let busy = heavy.fold(view.busy.max(view.cpu), f64::max);
        capacity(&self.policy.capacity, busy)
    }

    /// Units that the ramp still lets be added; none when any one job may start.
    pub fn ramp_left(&self, used: u32) -> Option<u32> {
        if self.policy.busy.ignore {
            // There need not be any samples, between which it could be counted.
            return None;
        }
        self.ramp.left(&self.policy.ramp, used)
    }

    /// Point 4: everything that does not fit, beside `terms` of the addon.
    pub fn room(&self, view: &View, ask: &Ask, usage: &Usage, terms: &AddonTerms) -> Vec<Block> {
        let mut blocks = Vec::new();
        let (used, requested) = (usage.units, ask.cost);
        let limit = self.policy.caps.leases;
        if usage.leases >= limit {
            blocks.push(Block::Leases {
                active: usage.leases,
                limit,
            });
        }
        if terms.leases < limit && usage.addon_leases >= terms.leases {
            blocks.push(Block::AddonLeases {
                active: usage.addon_leases,
                limit: terms.leases,
            });
        }
        let capacity = self.capacity_for(view, ask.constraints, ask.waiver);
        if used + requested > capacity {
            blocks.push(Block::Capacity {
                used,
                requested,
                capacity,
            });
        }
        if terms.units < self.policy.capacity.units && usage.addon_units + requested > terms.units {
            blocks.push(Block::AddonUnits {
                used: usage.addon_units,
                requested,
                limit: terms.units,
            });
        }
        if self.ramp_left(used).is_some_and(|left| requested > left) {
            let (added, limit) = (self.ramp.added(used), self.policy.ramp.units_per_sample);
            blocks.push(Block::Ramp {
                added,
                requested,
                limit,
            });
        }
        blocks
    }

    /// May it start now? With `view.allow_one` the quiet conditions are waived: whoever grants it says so with
    /// [`Self::allowed_one`].
    pub fn decide(&self, addon: &str, ask: &Ask, usage: &Usage, now: Now) -> Verdict {
        let view = self.view(now);
        let terms = self.policy.addon(addon);
        let waiver = view.waiver(ask.waiver);
        let denied = (terms.paused.then_some(Block::AddonPaused))
            .or_else(|| self.gate(&view, waiver, ask.constraints))
            .or_else(|| self.room(&view, ask, usage, &terms).into_iter().next());
        self.verdict(denied, &view, ask, usage, &terms)
    }

    /// The caps that hold for an addon with these terms.
    pub fn limits(&self, terms: &AddonTerms) -> LeaseLimits {
        let policy = &*self.policy;
        LeaseLimits {
            ttl_sec: whole_seconds(policy.dispatch.lease_ttl),
            max_active_leases: Some(policy.caps.leases),
            max_active_leases_per_addon: Some(terms.leases),
            ..LeaseLimits::default()
        }
    }

    /// Dresses a decision with its numbers.
    pub fn verdict(
        &self,
        denied: Option<Block>,
        view: &View,
        ask: &Ask,
        usage: &Usage,
        terms: &AddonTerms,
    ) -> Verdict {
        Verdict {
            retry_after: denied.as_ref().map(|block| self.retry_after(block, view)),
            denied,
            limits: self.limits(terms),
            numbers: LeaseNumbers {
                used: usage.units,
                requested: ask.cost,
                capacity: self.capacity_for(view, ask.constraints, ask.waiver),
                busy: view.busy,
            },
            state: view.state,
            load_ignored: view.ignored,
        }
    }

    /// When the block can be gone at the earliest, or when it is worth looking again.
    fn retry_after(&self, block: &Block, view: &View) -> Duration {
        let policy = &*self.policy;
        let again = policy.dispatch.tick;
        match *block {
            Block::Panic { .. } => policy.quiet.calm_after + policy.quiet.panic_cooldown,
            Block::CoolingDown { left, .. } => left,
            Block::NotQuiet {
                needs: QuietState::Quiet,
                ..
            } => policy.quiet.enter_after.max(again),
            Block::NotQuiet { .. } => policy.quiet.calm_after.max(again),
            Block::OutsideWindow { opens: Some(at) }
            | Block::NotYet { at }
            | Block::Retry { at, .. } => wall_until(view.now.wall, at),
            Block::StreakTooShort { streak, needed } => needed.saturating_sub(streak),
            Block::Held { until, .. } => until.saturating_sub(view.now.mono).min(again),
            _ => again,
        }
    }

    /// When something of this can change without an event: samples grow stale, a cool-down or a streak is over, a
    /// window opens or closes, one job is allowed. As time from now on.
    pub fn next_change(&self, now: Now) -> Option<Duration> {
        let (policy, view) = (&*self.policy, self.view(now));
        let until_wall = |at: Timestamp| wall_until(now.wall, at);
        let stale = self
            .signals
            .stale_at(policy)
            .map(|at| at.saturating_sub(now.mono))
            .filter(|_| !view.ignored);
        let streak = policy
            .quiet
            .min_streak
            .checked_sub(view.streak)
            .filter(|_| view.state == QuietState::Quiet);
        let closes = policy
            .quiet
            .windows
            .iter()
            .filter_map(|window| window.next_close(now.wall))
            .min();
        let limit = policy.quiet.allow_one_after;
        let one = limit
            .checked_sub(self.quiet.starved())
            .filter(|_| !limit.is_zero() && view.in_window);
        [
            stale,
            view.cooling,
            streak,
            view.opens.map(until_wall),
            closes.map(until_wall),
            one,
        ]
        .into_iter()
        .flatten()
        .filter(|wait| !wait.is_zero())
        .min()
    }
}

/// The worst state in which something with this waiver starts.
pub(crate) fn worst_state(waiver: Waiver) -> QuietState {
    match waiver {
        Waiver::None | Waiver::Streak | Waiver::Window => QuietState::Quiet,
        Waiver::Quiet => QuietState::Normal,
        Waiver::Normal | Waiver::Cooldown => QuietState::Busy,
        Waiver::Load => QuietState::Panic,
    }
}

fn heavy_on(constraints: Constraints) -> impl Iterator<Item = Resource> {
    let Constraints {
        cpu_heavy,
        disk_write_heavy,
        network_heavy,
        memory_heavy,
    } = constraints;
    let heavy = [cpu_heavy, disk_write_heavy, network_heavy, memory_heavy];
    Resource::ALL
        .into_iter()
        .zip(heavy)
        .filter_map(|(resource, heavy)| heavy.then_some(resource))
}
