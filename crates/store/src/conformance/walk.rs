//! Random runs, compared with the same run in memory: each answer, each record, each trail must be the same.

use std::fmt::Debug;

use jobtree_protocol::{
    CancelRequest, CompleteRequest, EditRequest, Heartbeat, InHand, JobId, JobQuery, JobState,
    LeaseId, OnDependencyFailure, Priority, ReleaseRequest, RevokeRequest, SubmitRequest,
};
use jobtree_queue::transitions::{Abilities, Claim, LoadAdvice, Proof, Reserve, TakeUp, Unclaimed};

use super::world::{World, node, plain};
use crate::answer::Answer;
use crate::execute::Stamp;
use crate::store::Store;

/// Runs so many random commands of this seed on the store and in memory. The store must be new and empty.
pub fn compare(seed: u64, steps: usize, store: &Store) {
    let walk = Walk {
        world: World::new(store.clone()),
        model: Store::in_memory(),
        seed,
    };
    for _ in 0..seed % 1000 {
        walk.world.draw();
    }
    let mut known = Known::default();
    for step in 0..steps {
        walk.step(step, &mut known);
    }
    walk.compare_all(&known);
    walk.world.audit(&format!("walk {seed}"));
}

#[derive(Default)]
struct Known {
    jobs: Vec<JobId>,
    leases: Vec<LeaseId>,
    reservations: Vec<(JobId, LeaseId)>,
}

struct Walk {
    world: World,
    model: Store,
    seed: u64,
}

impl Walk {
    /// Asks both, and compares.
    fn both<T: PartialEq + Debug + Clone>(
        &self,
        step: usize,
        what: &str,
        ask: impl Fn(&Store, Stamp) -> Answer<T>,
    ) -> T {
        let stamp = self.world.stamp();
        let expected = ask(&self.model, stamp.clone()).wait();
        let given = ask(&self.world.store, stamp).wait();
        assert_eq!(given, expected, "seed {}, step {step}: {what}", self.seed);
        match given {
            Ok(given) => given,
            Err(_) => unreachable!("callers wrap what can be refused"),
        }
    }

    fn try_both<T: PartialEq + Debug>(
        &self,
        step: usize,
        what: &str,
        ask: impl Fn(&Store, Stamp) -> Answer<T>,
    ) -> Option<T> {
        let stamp = self.world.stamp();
        let expected = ask(&self.model, stamp.clone()).wait();
        let given = ask(&self.world.store, stamp).wait();
        assert_eq!(given, expected, "seed {}, step {step}: {what}", self.seed);
        given.ok()
    }

    fn below(&self, bound: usize) -> usize {
        (self.world.draw() % bound.max(1) as u64) as usize
    }

    fn some<T: Copy>(&self, of: &[T]) -> Option<T> {
        // Mostly of the last ones, which are likelier to be alive.
        let from = of.len().saturating_sub(12);
        let from = if self.below(4) == 0 { 0 } else { from };
        of.get(from + self.below(of.len() - from)).copied()
    }

    fn request(&self, known: &Known) -> SubmitRequest {
        let draw = self.world.draw();
        let key = |name: &str| Some(format!("{name}{}", draw % 7));
        SubmitRequest {
            addon_id: ["visuals", "sounds"][(draw % 2) as usize].into(),
            cost_units: 1 + (draw % 50) as i64,
            idempotency_key: key("i").filter(|_| draw.is_multiple_of(11)),
            unique_key: key("u").filter(|_| draw.is_multiple_of(13)),
            concurrency_key: key("c").filter(|_| draw.is_multiple_of(3)),
            max_attempts: Some(1 + (draw % 3) as i64),
            max_runtime_sec: Some(60).filter(|_| draw.is_multiple_of(5)),
            depends_on: self
                .some(&known.jobs)
                .into_iter()
                .filter(|_| draw.is_multiple_of(4))
                .collect(),
            on_dependency_failure: if draw.is_multiple_of(8) {
                OnDependencyFailure::Run
            } else {
                OnDependencyFailure::Cancel
            },
            tags: if draw.is_multiple_of(6) {
                vec!["t".into()]
            } else {
                Vec::new()
            },
            ..plain()
        }
    }

