//! Random commands, sensible and absurd, with old leases and repeated calls: what must always hold, holds after each.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use jobtree_protocol::{
    AckRequest, Backoff, CancelRequest, CompleteRequest, EditRequest, EventKind, Heartbeat, InHand,
    JobId, JobState, LeaseId, OnDependencyFailure, Priority, Progress, ReleaseRequest,
    ReportRequest, RevokeRequest, SubmitRequest,
};
use jobtree_queue::record::JobRecord;
use jobtree_queue::replay::Story;
use jobtree_queue::transitions::{
    self as t, Abilities, Admit, Claim, Proof, Proposed, Redrive, Reserve, RuntimeProof, TakeUp,
    TimeOut, TransitionError, Unclaimed,
};
use support::{World, addon, node, watch};

/// Small and good enough; the same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.roll() % bound as u64) as usize
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        if of.is_empty() {
            None
        } else {
            Some(of[self.below(of.len())])
        }
    }
}

struct Run {
    world: World,
    dice: Dice,
    /// Every lease that there ever was: old ones are used again.
    leases: Vec<LeaseId>,
    /// How often each kind of event was seen, over all.
    seen: BTreeMap<EventKind, usize>,
    refused: BTreeMap<String, usize>,
}

impl Run {
    fn any_job(&mut self) -> Option<JobId> {
        let jobs: Vec<JobId> = self.world.jobs.keys().copied().collect();
        self.dice.pick(&jobs)
    }

    fn job_in(&mut self, state: JobState) -> Option<JobId> {
        let jobs: Vec<JobId> = self
            .world
            .jobs
            .values()
            .filter(|job| job.state == state)
            .map(|job| job.id)
            .collect();
        self.dice.pick(&jobs)
    }

    /// A job that a worker has: mostly one that has begun.
    fn held_job(&mut self) -> Option<JobId> {
        let begun = !self.dice.one_in(3);
        let jobs: Vec<JobId> = self
            .world
            .jobs
            .values()
            .filter(|job| job.is_held() && job.has_begun() == begun)
            .map(|job| job.id)
            .collect();
        self.dice.pick(&jobs)
    }

    /// Mostly a live one.
    fn any_lease(&mut self) -> Option<LeaseId> {
        if self.dice.one_in(5) {
            return self.dice.pick(&self.leases);
        }
        let live: Vec<LeaseId> = self
            .world
            .leases
            .values()
            .filter(|lease| lease.is_live())
            .map(|l| l.id)
            .collect();
        self.dice.pick(&live)
    }

    fn request(&mut self) -> SubmitRequest {
        let depends_on = if self.dice.one_in(4) {
            self.any_job().into_iter().collect()
        } else {
            Vec::new()
        };
        let dice = &mut self.dice;
        let addon = ["visuals", "mail"][dice.below(2)];
        SubmitRequest {
            priority: Priority::ALL[dice.below(3)],
            max_attempts: Some(1 + dice.below(3) as i64),
            max_runtime_sec: dice.one_in(3).then_some(20),
            backoff: Some(Backoff {
                initial_sec: 20.0,
                ..Backoff::default()
            }),
            unique_key: dice.one_in(6).then(|| "only".into()),
            concurrency_key: dice.one_in(4).then(|| "shared".into()),
            idempotency_key: dice.one_in(5).then(|| format!("key{}", dice.below(20))),
            deadline_at: dice.one_in(4).then(|| {
                self.world
                    .now
                    .after(std::time::Duration::from_secs(40))
                    .wall
            }),
            late: jobtree_protocol::Late::Run,
            on_dependency_failure: if dice.one_in(2) {
                OnDependencyFailure::Run
            } else {
                OnDependencyFailure::Cancel
            },
            depends_on,
            ..SubmitRequest::new(addon, "work", 1 + dice.below(60) as u32)
        }
    }

