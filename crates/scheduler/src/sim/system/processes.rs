//! Processes with real workers: started, crashed, cut off from their schedulers, and deployed anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{AddonId, LeaseId};
use jobtree_runtime::{BoxError, JobHandle, Runtime, sleep};
use jobtree_worker::{Run, Worker, WorkerBuilder};

use super::calls::{Call, UnderWay};
use super::dues::Due;
use super::ledger::{Ledger, SimRun};
use super::link::{Link, gone};
use super::mailbox::{Mail, Mailbox, ProcessId};
use super::{System, SystemReport, Work};
use crate::core::CallId;
use crate::sim::check::Broken;
use crate::sim::sim_event::{Calling, From, Out, SimEvent};
use crate::sim::worker::Script;
use crate::sim::world::World;

/// How long a worker that is deployed anew may finish what it runs.
const DRAIN: Duration = Duration::from_secs(6);

/// A place for a process.
pub(super) struct Process {
    pub(super) node: usize,
    pub(super) addon: AddonId,
    pub(super) life: u64,
    /// None while it is down.
    pub(super) running: Option<Running>,
    /// Nothing goes through before this.
    pub(super) cut_until: Duration,
    /// The claim that waits in its scheduler, with that scheduler's life.
    pub(super) claim: Option<(u64, CallId)>,
}

pub(super) struct Running {
    pub(super) link: Arc<Link>,
    pub(super) worker: Worker,
    /// It takes nothing new.
    pub(super) stops: bool,
}

/// All processes of a simulated system, and what is on its way between them and the schedulers.
pub(in crate::sim) struct Processes {
    pub(super) runtime: Runtime,
    pub(super) system: System,
    work: Work,
    pub(super) all: Vec<Process>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) calls: BTreeMap<u64, Call>,
    pub(super) next_call: u64,
    pub(super) under_way: Vec<UnderWay>,
    pub(super) dues: BTreeMap<LeaseId, Due>,
    /// When each lease was granted.
    pub(super) granted: BTreeMap<LeaseId, Duration>,
    /// Leases that were taken away: their workers hear of it later, and may run on until then.
    pub(super) excused: BTreeSet<LeaseId>,
    /// Jobs that end the workers of processes that are gone.
    ending: Vec<JobHandle<()>>,
    /// All workers have been asked to stop: no other one is started.
    is_closing: bool,
    pub(super) report: SystemReport,
}

impl Processes {
    /// # Errors
    /// Those of [`System::work`].
    pub(super) fn new(runtime: &Runtime, system: &System) -> Result<Self, BoxError> {
        let nodes = system.scenario.schedulers;
        let place = |place: usize| Process {
            node: place % nodes,
            // Several processes for one of them, so that jobs can be given back for an idle one.
            addon: ["a0", "a1", "a2", "a0", "a0"][(place / nodes) % 5]
                .parse()
                .expect("a name"),
            life: 0,
            running: None,
            cut_until: Duration::ZERO,
            claim: None,
        };
        Ok(Processes {
            runtime: runtime.clone(),
            system: system.clone(),
            work: (system.work)(runtime)?,
            all: (0..nodes * system.processes).map(place).collect(),
            mailbox: Arc::default(),
            ledger: Arc::default(),
            calls: BTreeMap::new(),
            next_call: 0,
            under_way: Vec::new(),
            dues: BTreeMap::new(),
            granted: BTreeMap::new(),
            excused: BTreeSet::new(),
            ending: Vec::new(),
            is_closing: false,
            report: SystemReport::default(),
        })
    }

    /// See [`System::short_jobs`].
    pub(in crate::sim) fn short_jobs(&self) -> u64 {
        self.system.short_jobs
    }

    pub(super) fn id(&self, place: usize) -> ProcessId {
        ProcessId {
            place,
            life: self.all[place].life,
        }
    }

    /// The process, if it is still the same.
    pub(super) fn living(&self, id: ProcessId) -> Option<&Running> {
        let process = &self.all[id.place];
        process.running.as_ref().filter(|_| process.life == id.life)
    }

    fn start(&mut self, place: usize) -> Result<(), BoxError> {
        self.all[place].life += 1;
        let id = self.id(place);
        let link = Arc::new(Link::new(id, &self.mailbox, &self.ledger));
        let (ledger, mailbox) = (Arc::clone(&self.ledger), Arc::clone(&self.mailbox));
        let work = Arc::clone(&self.work);
        let handler = move |script: Option<Script>, run: &Run| {
            let script = script.unwrap_or_default();
            let (run, _part) = SimRun::begin(run, script, &ledger, id);
            if script.poison {
                mailbox.push(Mail::Crash(id));
                sleep(Duration::from_secs(3600))?;
            }
            work(&run)?;
            if run.run().job().attempts < script.fails {
                return Err("as its script says".into());
            }
            Ok(())
        };
        let builder = WorkerBuilder::new(Arc::clone(&link) as _, self.all[place].addon.clone());
        let builder = match self.system.bug {
            Some(bug) => builder.plant(bug),
            None => builder,
        };
        let worker = builder
            .on(&self.runtime)
            .program("simulated")
            .concurrency(1 + place % 2)
            .batch(20)
            .handle("t", handler)
            .start()?;
        self.all[place].running = Some(Running {
            link,
            worker,
            stops: false,
        });
        Ok(())
    }

