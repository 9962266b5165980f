//! Questions: how things stand, and why a job waits.

use std::collections::BTreeMap;

use jobtree_protocol::{
    AddonStatus, ApiError, ErrorCode, Explain, HistoryStats, JobId, JobState, LeaseAsk, LoadSample,
    NodeStatus, Reason, StatusView,
};
use jobtree_queue::dispatch::Event;
use jobtree_queue::history::Record;
use jobtree_queue::signals::Sample;
use jobtree_queue::{JobRecord, Now};
use jobtree_store::Count;

use super::Core;
use super::io::{Call, Op, Slot, Told, Wait};

impl Core {
    pub(super) fn call(&mut self, slot: Slot, call: Call, now: Now) {
        self.notice(&call);
        match call {
            Call::Explain(_) | Call::Status if !self.ready => self.early.push((slot, call)),
            Call::Claim(request) => self.claim(slot, request, now),
            Call::Lease {
                ask,
                instance_id,
                pids,
            } => self.claims.ask_capacity(slot, ask, instance_id, pids),
            Call::Wait { wait, wait_for } => self.wait(slot, wait, wait_for, now),
            Call::Reread => self.reread(slot, now),
            Call::Explain(job) => self.explain(slot, job, now),
            Call::Status => drop(self.op(Op::Count, Some(slot), now)),
            Call::Load => {
                let load = Box::new(self.tell_load(now));
                self.reply(slot, Ok(Told::Load(load)));
            }
            Call::Stats => {
                let stats = Box::new(self.stats.clone());
                self.reply(slot, Ok(Told::Stats(stats)));
            }
            Call::Decisions(limit) => {
                let decisions = self.decisions.iter().take(limit).cloned().collect();
                self.reply(slot, Ok(Told::Decisions(decisions)));
            }
            Call::History => {
                let history = self.tell_history();
                self.reply(slot, Ok(Told::History(history)));
            }
        }
    }

    /// Whoever asks for dispatches or capacity is here, and may take up what was left to other nodes. Claims are asks of
    /// the dispatcher itself, and it hears of take-ups from their commits.
    fn notice(&mut self, call: &Call) {
        let addon = match call {
            Call::Wait {
                wait: Wait::Dispatchable(addon),
                ..
            } => addon.clone(),
            Call::Lease {
                ask: LeaseAsk::Capacity { addon_id, .. },
                ..
            } => Some(addon_id.clone()),
            _ => return,
        };
        if self.options.shared {
            self.events.push(Event::Shown(addon));
        }
    }

    fn explain(&mut self, slot: Slot, job: JobId, now: Now) {
        if self.ready {
            // What has happened is shown first: the explanation is of how things are now.
            self.run_dispatcher(now);
        }
        let Some(explanation) = self.dispatcher.explain(job, now) else {
            let op = self.op(Op::Look(vec![job]), Some(slot), now);
            self.explaining.insert(op, job);
            return;
        };
        let mut told = explanation.to_wire();
        told.estimate = self.dispatcher.estimate(&explanation, &self.profile, now);
        self.reply(slot, Ok(Told::Explain(told)));
    }

    /// A job that does not wait for a turn was read, to say why.
    pub(super) fn explain_read(&mut self, slot: Slot, id: JobId, job: Option<&JobRecord>) {
        let Some(job) = job else {
            let message = format!("there is no job {id}: check the id");
            let error = ApiError::new(ErrorCode::NotFound, message);
            return self.reply(slot, Err(error));
        };
        let mut reasons = Vec::new();
        if job.state == JobState::Queued && !job.waiting_for.is_empty() {
            let count = job.waiting_for.len();
            let shown: Vec<String> = job
                .waiting_for
                .iter()
                .take(3)
                .map(ToString::to_string)
                .collect();
            let more = if count > 3 { ", …" } else { "" };
            reasons.push(Reason {
                code: "dependency".to_owned(),
                message: format!("It waits for {count} jobs that have not ended"),
                measured: Some(count as f64),
                threshold: Some(0.0),
                since: Some(job.created_at),
                change: format!("{}{more} end", shown.join(", ")),
            });
        }
        let told = Explain {
            job_id: id,
            reasons,
            estimate: None,
            load_ignored: self.policy.busy.ignore,
        };
        self.reply(slot, Ok(Told::Explain(told)));
    }