    /// One command. What a command needs and is not there makes it none.
    fn step(&mut self) -> Option<()> {
        self.world.now = self
            .world
            .now
            .after(std::time::Duration::from_millis(self.dice.roll() % 4000));
        let again = self.dice.one_in(3);
        let outcome = match self.dice.below(24) {
            0..=3 => {
                let mut request = self.request();
                if request.deadline_at.is_some() && self.dice.one_in(2) {
                    request.late = jobtree_protocol::Late::Fail;
                }
                let first = self.world.try_submit(request.clone());
                if let (Ok((answer, _)), true, true) =
                    (&first, again, request.idempotency_key.is_some())
                {
                    let (second, repeated) = self.world.try_submit(request).unwrap();
                    assert!(
                        repeated && second.job_id == answer.job_id && second.state == answer.state
                    );
                }
                first.map(drop)
            }
            4..=6 => self.claim(),
            7 => {
                let job = self.job_in(JobState::Queued)?;
                let reservation_id = self.world.lease_id();
                let key_holders = self.world.key_holders(self.world.job(job));
                let reserve = Reserve {
                    reservation_id,
                    node_id: node("here"),
                    key_holders,
                    reason: "admitted".into(),
                };
                let first = self
                    .world
                    .apply(|w| t::reserve(&w.cx(), w.job(job), reserve.clone()));
                if first.is_ok() && again {
                    self.repeat(|w| t::reserve(&w.cx(), w.job(job), reserve));
                }
                first.map(drop)
            }
            8 => self.take_up(again)?,
            9 => {
                let job = self.any_job()?;
                let reservation = self
                    .world
                    .job(job)
                    .reservation
                    .as_ref()
                    .map(|reservation| reservation.id);
                let id = reservation.unwrap_or(self.world.lease_id());
                let proof = if again {
                    Proof::Wall
                } else {
                    Proof::Seen {
                        revision: self.world.job(job).revision,
                    }
                };
                let why = Unclaimed::TimedOut(proof);
                self.world
                    .apply(|w| t::return_unclaimed(&w.cx(), w.job(job), id, &why))
                    .map(drop)
            }
            10..=12 => self.complete(again)?,
            13 => self.heartbeat()?,
            14 => {
                let lease = self.any_lease()?;
                let request = ReleaseRequest {
                    return_jobs: self.dice.one_in(2),
                    ..ReleaseRequest::default()
                };
                let first = self
                    .world
                    .apply(|w| t::release(&w.cx(), w.lease(lease), &w.jobs_of(lease), &request));
                if first.is_ok() && again {
                    self.repeat(|w| {
                        t::release(&w.cx(), w.lease(lease), &w.jobs_of(lease), &request)
                    });
                }
                first.map(drop)
            }
            15 => {
                let lease = self.any_lease()?;
                if self.dice.one_in(3) {
                    let request = RevokeRequest::default();
                    self.world
                        .apply(|w| t::revoke(&w.cx(), w.lease(lease), &w.jobs_of(lease), &request))
                        .map(drop)
                } else {
                    let stale = u64::from(self.dice.one_in(4));
                    let proof = Proof::Seen {
                        revision: self.world.lease(lease).revision - stale,
                    };
                    self.world
                        .apply(|w| t::expire(&w.cx(), w.lease(lease), &w.jobs_of(lease), proof))
                        .map(drop)
                }
            }
            16 => {
                let lease = self.any_lease()?;
                let job_id = self
                    .world
                    .lease(lease)
                    .in_hand()
                    .map(|job| job.id)
                    .or(self.any_job())?;
                let current_since = self.world.lease(lease).current_since;
                let by = if again {
                    RuntimeProof::Wall
                } else {
                    RuntimeProof::Monotonic
                };
                let command = TimeOut {
                    job_id,
                    current_since,
                    by,
                };
                self.world
                    .apply(|w| t::time_out(&w.cx(), w.lease(lease), &w.jobs_of(lease), command))
                    .map(drop)
            }
            17 => {
                let job = self.any_job()?;
                let request = CancelRequest::default();
                let first = self
                    .world
                    .apply(|w| t::cancel(&w.cx(), w.job(job), w.lease_of(job), &request));
                if first.is_ok() && again {
                    self.repeat(|w| t::cancel(&w.cx(), w.job(job), w.lease_of(job), &request));
                }
                first.map(drop)
            }
            18 => {
                let state = [JobState::Failed, JobState::Canceled][self.dice.below(2)];
                let job = self.job_in(state)?;
                self.redrive(job, again)
            }
            19 => {
                let job = self.any_job()?;
                self.world
                    .apply(|w| t::miss_deadline(&w.cx(), w.job(job)))
                    .map(drop)
            }
            20 => {
                let job = if again {
                    self.any_job()?
                } else {
                    self.job_in(JobState::Queued)?
                };
                // Of those that wait for a time, there are few.
                let jobs = self.world.jobs.values();
                let timed = jobs.filter(|it| it.not_before.is_some() && !it.is_held());
                let timed: Vec<JobId> = timed.map(|it| it.id).collect();
                match self.dice.below(4) {
                    3 => {
                        let priority = self.dice.pick(&Priority::ALL);
                        let start = self.dice.one_in(2).then_some(None);
                        let edit = EditRequest {
                            priority,
                            earliest_start_at: start,
                            ..EditRequest::default()
                        };
                        self.world
                            .apply(|w| t::edit(&w.cx(), w.job(job), &edit))
                            .map(drop)
                    }
                    0 => {
                        let job = self.dice.pick(&timed).unwrap_or(job);
                        self.world
                            .apply(|w| t::hasten(&w.cx(), w.job(job)))
                            .map(drop)
                    }
                    1 => self
                        .world
                        .apply(|w| t::deny(&w.cx(), w.job(job), "capacity", "full"))
                        .map(drop),
                    _ => self
                        .world
                        .apply(|w| t::mark_at_risk(&w.cx(), w.job(job), "slow"))
                        .map(drop),
                }
            }
            21 => self.ask_back(again)?,
            22 => {
                let job = self.job_in(JobState::Running)?;
                let paused = self.dice.one_in(2);
                self.world
                    .apply(|w| t::pause_run(&w.cx(), w.job(job), paused, "by admin".into()))
                    .map(drop)
            }
            _ => self.admit(),
        };
        if let Err(error) = outcome {
            let told = format!("{error:?}");
            let name = told.split([' ', '{']).next().unwrap().to_owned();
            *self.refused.entry(name).or_default() += 1;
        }
        Some(())
    }