    fn step(&self, step: usize, known: &mut Known) {
        let world = &self.world;
        world.advance([0, 0, 1, 7, 40][self.below(5)]);
        match self.below(14) {
            0..4 => {
                let batch: Vec<_> = (0..1 + self.below(4))
                    .map(|_| world.submission(self.request(known)))
                    .collect();
                let answers = self.both(step, "submit", |store, stamp| {
                    store.submit_many(stamp, batch.clone())
                });
                let ids = answers.into_iter().flatten().map(|answer| answer.job_id);
                known.jobs.extend(ids);
            }
            4..7 => {
                let jobs: Vec<_> = (0..1 + self.below(4))
                    .filter_map(|_| self.some(&known.jobs))
                    .collect();
                let mut jobs = jobs;
                jobs.sort_unstable();
                jobs.dedup();
                let lease_id = world.lease_id();
                let worker = Abilities {
                    reports_begin: self.below(2) == 0,
                    begins_now: self.below(2) == 0,
                    returns_unbegun: self.below(2) == 0,
                    in_process: self.below(2) == 0,
                };
                let claim = || Claim {
                    worker,
                    lease_id,
                    node_id: node(),
                    instance_id: None,
                    pids: Vec::new(),
                    process_origin: None,
                    reason: "walk".into(),
                };
                self.try_both(step, "claim", |store, stamp| {
                    store.claim(stamp, jobs.clone(), claim())
                });
                known.leases.push(lease_id);
            }
            7..10 => self.complete_some(step, known),
            10 => {
                let Some(job) = self.some(&known.jobs) else {
                    return;
                };
                let reservation_id = world.lease_id();
                let reserve = || Reserve {
                    reservation_id,
                    node_id: node(),
                    key_holders: 0,
                    reason: "walk".into(),
                };
                if self
                    .try_both(step, "reserve", |store, stamp| {
                        store.reserve(stamp, job, reserve())
                    })
                    .is_some()
                {
                    known.reservations.push((job, reservation_id));
                }
            }
            11 => {
                let Some((job, reservation)) = self.some(&known.reservations) else {
                    return;
                };
                if self.below(2) == 0 {
                    let why = || Unclaimed::TimedOut(Proof::Wall);
                    self.try_both(step, "return", |store, stamp| {
                        store.return_unclaimed(stamp, job, reservation, why())
                    });
                } else {
                    let lease_id = world.lease_id();
                    let take_up = || TakeUp {
                        lease_id,
                        instance_id: None,
                        pids: vec![1],
                        process_origin: None,
                    };
                    self.try_both(step, "take up", |store, stamp| {
                        store.take_up(stamp, job, take_up())
                    });
                    known.leases.push(lease_id);
                }
            }
            12 => self.end_some(step, known),
            _ => {
                let Some(job) = self.some(&known.jobs) else {
                    return;
                };
                match self.below(4) {
                    3 => self.edit_some(step, job),
                    0 => self.try_both(step, "redrive", |store, stamp| {
                        store.redrive(stamp, job, None)
                    }),
                    1 => self
                        .try_both(step, "hasten", |store, stamp| store.hasten(stamp, job))
                        .map(|()| JobState::Queued),
                    _ => self.try_both(step, "cancel", |store, stamp| {
                        store.cancel(stamp, job, CancelRequest::default())
                    }),
                };
            }
        }
    }

    fn edit_some(&self, step: usize, job: JobId) -> Option<JobState> {
        let draw = self.below(8);
        let request = EditRequest {
            priority: [None, Some(Priority::Low), Some(Priority::High)][draw % 3],
            tags: (draw < 5).then(|| vec![format!("edited{}", draw % 2), "t".into()]),
            earliest_start_at: (draw == 7).then_some(None),
            deadline_at: None,
        };
        let edit = |store: &Store, stamp| store.edit(stamp, job, request.clone());
        let edited = self.try_both(step, "edit", edit);
        edited.map(|job| job.state)
    }