    /// The process is gone at once: nothing that it does from now on counts. What is left of its worker is ended.
    fn crash(&mut self, place: usize) {
        let Some(running) = self.all[place].running.take() else {
            return;
        };
        let id = self.id(place);
        self.ledger.kill(id);
        running.link.cut();
        for call in self.calls.values().filter(|call| call.process == id) {
            call.ask.refuse(gone());
        }
        self.dues.retain(|_, due| due.process != id);
        let ending = self.runtime.spawn(move || {
            // Jobs that do not stop are found at the end.
            let _ = running.worker.drain(Duration::ZERO);
            running.worker.join();
            Ok(())
        });
        self.ending.push(ending);
    }

    /// Stops all workers, and returns what waits for their end.
    pub(super) fn stop_all(&mut self) -> Vec<JobHandle<()>> {
        self.is_closing = true;
        let mut ending = std::mem::take(&mut self.ending);
        for running in self.all.iter_mut().filter_map(|it| it.running.as_mut()) {
            running.stops = true;
            let worker = running.worker.handle().clone();
            ending.push(self.runtime.spawn(move || {
                worker.drain(DRAIN)?;
                Ok(())
            }));
        }
        ending
    }
}

impl World {
    pub(super) fn processes(&mut self) -> &mut Processes {
        let processes = self.processes.as_mut();
        processes.expect("only in a simulated system")
    }

    pub(super) fn plan_processes(&mut self) {
        self.later(Duration::from_secs(2), SimEvent::AskBack);
        for place in 0..self.processes().all.len() {
            let delay = self.millis(0, 2000);
            self.later(delay, SimEvent::StartProcess(place));
            let trouble = self.until_process_trouble();
            self.later(trouble, SimEvent::ProcessTrouble(place));
        }
    }

    /// Wants jobs back that their worker has not begun, as a scheduler does for an idle worker.
    pub(in crate::sim) fn ask_back_something(&mut self) {
        let again = self.millis(20, 400);
        if !self.calm {
            self.later(again, SimEvent::AskBack);
        }
        let (Some(node), Some((lease, jobs))) = (self.reachable(), self.shadow.returnable()) else {
            return;
        };
        let stamp = self.stamp(node);
        let answer = self.nodes[node].store.ask_back(stamp, lease, jobs);
        let calling: Calling = Box::pin(async { answer.await.map(|_| Out::Done) });
        self.call_store(node, From::Nobody, calling);
    }

    fn until_process_trouble(&mut self) -> Duration {
        let mean = 1_000_000 / self.processes().system.process_trouble.max(1);
        self.millis(mean / 4, mean)
    }

    pub(in crate::sim) fn start_process(&mut self, place: usize) -> Result<(), Broken> {
        let processes = self.processes();
        if processes.is_closing || processes.all[place].running.is_some() {
            return Ok(());
        }
        let started = processes.start(place);
        started.map_err(|error| format!("process {place} does not start: {error}"))
    }

    pub(in crate::sim) fn process_trouble(&mut self, place: usize) {
        if self.calm || self.processes().system.process_trouble == 0 {
            return;
        }
        let again = self.until_process_trouble();
        self.later(again, SimEvent::ProcessTrouble(place));
        match self.rng.below(5) {
            0 => self.crash_process(place),
            1 => self.deploy_anew(place),
            _ => {
                let cut = self.millis(1_000, 20_000);
                let until = self.time + cut;
                self.processes().all[place].cut_until = until;
                self.processes().report.partitions += 1;
            }
        }
    }

    pub(super) fn crash_process(&mut self, place: usize) {
        if self.processes().all[place].running.is_none() {
            return;
        }
        self.processes().report.crashes += 1;
        self.processes().crash(place);
        let down = self.millis(500, 8_000);
        self.later(down, SimEvent::StartProcess(place));
    }

    /// Its worker is asked to end; when it has, or after a time, another one takes its place.
    fn deploy_anew(&mut self, place: usize) {
        let processes = self.processes();
        let Some(running) = processes.all[place].running.as_mut() else {
            return;
        };
        running.stops = true;
        processes.report.deployments += 1;
        let worker = running.worker.handle().clone();
        let ending = processes.runtime.spawn(move || {
            // What does not end in time goes with the process.
            let _ = worker.drain(DRAIN);
            Ok(())
        });
        processes.ending.push(ending);
        let stop = self.millis(10_000, 12_000);
        self.later(stop, SimEvent::EndProcess(place));
    }

    /// The time of a worker that was asked to end is over.
    pub(in crate::sim) fn end_process(&mut self, place: usize) {
        let processes = self.processes();
        let running = processes.all[place].running.as_ref();
        if !processes.is_closing && running.is_some_and(|running| running.stops) {
            self.processes().crash(place);
            let down = self.millis(10, 2_000);
            self.later(down, SimEvent::StartProcess(place));
        }
    }
}