    /// A call that took effect is made again at once: it must be answered, and change nothing.
    fn repeat<A>(&mut self, call: impl FnOnce(&World) -> t::Outcome<A>) {
        let (_, repeated) = self.world.apply(call).unwrap();
        assert!(repeated);
    }

    fn claim(&mut self) -> Result<(), TransitionError> {
        let count = 1 + self.dice.below(4);
        let jobs: BTreeSet<JobId> = (0..count)
            .filter_map(|_| {
                if self.dice.one_in(6) {
                    self.any_job()
                } else {
                    self.job_in(JobState::Queued)
                }
            })
            .collect();
        let lease_id = self.world.lease_id();
        let claim = Claim {
            lease_id,
            node_id: node("here"),
            instance_id: None,
            pids: Vec::new(),
            process_origin: None,
            reason: "admitted".into(),
            worker: Abilities {
                reports_begin: self.dice.one_in(2),
                begins_now: self.dice.one_in(2),
                returns_unbegun: self.dice.one_in(2),
                in_process: self.dice.one_in(2),
            },
        };
        let (claimed, _) = self.world.apply(|w| {
            let propose = |id: &JobId| Proposed {
                job: w.job(*id),
                key_holders: w.key_holders(w.job(*id)),
            };
            let proposed: Vec<Proposed<'_>> = jobs.iter().map(propose).collect();
            t::claim(&w.cx(), &proposed, None, claim.clone())
        })?;
        assert_eq!(claimed.jobs.len() + claimed.skipped.len(), jobs.len());
        self.leases.push(lease_id);
        self.repeat(|w| t::claim(&w.cx(), &[], Some(w.lease(lease_id)), claim));
        Ok(())
    }

    fn take_up(&mut self, again: bool) -> Option<Result<(), TransitionError>> {
        let job = self.job_in(JobState::Dispatching).or(self.any_job())?;
        let (lease_id, instance_id) = (self.world.lease_id(), Some(self.world.instance()));
        if self.dice.one_in(3) {
            let bound = self.any_lease()?;
            let ack = AckRequest {
                lease_id: Some(bound),
                ..AckRequest::default()
            };
            let done = self
                .world
                .apply(|w| t::ack(&w.cx(), w.job(job), Some(w.lease(bound)), ack, lease_id));
            return Some(done.map(drop));
        }
        let take_up = TakeUp {
            lease_id,
            instance_id,
            pids: Vec::new(),
            process_origin: None,
        };
        let done = self
            .world
            .apply(|w| t::take_up(&w.cx(), w.job(job), w.lease_of(job), take_up.clone()));
        if done.is_ok() {
            self.leases.push(lease_id);
            if again {
                self.repeat(|w| t::take_up(&w.cx(), w.job(job), w.lease_of(job), take_up));
            }
        }
        Some(done.map(drop))
    }