    fn complete_some(&self, step: usize, known: &Known) {
        let Some(lease) = self.some(&known.leases) else {
            return;
        };
        let Ok(record) = self.model.lease(lease).wait() else {
            return;
        };
        let ids: Vec<JobId> = record.jobs.iter().map(|job| job.id).collect();
        let mut requests: Vec<_> = record
            .jobs
            .iter()
            .filter(|_| self.below(3) > 0)
            .map(|job| {
                let request = if self.below(3) == 0 {
                    CompleteRequest::failed(lease, "walk")
                } else {
                    CompleteRequest::done(lease, None)
                };
                let ago = |most| Some(self.below(most) as u64).filter(|ago| ago % 2 == 0);
                let request = CompleteRequest {
                    began_ms_ago: ago(9000),
                    ended_ms_ago: ago(3000),
                    ..request
                };
                (job.id, request)
            })
            .collect();
        if let (Some((_, last)), Some(job)) = (requests.last_mut(), self.some(&ids)) {
            last.in_hand = Some(InHand {
                job_id: job,
                began_ms_ago: self.below(5000) as u64,
            });
        }
        if let Some(job) = self
            .some(&known.jobs)
            .filter(|job| record.job(*job).is_none())
        {
            requests.push((job, CompleteRequest::done(lease, None)));
        }
        self.both(step, "complete", |store, stamp| {
            store.complete_many(stamp, requests.clone())
        });
    }

    fn end_some(&self, step: usize, known: &Known) {
        let Some(lease) = self.some(&known.leases) else {
            return;
        };
        match [0, 1, 2, 2, 2, 3][self.below(6)] {
            0 => {
                let request = ReleaseRequest {
                    return_jobs: true,
                    ..ReleaseRequest::default()
                };
                self.try_both(step, "release", |store, stamp| {
                    store.release(stamp, lease, request.clone())
                });
            }
            1 => {
                self.try_both(step, "revoke", |store, stamp| {
                    store.revoke(stamp, lease, RevokeRequest::default())
                });
            }
            2 => self.talk(step, lease, known),
            _ => {
                let proof = [Proof::Wall, Proof::OwnerGone][self.below(2)];
                self.try_both(step, "expire", |store, stamp| {
                    store.expire(stamp, lease, proof)
                });
            }
        }
    }

    /// A worker tells what it has in hand and what it gives back, or is asked for what it has not begun.
    fn talk(&self, step: usize, lease: LeaseId, known: &Known) {
        let Ok(record) = self.model.lease(lease).wait() else {
            return;
        };
        let ids: Vec<JobId> = record.jobs.iter().map(|job| job.id).collect();
        if self.below(3) == 0 {
            let mut wanted = ids;
            wanted.extend(self.some(&known.jobs));
            self.try_both(step, "ask back", |store, stamp| {
                store.ask_back(stamp, lease, wanted.clone())
            });
            return;
        }
        let mut given_back = record.asked_back.clone();
        if record.returns_unbegun && self.below(4) == 0 {
            given_back.extend(self.some(&ids));
        }
        let beat = Heartbeat {
            job_id: self.some(&ids).filter(|_| self.below(2) == 0),
            began_ms_ago: Some(self.below(9000) as u64).filter(|ago| ago % 2 == 0),
            given_back,
            ..Heartbeat::of(lease)
        };
        self.try_both(step, "heartbeat", |store, stamp| {
            store.heartbeat(stamp, beat.clone(), LoadAdvice::default())
        });
    }

    fn compare_all(&self, known: &Known) {
        let step = usize::MAX;
        for job in &known.jobs {
            self.try_both(step, "a job", |store, _| store.job(*job));
            self.both(step, "a trail", |store, _| {
                store.read({
                    let job = *job;
                    move |tables| {
                        Ok(tables
                            .events_of(job)?
                            .into_iter()
                            .map(|recorded| recorded.event)
                            .collect::<Vec<_>>())
                    }
                })
            });
        }
        for lease in &known.leases {
            self.try_both(step, "a lease", |store, _| store.lease(*lease));
        }
        self.both(step, "waiting jobs", |store, _| store.queued(None, 1000));
        self.both(step, "live leases", |store, _| store.live_leases());
        self.both(step, "dispatched jobs", |store, _| store.dispatching());
        let queries = JobState::ALL.iter().map(|state| JobQuery {
            state: vec![*state],
            ..JobQuery::default()
        });
        for query in queries {
            self.both(step, "a list", |store, _| store.list(query.clone(), 1000));
        }
    }
}
