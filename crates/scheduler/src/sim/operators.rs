//! What operators do meanwhile: they redrive, hasten, cancel and revoke, pause addons and schedules and let them go on.
//! When nothing goes wrong any more they undo their pauses and stop the schedules, so that everything can end.

use std::time::Duration;

use jobtree_protocol::{
    AddonId, CancelRequest, JobId, JobState, Missed, Overlap, RevokeRequest, ScheduleId,
    ScheduleSpec, SubmitRequest,
};
use jobtree_queue::JobRecord;
use jobtree_queue::cron::Schedule;
use jobtree_store::{Pause, ScheduleRecord};

use super::check::Broken;
use super::node::{Node, base};
use super::served_waits::is_unserved;
use super::sim_event::{Calling, From, Out, Reply, SimEvent};
use super::tables::Setting;
use super::world::{PAUSED, World};
use crate::core::schedules::next_nominal;
use crate::core::{Call, Input, Op};

/// Stands for a worker where a reply is for an operator.
pub(super) const OPERATOR: usize = usize::MAX;
/// Addons that are paused now and then.
const ADDONS: [&str; 3] = ["a0", "a1", "a2"];
/// So long after everything works again everything is in order.
const SETTLED: Duration = Duration::from_secs(15);

/// What operators know.
#[derive(Default)]
pub(super) struct Operators {
    /// Addons that are paused in the store, and how often that was changed.
    paused: std::collections::BTreeMap<AddonId, (bool, u64)>,
    /// Pauses that a scheduler is about to follow, with the number of changes then.
    following: Vec<(AddonId, u64)>,
    /// Schedules have been seen to go on, and are stopped.
    closing: bool,
}