    fn complete(&mut self, again: bool) -> Option<Result<(), TransitionError>> {
        let job = if self.dice.one_in(5) {
            self.any_job()?
        } else {
            self.held_job()?
        };
        let held = self.world.job(job).lease_id;
        let lease = if self.dice.one_in(6) {
            self.dice.pick(&self.leases)?
        } else {
            held.or(self.any_lease())?
        };
        let request = if self.dice.one_in(2) {
            CompleteRequest::done(lease, None)
        } else {
            CompleteRequest {
                retry: !self.dice.one_in(4),
                ..CompleteRequest::failed(lease, "broken")
            }
        };
        let in_hand = self.held_job().filter(|_| again).map(|job_id| InHand {
            job_id,
            began_ms_ago: self.dice.roll() % 5000,
        });
        let request = CompleteRequest {
            began_ms_ago: self.dice.one_in(2).then(|| self.dice.roll() % 9000),
            ended_ms_ago: self.dice.one_in(2).then(|| self.dice.roll() % 9000),
            in_hand,
            ..request
        };
        let before = self.world.job(job).clone();
        let first = self
            .world
            .apply(|w| t::complete(&w.cx(), w.job(job), w.lease_of(job), &request, w.record()));
        if let Ok((answer, repeated)) = &first {
            // What took effect had the lease, now or when it was said first.
            let fenced = if *repeated {
                before.completion(lease).is_some()
            } else {
                held == Some(lease)
            };
            assert!(fenced);
            if again {
                let done = t::complete(
                    &self.world.cx(),
                    self.world.job(job),
                    self.world.lease_of(job),
                    &request,
                    self.world.record(),
                );
                let done = done.unwrap();
                assert!(done.repeated && done.answer == *answer && done.changes.is_empty());
            }
        }
        Some(first.map(drop))
    }

    fn heartbeat(&mut self) -> Option<Result<(), TransitionError>> {
        let lease = self.any_lease()?;
        let named = if self.dice.one_in(3) {
            self.held_job().or(self.any_job())
        } else {
            None
        };
        let about = named.or_else(|| self.world.lease(lease).in_hand().map(|job| job.id));
        let progress = self.dice.one_in(2).then_some(Progress {
            fraction: Some(0.5),
            message: None,
        });
        if self.dice.one_in(3) {
            let job = about.map(|id| self.world.job(id).clone());
            let report = ReportRequest {
                lease_id: lease,
                job_id: named,
                progress,
                metrics: BTreeMap::new(),
                pids: None,
                process_origin: None,
            };
            let done = self
                .world
                .apply(|w| t::report(&w.cx(), w.lease(lease), job.as_ref(), report));
            return Some(done.map(drop));
        }
        let asked = self.world.lease(lease).asked_back.clone();
        let able = self.world.lease(lease).returns_unbegun;
        let given_back = if self.dice.one_in(if able { 2 } else { 20 }) {
            asked.iter().copied().chain(self.any_job()).collect()
        } else {
            Vec::new()
        };
        let beat = Heartbeat {
            job_id: named,
            progress,
            began_ms_ago: self.dice.one_in(2).then(|| self.dice.roll() % 9000),
            given_back,
            ..Heartbeat::of(lease)
        };
        let answer = self.world.beat(beat);
        if let Ok(answer) = &answer {
            assert!(answer.give_back.iter().all(|id| asked.contains(id)));
        }
        Some(answer.map(drop))
    }

    /// Somebody else could run what a worker has not begun.
    fn ask_back(&mut self, again: bool) -> Option<Result<(), TransitionError>> {
        let lease = self.any_lease()?;
        let mut jobs: Vec<JobId> = self
            .world
            .lease(lease)
            .jobs
            .iter()
            .map(|it| it.id)
            .collect();
        jobs.extend(self.any_job());
        let before = self.world.jobs.clone();
        let first = self.world.apply(|w| t::ask_back(w.lease(lease), &jobs));
        assert_eq!(self.world.jobs, before, "to be asked for changes no job");
        if first.is_ok() && again {
            self.repeat(|w| t::ask_back(w.lease(lease), &jobs));
        }
        Some(first.map(drop))
    }

