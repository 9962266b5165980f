//! The supervisor at work.
//!
//! It waits for one thing after another: the end of a child, the moment of a restart, the wish that it stop. A
//! child's body tells of its own end through a channel, by a value that is dropped with it, and so on every way out, also if
//! it never ran. Each life has a number, so that the end of one that the supervisor has stopped itself is not taken for
//! the end of the next one.
//!
//! A child is started when its job was spawned *and* has begun: the pool alone would let the one spawned last run first. So
//! the supervisor waits for each, until it says that it has begun or its body is dropped, before it starts the next.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jobtree_pool::OnceLatch;
use jobtree_tree::{BoxError, Outcome};

use super::child::Described;
use super::error::TooManyRestarts;
use super::policy::{RestartPolicy, Strategy};
use super::{Restart, Supervisor};
use crate::actor::ActorEnd;
use crate::block::until_ready;
use crate::channel::{RecvTimeoutError, Sender};
use crate::current::checkpoint;
use crate::handle::JobHandle;
use crate::nursery::Nursery;
use crate::runtime;
use crate::timers::Timers;

/// What a supervisor is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The body of a child has ended, in the life with this number.
    Ended { child: usize, life: u64 },
    /// It shall stop.
    Stop,
}

/// Tells that a body has ended, when it is dropped.
struct TellsEnd {
    tell: Sender<Event>,
    /// Set when the child has begun.
    begun: Arc<OnceLatch>,
    child: usize,
    life: u64,
}

impl Drop for TellsEnd {
    fn drop(&mut self) {
        self.begun.set();
        let (child, life) = (self.child, self.life);
        // Past the costs of an operation: this may be in the middle of a panic. There is always room.
        let _ = self.tell.shared.try_send(Event::Ended { child, life });
    }
}

/// Where a child is.
enum State {
    Running {
        handle: JobHandle<()>,
        life: u64,
    },
    /// To be started then; `None` is later than the clock can count, so never.
    Waiting {
        until: Option<Instant>,
    },
    /// Ended for good.
    Done,
}

pub(super) struct Keeper<'scope, 'env> {
    nursery: &'scope Nursery<'scope, 'env>,
    supervisor: &'env Supervisor<'env>,
    timers: Timers,
    states: Vec<State>,
    lives: u64,
    /// When there was a restart, within the period.
    restarts: VecDeque<Instant>,
}

impl<'scope, 'env> Keeper<'scope, 'env> {
    pub(super) fn new(
        nursery: &'scope Nursery<'scope, 'env>,
        supervisor: &'env Supervisor<'env>,
    ) -> Keeper<'scope, 'env> {
        let timers = runtime::current().runtime.timers.clone();
        let now = timers.now();
        let waiting = || State::Waiting { until: Some(now) };
        Keeper {
            nursery,
            supervisor,
            timers,
            states: std::iter::repeat_with(waiting)
                .take(supervisor.children.len())
                .collect(),
            lives: 0,
            restarts: VecDeque::new(),
        }
    }

    /// Keeps the children until all have ended for good.
    pub(super) fn keep(mut self) -> Result<(), BoxError> {
        loop {
            checkpoint()?;
            self.start_due();
            if self.states.iter().all(|state| matches!(state, State::Done)) {
                return Ok(());
            }
            match self.supervisor.told.recv_timeout(self.time_to_next_start()) {
                Ok(Event::Ended { child, life }) => self.heard_of_end(child, life)?,
                Ok(Event::Stop) => {
                    self.stop_all_from(0);
                    return Ok(());
                }
                Err(RecvTimeoutError::TimedOut) => {}
                Err(error @ (RecvTimeoutError::Cancelled(_) | RecvTimeoutError::Closed)) => {
                    return Err(error.into());
                }
            }
        }
    }

    fn described(&self, child: usize) -> &'env Described<'env> {
        &self.supervisor.children[child]
    }

    /// Starts those whose time has come, in their order.
    fn start_due(&mut self) {
        let now = self.timers.now();
        for child in 0..self.states.len() {
            if matches!(self.states[child], State::Waiting { until: Some(until) } if until <= now) {
                self.start(child);
            }
        }
    }

    fn time_to_next_start(&self) -> Option<Duration> {
        let now = self.timers.now();
        let due = |state: &State| match state {
            State::Waiting { until } => until.map(|until| until.saturating_duration_since(now)),
            State::Running { .. } | State::Done => None,
        };
        self.states.iter().filter_map(due).min()
    }