    pub(super) fn tell_status(&mut self, slot: Slot, counts: &[Count], now: Now) {
        let mut jobs: BTreeMap<JobState, u64> = BTreeMap::new();
        let mut addons: BTreeMap<_, AddonStatus> = BTreeMap::new();
        for count in counts {
            *jobs.entry(count.state).or_default() += count.jobs;
            if count.state.is_ended() {
                continue;
            }
            let addon = addons.entry(count.addon_id.clone()).or_default();
            match count.state {
                JobState::Queued => addon.queued += count.jobs,
                JobState::Dispatching => addon.dispatching += count.jobs,
                _ => addon.running += count.jobs,
            }
        }
        for (addon, _) in self.pauses.iter().filter(|(_, kind)| kind.is_none()) {
            addons.entry(addon.clone()).or_default().paused = true;
        }
        for (addon, status) in &mut addons {
            status.paused |= self.policy.addon(addon.as_str()).paused;
        }
        let view = self.dispatcher.view(now);
        let admission = self.dispatcher.admission();
        let node = NodeStatus {
            node_id: self.node.clone(),
            busy: view.busy,
            state: view.state,
            since: view.since,
            capacity: admission.capacity(&view, Default::default()),
            used: self.dispatcher.used(),
            reserved: self.dispatcher.reserved(),
            active_leases: self.leases.len() as u32,
            stale: view.stale.is_some(),
            load_ignored: view.ignored,
            streaks: admission
                .quiet()
                .streaks(now)
                .into_iter()
                .map(|streak| jobtree_protocol::Streak {
                    start: streak.start,
                    end: streak.end,
                    average: streak.average,
                    minimum: streak.minimum,
                })
                .collect(),
        };
        let oldest = self.dispatcher.oldest_waiting();
        let status = StatusView {
            at: now.wall,
            nodes: vec![node],
            jobs,
            oldest_queued_sec: oldest.map(|since| now.wall.duration_since(since).as_secs_f64()),
            addons,
        };
        self.reply(slot, Ok(Told::Status(Box::new(status))));
    }

    fn tell_load(&self, now: Now) -> LoadSample {
        let view = self.dispatcher.view(now);
        let admission = self.dispatcher.admission();
        let sample = admission.signals().last();
        LoadSample {
            at: now.wall,
            busy: view.busy,
            state: view.state,
            capacity: admission.capacity(&view, Default::default()),
            used: self.dispatcher.used(),
            foreign_cpu: sample.map(Sample::foreign_cpu),
            own_cpu: sample.map(|sample| sample.own_cpu),
            memory_available: sample.and_then(|sample| sample.memory_available),
            psi_cpu: sample.and_then(|sample| sample.psi_cpu),
            psi_io: sample.and_then(|sample| sample.psi_io),
            psi_memory: sample.and_then(|sample| sample.psi_memory),
        }
    }

    fn tell_history(&self) -> Vec<HistoryStats> {
        let tell = |addon_id: &_, job_type: Option<&_>, record: &Record| HistoryStats {
            addon_id: Clone::clone(addon_id),
            job_type: job_type.cloned(),
            ended: record.succeeded + record.failed,
            success_rate: record.success_rate(),
            average_wait_sec: record.average_wait().map(|wait| wait.as_secs_f64()),
            p95_run_sec: record.p95_run().map(|run| run.as_secs_f64()),
        };
        let mut all = Vec::new();
        for (addon, record, types) in self.history.iter() {
            all.push(tell(addon, None, record));
            for (job_type, record) in types {
                all.push(tell(addon, Some(job_type), record));
            }
        }
        all
    }
}