    fn redrive(&mut self, job: JobId, again: bool) -> Result<(), TransitionError> {
        let call = |w: &World| {
            let record = w.job(job);
            let dependencies = w.states(&record.intent.depends_on);
            let same_unique = w.unique_holder(&record.intent).map(|job| job.id);
            t::redrive(
                &w.cx(),
                record,
                Redrive {
                    dependencies: &dependencies,
                    same_unique,
                    reason: None,
                },
            )
        };
        let first = self.world.apply(call);
        if first.is_ok() && again {
            self.repeat(call);
        }
        first.map(drop)
    }

    fn admit(&mut self) -> Result<(), TransitionError> {
        let lease_id = self.world.lease_id();
        let admit = Admit {
            lease_id,
            addon_id: addon(["visuals", "mail"][self.dice.below(2)]),
            job_type: jobtree_protocol::JobType::new("work").unwrap(),
            cost_units: 5,
            priority: Priority::Normal,
            constraints: jobtree_protocol::Constraints::default(),
            expected_duration_sec: None,
            node_id: node("here"),
            instance_id: None,
            request_key: None,
            pids: Vec::new(),
            process_origin: None,
            reason: "admitted".into(),
        };
        let granted = t::admit(&self.world.cx(), None, admit)?;
        self.world.commit(granted.changes);
        self.leases.push(lease_id);
        Ok(())
    }

    /// What must hold at any time.
    fn check(&self) {
        let world = &self.world;
        let mut holder: BTreeMap<JobId, LeaseId> = BTreeMap::new();
        for lease in world.leases.values() {
            assert!(lease.is_live() || lease.jobs.is_empty());
            assert!(lease.jobs.is_sorted_by(|a, b| a.position < b.position));
            for leased in &lease.jobs {
                let other = holder.insert(leased.id, lease.id);
                assert_eq!(other, None, "two live leases of one job");
                let job = world.job(leased.id);
                assert_eq!(job.lease_id, Some(lease.id));
                assert_eq!(
                    *leased,
                    jobtree_queue::record::LeasedJob::of(job),
                    "the lease and the job say the same"
                );
            }
            assert!(lease.begun || lease.jobs.iter().all(|job| !job.begun));
            let in_hand = lease.in_hand().map(|job| job.id);
            assert_eq!(in_hand.is_some(), lease.begun && !lease.jobs.is_empty());
            for asked in &lease.asked_back {
                let job = lease.job(*asked).expect("it is one of the lease");
                assert!(lease.returns_unbegun && !job.begun);
            }
            assert!(lease.named_current.is_none_or(|id| lease.job(id).is_some()));
            if !lease.reports_begin {
                let first = lease.in_hand();
                assert!(first.is_none_or(|job| job.begun), "the one in hand runs");
            }
            assert!(
                lease.granted_at <= lease.current_since && lease.current_since <= world.now.wall
            );
            let alone = lease.jobs.iter().any(|job| world.job(job.id).runs_alone());
            assert!(lease.jobs.len() <= 1 || !alone);
        }
        let mut by_job: BTreeMap<JobId, Vec<&jobtree_protocol::Event>> = BTreeMap::new();
        for event in world.events.iter().filter(|event| event.kind.is_kept()) {
            if let Some(id) = event.job_id {
                by_job.entry(id).or_default().push(event);
            }
        }
        for job in world.jobs.values() {
            self.check_job(job, holder.get(&job.id).copied());
            let story = Story::of(by_job[&job.id].iter().copied()).unwrap();
            assert!(story.agrees(job), "{story:?}\n{job:?}");
            // No job gets to a worker without the numbers that it was admitted by.
            for pair in by_job[&job.id].windows(2) {
                let starts = matches!(pair[1].kind, EventKind::Dispatching | EventKind::Running);
                if starts && pair[0].state != Some(JobState::Dispatching) {
                    assert_eq!(pair[0].kind, EventKind::Admitted, "{pair:?}");
                    assert_eq!(pair[0].revision, pair[1].revision);
                }
                if pair[0].kind == EventKind::Admitted {
                    assert!(starts && pair[0].reason.is_some(), "{pair:?}");
                }
            }
            let last = by_job[&job.id].last().unwrap();
            assert_eq!(last.state, Some(job.state));
        }
        self.check_keys();
    }