    fn start(&mut self, child: usize) {
        self.lives += 1;
        let (described, life) = (self.described(child), self.lives);
        let begun = Arc::new(OnceLatch::new());
        let tells = TellsEnd {
            tell: self.supervisor.tell.clone(),
            begun: Arc::clone(&begun),
            child,
            life,
        };
        let spawner = self.nursery.job_options().label(described.name.clone());
        let handle = spawner.spawn(move || {
            let tells = tells;
            described.child.live(&|| tells.begun.set())
        });
        described.child.begun(handle.job());
        self.states[child] = State::Running { handle, life };
        begun.wait();
    }

    /// A body has ended; decides what follows.
    fn heard_of_end(&mut self, child: usize, ended: u64) -> Result<(), BoxError> {
        match &self.states[child] {
            State::Running { life, .. } if *life == ended => {}
            // The supervisor has stopped it itself.
            _ => return Ok(()),
        }
        let Some(outcome) = self.wait_for(child) else {
            return Ok(());
        };
        // If it ended because all shall end, it is not for us to say.
        checkpoint()?;
        let described = self.described(child);
        if !starts_again(described, &outcome) {
            described.child.done(ActorEnd::of(&outcome));
            return Ok(());
        }
        let restarts = self.count_restart();
        if restarts > self.supervisor.most_restarts {
            self.stop_all_from(0);
            described.child.done(ActorEnd::of(&outcome));
            return Err(Box::new(TooManyRestarts {
                child: described.name.clone().into_owned(),
                allowed: self.supervisor.most_restarts,
                period: self.supervisor.period,
                last: outcome.err(),
            }));
        }
        let backoff = self.supervisor.backoff;
        let pause = backoff.map_or(Duration::ZERO, |backoff| backoff.pause(restarts));
        if let Some(on_restart) = &self.supervisor.on_restart {
            on_restart(&Restart {
                child: &described.name,
                error: outcome.as_ref().err(),
                restarts,
                pause,
            });
        }
        self.restart_after(child, pause);
        Ok(())
    }

    /// Stops whom the end of `child` concerns, and has them and it started after a pause.
    fn restart_after(&mut self, child: usize, pause: Duration) {
        let concerned = match self.supervisor.strategy {
            Strategy::OneForOne => child..child + 1,
            Strategy::OneForAll => 0..self.states.len(),
            Strategy::RestForOne => child..self.states.len(),
        };
        let mut again = vec![child];
        for other in concerned.rev().filter(|other| *other != child) {
            match &self.states[other] {
                State::Done => {}
                State::Waiting { .. } => again.push(other),
                State::Running { .. } => {
                    if self.stop(other) {
                        again.push(other);
                    }
                }
            }
        }
        let until = self.timers.now().checked_add(pause);
        for child in again {
            self.states[child] = State::Waiting { until };
        }
    }

    /// Stops all that run, from the last one to number `first`.
    fn stop_all_from(&mut self, first: usize) {
        for child in (first..self.states.len()).rev() {
            if self.stop(child) {
                self.described(child).child.done(ActorEnd::Cancelled);
            }
            self.states[child] = State::Done;
        }
    }

    /// Cancels a child and waits for its end; `true` if it ended by that and may be started again, with the others.
    fn stop(&mut self, child: usize) -> bool {
        if let State::Running { handle, .. } = &self.states[child] {
            handle.cancel("its supervisor has stopped it");
        }
        let Some(outcome) = self.wait_for(child) else {
            return false;
        };
        let described = self.described(child);
        let has_completed = outcome.is_ok() && described.policy != RestartPolicy::Always;
        let again = described.policy != RestartPolicy::Never
            && !has_completed
            && described.child.can_go_on();
        if !again {
            described.child.done(ActorEnd::of(&outcome));
        }
        again
    }

    /// What comes of a child that runs. It is done, unless its state is changed again.
    fn wait_for(&mut self, child: usize) -> Option<Outcome<()>> {
        let state = std::mem::replace(&mut self.states[child], State::Done);
        let State::Running { handle, .. } = state else {
            self.states[child] = state;
            return None;
        };
        // Not `join`, which would return if the supervisor is cancelled: even then the end is worth waiting for.
        until_ready(pin!(handle.job().ended()), None);
        Some(handle.join())
    }

    /// Counts a restart; how many there were within the period.
    fn count_restart(&mut self) -> usize {
        let now = self.timers.now();
        self.restarts.push_back(now);
        let is_old = |at: &Instant| now.saturating_duration_since(*at) > self.supervisor.period;
        while self.restarts.front().is_some_and(is_old) {
            self.restarts.pop_front();
        }
        self.restarts.len()
    }
}

/// Whether a child that has ended by itself is started again.
fn starts_again(described: &Described<'_>, outcome: &Outcome<()>) -> bool {
    let wanted = match described.policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => outcome.as_ref().is_err_and(|error| !error.is_cancelled()),
        RestartPolicy::Never => false,
    };
    wanted && described.child.can_go_on()
}
