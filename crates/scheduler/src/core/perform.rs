//! Carries out against a store what the core asks of it. The engine and the simulator use the same.

use std::future::Future;
use std::pin::Pin;

use jobtree_protocol::ReleaseRequest;
use jobtree_store::{Stamp, Store, StoreError};

use super::io::{Answered, Live, Op, PAGE, Wait, Waited};

/// An operation that is under way.
pub type Performing = Pin<Box<dyn Future<Output = Result<Answered, StoreError>> + Send>>;

/// Begins an operation.
pub fn perform(store: &Store, stamp: Stamp, op: Op) -> Performing {
    match op {
        Op::Reserve(job, command) => {
            let answer = store.reserve(stamp, job, command);
            Box::pin(async { answer.await.map(Answered::Reserved) })
        }
        Op::Claim(jobs, command) => {
            let answer = store.claim(stamp, jobs, command);
            Box::pin(async { answer.await.map(Answered::Claimed) })
        }
        Op::Admit(command) => {
            let answer = store.admit(stamp, command);
            Box::pin(async { answer.await.map(Answered::Admitted) })
        }
        Op::Return {
            job,
            reservation,
            why,
        } => done(store.return_unclaimed(stamp, job, reservation, why)),
        Op::Expire(lease, proof) => done(store.expire(stamp, lease, proof)),
        Op::TimeOut(lease, command) => done(store.time_out(stamp, lease, command)),
        Op::Deny { job, code, reason } => done(store.deny(stamp, job, code, reason)),
        Op::AtRisk(job, reason) => done(store.mark_at_risk(stamp, job, reason)),
        Op::MissDeadline(job) => done(store.miss_deadline(stamp, job)),
        Op::GiveBack(lease) => {
            let request = ReleaseRequest {
                return_jobs: true,
                reason: Some("nobody took the answer".to_owned()),
            };
            done(store.release(stamp, lease, request))
        }
        Op::Fire(firing) => {
            let answer = store.fire(stamp, *firing);
            Box::pin(async { answer.await.map(|_| Answered::Fired) })
        }
        Op::Prune(retention, limit) => {
            let answer = store.prune(stamp, retention, limit);
            Box::pin(async { answer.await.map(Answered::Pruned) })
        }
        Op::Note(name, value) => done(store.put_note(stamp, name, Some(value))),
        read => ask(store, read),
    }
}

fn done<T: Send + 'static>(answer: jobtree_store::Answer<T>) -> Performing {
    Box::pin(async { answer.await.map(|_| Answered::Done) })
}

/// Questions.
fn ask(store: &Store, op: Op) -> Performing {
    let answer = store.read(move |tables| {
        Ok(match op {
            Op::ReadLive => {
                let leases = tables.live_leases()?;
                let ids: Vec<_> = leases
                    .iter()
                    .flat_map(|lease| lease.jobs.iter().map(|job| job.id))
                    .collect();
                Answered::Live(Live {
                    running: tables.jobs(&ids)?,
                    leases,
                    dispatching: tables.dispatching()?,
                    pauses: tables.pauses()?,
                    schedules: tables.schedules()?,
                })
            }
            Op::ReadNotes => Answered::Notes(tables.notes(super::notes::PREFIX)?),
            Op::ReadQueued(after) => Answered::Queued(tables.queued(after, PAGE)?),
            Op::Look(ids) => Answered::Looked(tables.jobs(&ids)?),
            Op::FindLease(id) => Answered::Found(match tables.lease(id)? {
                None => None,
                Some(lease) => {
                    let ids: Vec<_> = lease.jobs.iter().map(|job| job.id).collect();
                    let mut jobs = tables.jobs(&ids)?;
                    jobs.sort_by_key(|job| job.lease_position);
                    Some((lease, jobs))
                }
            }),
            Op::ReadWait(Wait::Ended(id)) => {
                let job = tables.jobs(&[id])?.pop().ok_or(StoreError::NoJob(id))?;
                let lease = match job.lease_id {
                    None => None,
                    Some(lease) => tables.lease(lease)?,
                };
                Answered::Waited(Waited::Job(job.state, Box::new(job.view(lease.as_ref()))))
            }
            Op::ReadWait(Wait::Dispatchable(addon)) => {
                let mut jobs = tables.dispatching()?;
                jobs.retain(|job| {
                    addon
                        .as_ref()
                        .is_none_or(|addon| *addon == job.intent.addon_id)
                });
                Answered::Waited(Waited::Jobs(
                    jobs.iter().map(|job| job.view(None)).collect(),
                ))
            }
            Op::ReadWait(Wait::Events { after, limit }) => {
                Answered::Waited(Waited::Events(tables.events_after(after, limit)?))
            }
            Op::ReadWait(Wait::Log { job, after }) => {
                let page = jobtree_store::read_log(tables, job, after, usize::MAX)?;
                Answered::Waited(Waited::Log(Box::new(page)))
            }
            Op::Count => Answered::Counted(tables.counts(true)?),
            _ => unreachable!("every command is carried out above"),
        })
    });
    Box::pin(answer)
}