    fn check_job(&self, job: &JobRecord, holder: Option<LeaseId>) {
        let most = self.world.rules.quarantine_after;
        assert_eq!(job.lease_id, holder);
        assert_eq!(job.lease_id.is_some(), job.is_held());
        assert_eq!(job.reservation.is_some(), job.is_reserved());
        assert!(!job.has_begun() || job.lease_id.is_some());
        if let (Some(began), Some(ended)) = (job.started_at, job.ended_at) {
            assert!(began <= ended && ended <= self.world.now.wall);
        }
        assert_eq!(job.ended_at.is_some(), job.state.is_ended());
        assert!(job.waiting_for.is_empty() || job.state == JobState::Queued);
        assert!(job.attempts <= job.intent.max_attempts);
        assert!(
            job.state.is_ended() || job.attempts < job.intent.max_attempts,
            "an attempt is left"
        );
        assert!(job.rescues <= most);
        assert!(job.state.is_ended() || job.rescues < most);
        assert!(!job.quarantined || (job.state == JobState::Failed && job.rescues == most));
        assert!(job.cancel_requested_at.is_none() || job.is_held() || job.state.is_ended());
        assert!(job.completions.len() <= JobRecord::COMPLETIONS);
        // Who waits for something that has ended waits for ever.
        for dependency in &job.waiting_for {
            assert!(!self.world.state(*dependency).is_ended());
        }
    }

    fn check_keys(&self) {
        let mut unique = BTreeSet::new();
        for job in self.world.jobs.values().filter(|job| !job.state.is_ended()) {
            if job.intent.unique_key.is_some() {
                assert!(
                    unique.insert(job.intent.addon_id.clone()),
                    "two unique jobs"
                );
            }
            assert!(self.world.key_holders(job) <= job.intent.concurrency_limit);
        }
    }
}

fn run(seed: u64, steps: usize) -> (BTreeMap<EventKind, usize>, BTreeMap<String, usize>) {
    let dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut run = Run {
        world: World::new(),
        dice,
        leases: Vec::new(),
        seen: BTreeMap::new(),
        refused: BTreeMap::new(),
    };
    run.world.rules.quarantine_after = 2;
    for _ in 0..steps {
        let used = run.world.used();
        let events = run.world.events.len();
        run.step();
        let fresh: BTreeSet<EventKind> = run.world.events[events..]
            .iter()
            .map(|event| event.kind)
            .collect();
        let grants = [
            EventKind::LeaseGranted,
            EventKind::Dispatching,
            EventKind::Redriven,
        ];
        if fresh.is_disjoint(&grants.into()) {
            assert!(run.world.used() <= used, "only a grant takes capacity");
        }
        run.check();
    }
    for event in &run.world.events {
        *run.seen.entry(event.kind).or_default() += 1;
    }
    (run.seen, run.refused)
}

#[test]
fn random_commands_keep_what_must_hold() {
    let _watch = watch();
    let seeds: u64 =
        std::env::var("JOBTREE_STRESS").map_or(30, |factor| 30 * factor.parse::<u64>().unwrap());
    let mut seen: BTreeMap<EventKind, usize> = BTreeMap::new();
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 1..=seeds {
        let result = std::panic::catch_unwind(|| run(seed, 250));
        let (events, errors) = result.unwrap_or_else(|_| panic!("seed {seed}"));
        events
            .into_iter()
            .for_each(|(kind, count)| *seen.entry(kind).or_default() += count);
        errors
            .into_iter()
            .for_each(|(name, count)| *refused.entry(name).or_default() += count);
    }
    // The walk gets everywhere: every kind of event and most refusals happen.
    let never: Vec<_> = EventKind::ALL
        .iter()
        .filter(|kind| !seen.contains_key(kind))
        .collect();
    assert_eq!(never, [&EventKind::Log, &EventKind::LoadState]);
    let wanted = [
        "WrongState",
        "NotYourLease",
        "LeaseEnded",
        "UnfinishedJobs",
        "NotDue",
        "KeyConflict",
        "NothingToClaim",
        "UniqueConflict",
        "DependencyFailed",
        "TakenUp",
        "OtherAddon",
        "NotInLease",
        "Waiting",
        "TooEarly",
        "KeyFull",
        "KeepsBatch",
    ];
    let missed: Vec<_> = wanted
        .iter()
        .filter(|name| !refused.contains_key(**name))
        .collect();
    assert!(missed.is_empty(), "{missed:?} of {refused:?}");
    assert!(!refused.contains_key("Inconsistent"));
}
