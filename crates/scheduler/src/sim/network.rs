//! What goes between schedulers, their store and whoever calls it: it takes time, and gets lost.

use std::task::{Context, Poll, Waker};

use jobtree_protocol::JobId;
use jobtree_queue::transitions::TransitionError;
use jobtree_store::StoreError;

use super::Mistake;
use super::check::Broken;
use super::disk::{Fate, Served};
use super::sim_event::{Calling, From, Out, SimEvent};
use super::worker::Doing;
use super::world::World;
use crate::core::Input;
use crate::error::is_refusal;

impl World {
    pub(super) fn serve_soon(&mut self, node: usize) {
        let life = self.nodes[node].life;
        let delay = self.millis(1, 25);
        self.later(delay, SimEvent::Serve(node, life));
    }

    /// The store does one of the things that were asked of it.
    pub(super) fn serve(&mut self, node: usize, life: u64) -> Result<(), Broken> {
        let waiting = self.nodes[node].port.len();
        if self.nodes[node].life != life || waiting == 0 {
            return Ok(());
        }
        let faults = self.scenario.faults;
        if self.fault(faults.store_stalls) {
            let stall = self.millis(2_000, 16_000);
            self.nodes[node].stalled_until = self.time + stall;
            self.served_waits.disturbed(self.time + stall);
            self.report.stalls += 1;
        }
        let stalled_until = self.nodes[node].stalled_until;
        if stalled_until > self.time {
            self.at(stalled_until, SimEvent::Serve(node, life));
            return Ok(());
        }
        let fate = if self.fault(faults.store_fails) {
            Fate::Fails
        } else if self.fault(faults.answer_lost_in_store) {
            Fate::DoneAndLost
        } else {
            Fate::Done
        };
        if fate != Fate::Done {
            self.report.store_failures += 1;
            self.served_waits.disturbed(self.time);
        }
        // Readers are apart from the writer, and connections from each other: not always the first.
        let place = self.rng.below(waiting.min(3) as u64) as usize;
        let Served { written, settings } = self.nodes[node].port.serve(place, fate);
        self.shadow.take(&written, self.database_time())?;
        self.claim_answers.committed(&written, self.time);
        let mut traffic = std::mem::take(&mut self.report.traffic);
        traffic.committed(&written, self.time, |job| self.could_start(job));
        self.report.traffic = traffic;
        self.take_settings(&settings)?;
        self.progressed |= !written.is_empty() || !settings.is_empty();
        self.check_ends(&written)?;
        self.check_terms(&written)?;
        self.follow_leases(&written)?;
        if !written.is_empty() {
            self.touched.fill(true);
            self.commits += 1;
            let synced = !self.scenario.has(Mistake::AnswersEarly);
            if synced || self.commits.is_multiple_of(16) {
                self.sync();
            }
            self.hint(node, &written);
        }
        for (op, answer) in self.nodes[node].answers() {
            let delay = self.millis(0, 10);
            let answer = Box::new(answer);
            self.later(delay, SimEvent::Answer(node, life, op, answer));
        }
        self.collect_calls()?;
        if self.nodes[node].port.len() > 0 {
            self.serve_soon(node);
        }
        if self.nodes[node].has_news() {
            // The engine is woken by news.
            self.nodes[node].alarm += 1;
            let alarm = self.nodes[node].alarm;
            let delay = self.millis(0, 2);
            self.later(delay, SimEvent::Wake(node, alarm));
        }
        Ok(())
    }

    fn sync(&self) {
        if self.scenario.has(Mistake::AnswersEarly) {
            self.disk.sync();
        }
    }

    /// Tells the other schedulers what was written, as far as that gets through.
    fn hint(&mut self, from: usize, written: &[jobtree_store::Written]) {
        let jobs: Vec<JobId> = written
            .iter()
            .flat_map(|it| it.changes.jobs.iter().map(|job| job.id))
            .collect();
        if jobs.is_empty() {
            return;
        }
        for node in 0..self.nodes.len() {
            let lost = self.rng.chance(self.scenario.faults.hint_lost);
            if node != from && !lost {
                let delay = self.millis(1, 100);
                self.later(delay, SimEvent::Hint(node, jobs.clone()));
            }
        }
    }

    /// Returns `true` if a job waits for nothing, and a worker of its addon is idle on a node with nothing in use.
    fn could_start(&self, job: JobId) -> bool {
        let Some(job) = self.shadow.jobs.get(&job) else {
            return false;
        };
        let intent = &job.intent;
        let at_once = self.shadow.waiting.contains(&job.id)
            && job.not_before.is_none()
            && intent.concurrency_key.is_none()
            && !self.is_paused(&intent.addon_id);
        at_once
            && self.workers.iter().any(|worker| {
                let node = &self.nodes[worker.node].options.node;
                let idle = matches!(worker.doing, Doing::Idle | Doing::Asking { .. });
                let ops = self.nodes[worker.node].asked.values();
                idle && worker.addon == intent.addon_id && self.shadow.used(node, ops) == 0
            })
    }

    /// Calls the store for somebody, through a node.
    pub(super) fn call_store(&mut self, node: usize, from: From, calling: Calling) {
        let id = self.next_call;
        self.next_call += 1;
        let life = self.nodes[node].life;
        self.calls.insert(id, (node, life, from, calling));
        self.serve_soon(node);
    }

    /// Answers of the store on their way to whoever called.
    fn collect_calls(&mut self) -> Result<(), Broken> {
        let mut context = Context::from_waker(Waker::noop());
        let mut ready = Vec::new();
        for (id, (_, _, _, calling)) in &mut self.calls {
            if let Poll::Ready(answer) = calling.as_mut().poll(&mut context) {
                ready.push((*id, answer));
            }
        }
        for (id, answer) in ready {
            let Some((node, life, from, _)) = self.calls.remove(&id) else {
                continue;
            };
            if self.nodes[node].life != life {
                continue;
            }
            if let Err(error) = &answer {
                if is_refusal(error) {
                    self.report.refusals += 1;
                }
                if matches!(error, StoreError::Disconnected { .. }) {
                    // As the handle does.
                    self.step(node, Input::Resync)?;
                }
            }
            let answer = match (from, answer) {
                (From::Liar(about), answer) => {
                    self.check_refused(about, answer)?;
                    continue;
                }
                (From::Operator, Ok(out)) => {
                    self.operated(node, out)?;
                    continue;
                }
                (_, answer) => answer,
            };
            if from == From::Nobody || self.fault(self.scenario.faults.message_lost) {
                continue;
            }
            let delay = self.millis(0, 30);
            self.later(delay, SimEvent::Back(from, Box::new(answer)));
        }
        Ok(())
    }
    /// What is not so must not be believed.
    fn check_refused(
        &mut self,
        about: &str,
        answer: Result<Out, StoreError>,
    ) -> Result<(), Broken> {
        match answer {
            Ok(out) => Err(format!(
                "what had to be refused was believed: {about}: {out:?}"
            )),
            Err(StoreError::Refused(why)) => {
                let conflict = matches!(*why, TransitionError::KeyConflict { .. });
                self.report.conflicts += u64::from(conflict);
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }
}