impl World {
    /// Two schedules, and pauses now and then.
    pub(super) fn plan_operators(&mut self) {
        for (place, addon) in ["a0", "a2"].into_iter().enumerate() {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&self.rng.draw().to_le_bytes());
            let cost = self.scenario.policy.largest_cost(addon).min(5);
            let spec = ScheduleSpec {
                name: format!("schedule {place}"),
                cron: "*/20 * * * * *".to_owned(),
                time_zone: "UTC".to_owned(),
                jitter_sec: self.rng.below(4) as u32,
                missed: [Missed::Skip, Missed::Once, Missed::All][self.rng.below(3) as usize],
                overlap: [Overlap::Allow, Overlap::Forbid][self.rng.below(2) as usize],
                paused: false,
                job: SubmitRequest::new(addon, "t", cost),
            };
            let id = ScheduleId::from_random(bytes);
            let stamp = self.stamp(0);
            let schedule = Schedule::new(id, &spec).expect("a sound schedule");
            let record = ScheduleRecord {
                id,
                revision: 1,
                next_at: next_nominal(&schedule, base()),
                spec,
                last_at: None,
                last_job: None,
            };
            let record = self.peek.put_schedule(stamp, record).wait();
            self.calendar.put(&record.expect("memory answers"));
        }
        let first = self.millis(1_000, 5_000);
        self.later(first, SimEvent::Operate);
    }

    pub(super) fn operate(&mut self) -> Result<(), Broken> {
        let again = self.millis(500, 5_000);
        self.later(again, SimEvent::Operate);
        if self.calm {
            return self.close();
        }
        if self.scenario.named_claims {
            // Waits are measured, and what operators do would be the reason for most of them.
            return Ok(());
        }
        match self.rng.below(8) {
            0 => self.redrive_something(),
            1 => self.hasten_something(),
            2 => {
                let addon = ADDONS[self.rng.below(3) as usize];
                self.pause(addon, true);
            }
            3 | 4 => {
                let addon = ADDONS[self.rng.below(3) as usize];
                self.pause(addon, false);
            }
            5 => self.switch_schedule(None),
            6 => self.revoke_something(),
            _ => self.submit_another_body(),
        }
        Ok(())
    }

    /// Everything works again: schedules must go on, and then nothing more is begun.
    fn close(&mut self) -> Result<(), Broken> {
        let paused: Vec<String> = self
            .operators
            .paused
            .iter()
            .filter(|(addon, (paused, _))| *paused && addon.as_str() != PAUSED)
            .map(|(addon, _)| addon.to_string())
            .collect();
        for addon in paused {
            self.pause(&addon, false);
        }
        let woken = self.nodes.iter().map(|node| node.asleep_until).max();
        let since = woken.unwrap_or_default().max(self.scenario.trouble);
        if self.time < since + SETTLED {
            return Ok(());
        }
        if !self.operators.closing {
            self.calendar.check_goes_on(base() + self.time)?;
            self.operators.closing = true;
        }
        self.switch_schedule(Some(true));
        Ok(())
    }

    /// Returns `true` if an addon is paused in the store.
    pub(super) fn is_paused(&self, addon: &AddonId) -> bool {
        let known = self.operators.paused.get(addon);
        known.is_some_and(|(paused, _)| *paused)
    }

    /// Cancels what no worker will ever take, when all else has ended.
    pub(super) fn cancel_unserved(&mut self) {
        let jobs = self.shadow.jobs.values();
        let left = jobs.filter(|job| !job.state.is_ended() && is_unserved(&job.intent.job_type));
        let left: Vec<JobId> = left.map(|job| job.id).collect();
        let awake = |node: &Node| node.asleep_until <= self.time;
        let node = self.nodes.iter().position(awake).unwrap_or_default();
        for job in left {
            let stamp = self.stamp(node);
            let answer = (self.nodes[node].store).cancel(stamp, job, CancelRequest::default());
            let calling: Calling = Box::pin(async { answer.await.map(|_| Out::Done) });
            self.call_store(node, From::Nobody, calling);
        }
    }

    /// No schedule begins anything more.
    pub(super) fn is_closed(&self) -> bool {
        self.calendar.records().all(|record| record.spec.paused)
    }

    fn some_job(&mut self, which: impl Fn(&JobRecord) -> bool) -> Option<JobId> {
        let jobs = self.shadow.jobs.values();
        let found: Vec<JobId> = jobs.filter(|job| which(job)).map(|job| job.id).collect();
        let count = found.len() as u64;
        (count > 0).then(|| found[self.rng.below(count) as usize])
    }

    /// Returns the schedulers that are asked for the same at once: one, or with several of them now and then two.
    fn asked_at_once(&mut self) -> Vec<usize> {
        let first = self.reachable();
        let twice = self.nodes.len() > 1 && self.rng.chance(300);
        let second = twice.then(|| self.reachable()).flatten();
        first.into_iter().chain(second).collect()
    }

    pub(super) fn cancel_something(&mut self) {
        let Some(job) = self.some_job(|_| true) else {
            return;
        };
        for node in self.asked_at_once() {
            let stamp = self.stamp(node);
            let request = CancelRequest::default();
            let answer = self.nodes[node].store.cancel(stamp, job, request);
            let calling: Calling = Box::pin(async { answer.await.map(|_| Out::Done) });
            self.call_store(node, From::Nobody, calling);
        }
    }

    fn redrive_something(&mut self) {
        let ended = [JobState::Failed, JobState::Canceled];
        let Some(job) = self.some_job(|job| ended.contains(&job.state)) else {
            return;
        };
        for node in self.asked_at_once() {
            let stamp = self.stamp(node);
            let answer = self.nodes[node].store.redrive(stamp, job, None);
            let calling: Calling = Box::pin(async { answer.await.map(|_| Out::Done) });
            self.call_store(node, From::Nobody, calling);
        }
    }

    fn hasten_something(&mut self) {
        let job = self.some_job(|job| job.not_before.is_some());
        let (Some(node), Some(job)) = (self.reachable(), job) else {
            return;
        };
        let stamp = self.stamp(node);
        let answer = self.nodes[node].store.hasten(stamp, job);
        let calling: Calling = Box::pin(async { answer.await.map(|()| Out::Done) });
        self.call_store(node, From::Nobody, calling);
    }

    fn revoke_something(&mut self) {
        let live = self.shadow.live().len() as u64;
        if live == 0 {
            return;
        }
        let place = self.rng.below(live) as usize;
        let Some(lease) = self.shadow.live().keys().nth(place).copied() else {
            return;
        };
        for node in self.asked_at_once() {
            let stamp = self.stamp(node);
            let request = RevokeRequest::default();
            let answer = self.nodes[node].store.revoke(stamp, lease, request);
            let calling: Calling = Box::pin(async { answer.await.map(|()| Out::Done) });
            self.call_store(node, From::Nobody, calling);
        }
    }

    fn pause(&mut self, addon: &str, paused: bool) {
        let Some(node) = self.reachable() else {
            return;
        };
        let stamp = self.stamp(node);
        let pause = Pause {
            addon_id: addon.parse().expect("a name"),
            job_type: None,
            since: stamp.now.wall,
            reason: None,
            by: None,
        };
        let store = &self.nodes[node].store;
        let addon = pause.addon_id.clone();
        let calling: Calling = if paused {
            let answer = store.pause(stamp, pause);
            Box::pin(async { answer.await.map(|()| Out::Paused(addon)) })
        } else {
            let answer = store.resume(stamp, pause);
            Box::pin(async { answer.await.map(|_| Out::Paused(addon)) })
        };
        self.call_store(node, From::Operator, calling);
    }

    /// Writes a schedule with its pause the other way round; or each that is not paused, if it has to be.
    fn switch_schedule(&mut self, paused: Option<bool>) {
        let mut records: Vec<ScheduleRecord> = self.calendar.records().cloned().collect();
        match paused {
            None => {
                let place = self.rng.below(records.len() as u64) as usize;
                records = vec![records.swap_remove(place)];
            }
            Some(paused) => records.retain(|record| record.spec.paused != paused),
        }
        for mut record in records {
            let Some(node) = self.reachable() else {
                continue;
            };
            let stamp = self.stamp(node);
            record.spec.paused = paused.unwrap_or(!record.spec.paused);
            let schedule = Schedule::new(record.id, &record.spec).expect("a sound schedule");
            let next = || next_nominal(&schedule, stamp.now.wall);
            record.next_at = (!record.spec.paused).then(next).flatten();
            let answer = self.nodes[node].store.put_schedule(stamp, record);
            let calling: Calling = Box::pin(async { answer.await.map(|_| Out::Scheduled) });
            self.call_store(node, From::Operator, calling);
        }
    }

    /// What an operator asked for is written: the scheduler follows, as its handle has it do.
    pub(super) fn operated(&mut self, node: usize, out: Out) -> Result<(), Broken> {
        match out {
            Out::Scheduled => self.step(node, Input::SettingsChanged),
            Out::Paused(addon) => {
                let changes = self.operators.paused.get(&addon).map_or(0, |it| it.1);
                let turn = self.operators.following.len() as u64;
                self.operators.following.push((addon, changes));
                let (call, caller) = self.nodes[node].caller(Reply::Followed);
                self.nodes[node].callers.insert(call, (OPERATOR, turn));
                self.step(node, Input::Call(Call::FollowSettings(caller)))
            }
            _ => Ok(()),
        }
    }

    /// A scheduler says that it knows of a pause: nothing of that addon is begun there from now on.
    pub(super) fn pause_followed(&mut self, node: usize, turn: u64) {
        let (addon, changes) = self.operators.following[turn as usize].clone();
        if self.operators.paused.get(&addon) == Some(&(true, changes)) {
            self.nodes[node].paused.insert(addon);
        }
    }

    /// What a command did to schedules and pauses.
    pub(super) fn take_settings(&mut self, settings: &[Setting]) -> Result<(), Broken> {
        for setting in settings {
            match setting {
                Setting::Schedule(record) => self.calendar.put(record),
                Setting::Fired(schedule, at, job) => {
                    let jobs = &self.shadow.jobs;
                    let state = |job: JobId| jobs.get(&job).map(|job| job.state);
                    self.calendar.fired(*schedule, *at, *job, state)?;
                    if let Some(job) = job {
                        self.report.firings += 1;
                        self.shadow.submitted.insert(*job);
                    }
                }
                Setting::Paused(addon, paused) => {
                    self.served_waits.disturbed(self.time);
                    let known = self.operators.paused.entry(addon.clone()).or_default();
                    *known = (*paused, known.1 + 1);
                    if *paused {
                        self.report.pauses += 1;
                    } else {
                        for node in &mut self.nodes {
                            node.paused.remove(addon);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Nothing is begun of what is paused.
    pub(super) fn check_paused(&self, node: usize, op: &Op) -> Result<(), Broken> {
        let jobs = match op {
            Op::Reserve(op) => std::slice::from_ref(&op.job),
            Op::Claim(op) => &op.jobs,
            _ => return Ok(()),
        };
        for job in jobs.iter().filter_map(|job| self.shadow.jobs.get(job)) {
            let addon = &job.intent.addon_id;
            if self.nodes[node].paused.contains(addon) {
                let id = job.id;
                return Err(format!(
                    "job {id} is started on n{node}, which knows that {addon} is paused"
                ));
            }
        }
        Ok(())
    }
}
