//! What the event ring says of a whole program: every job made once and ended once, parents after children.

use std::collections::HashMap;

use jobtree_runtime::{Event, EventKind, JobId, JobState, Recorded};

use crate::told::Numbers;
use crate::world::World;

/// What the events say of one job.
#[derive(Default)]
struct Life {
    parent: Option<JobId>,
    creations: usize,
    requests: usize,
    /// Where among all events, and how.
    ends: Vec<(u64, JobState)>,
    wrong_states: Vec<JobState>,
    registered: usize,
    woken: usize,
}

/// What the events say of all jobs.
#[derive(Default)]
pub struct Lives {
    lives: HashMap<JobId, Life>,
    lost: u64,
}

impl Lives {
    pub fn add(&mut self, recorded: &Recorded) {
        self.lost += recorded.lost;
        for event in &recorded.events {
            self.add_event(event);
        }
    }

    fn add_event(&mut self, event: &Event) {
        let life = self.lives.entry(event.job).or_default();
        match event.kind {
            EventKind::Create { parent } => {
                life.creations += 1;
                life.parent = parent;
            }
            EventKind::CancelRequest { .. } => life.requests += 1,
            EventKind::Finalize { state } => life.ends.push((event.sequence, state)),
            EventKind::State { to } if to.is_terminal() => life.wrong_states.push(to),
            EventKind::WaitRegister => life.registered += 1,
            EventKind::WaitWake => life.woken += 1,
            _ => {}
        }
    }

    /// How many jobs have ended.
    pub fn ended(&self) -> u64 {
        let ended = self.lives.values().filter(|life| !life.ends.is_empty());
        ended.count() as u64
    }

    /// # Errors
    /// With a job whose events do not fit.
    pub fn check(&self, numbers: &Numbers, world: &World) -> Result<(), String> {
        if self.lost > 0 {
            return Err(format!("{} events were lost", self.lost));
        }
        if self.ended() != world.tree.totals.created {
            return Err(format!(
                "by the events {} jobs have ended, but {} were made",
                self.ended(),
                world.tree.totals.created
            ));
        }
        // The root has no creation: it is older than the program.
        let lives = self.lives.iter().filter(|(_, life)| life.creations > 0);
        for (job, life) in lives {
            let number = numbers.of(*job);
            self.check_life(life, world.tree.jobs.get(number).and_then(|job| job.end))
                .map_err(|what| format!("events of job {number} ({job}): {what}"))?;
        }
        Ok(())
    }

    fn check_life(&self, life: &Life, expected: Option<JobState>) -> Result<(), String> {
        let [(place, state)] = life.ends[..] else {
            return Err(format!("it ended {} times", life.ends.len()));
        };
        if expected.is_some_and(|expected| expected != state) {
            return Err(format!(
                "it ended as {state}, but as {expected:?} in the model"
            ));
        }
        if life.creations != 1 || life.requests > 1 || life.woken > life.registered {
            return Err(format!(
                "made {} times, asked to end {} times, {} of {} waiters woken",
                life.creations, life.requests, life.woken, life.registered
            ));
        }
        if !life.wrong_states.is_empty() {
            return Err(format!("{:?} without an end", life.wrong_states));
        }
        let parent = life.parent.and_then(|parent| self.lives.get(&parent));
        if let Some(&(parent_place, _)) = parent.and_then(|parent| parent.ends.first())
            && parent_place < place
        {
            return Err("it ended after its parent".to_owned());
        }
        Ok(())
    }
}
