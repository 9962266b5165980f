//! Asking for leases, as many as there are places for.

use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{ApiError, ClaimAnswer, ClaimRequest, ErrorCode, Limits};
use jobtree_runtime::channel::{self, Receiver, Sender};
use jobtree_runtime::{BoxError, select};

use crate::draw;
use crate::grantor::SchedulerPlace;
use crate::process_origin::process_origin;
use crate::worker::Shared;

/// How long a claim waits for something to do before it is made anew.
const CLAIM_WAIT_SEC: u32 = 20;

/// A place for a lease; free again when it is dropped.
pub(crate) struct Slot(Sender<()>);

impl Drop for Slot {
    fn drop(&mut self) {
        // There is room: it was taken out before.
        let _ = self.0.try_send(());
    }
}

/// The circumstances of a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// When it was first asked for, by the worker's own clock.
    pub(crate) at: Duration,
    /// Its scheduler knows begins.
    pub(crate) reports: bool,
    /// An answer to the same claim may have got lost: nothing says when the lease was granted.
    pub(crate) is_repeated: bool,
}

/// Claims as many leases as there are places, again and again, until it is stopped.
///
/// There are twice as many places as jobs that may run at once: for short jobs, the next lease is there before the one
/// before is done with. Of longer ones none waits here.
pub(crate) fn claim(
    shared: &Arc<Shared>,
    stopped: &Receiver<()>,
    mut start: impl FnMut(ClaimAnswer, Asked, Slot),
) -> Result<(), BoxError> {
    let setup = &shared.setup;
    let places = setup.concurrency.saturating_mul(2);
    // What a scheduler takes in one claim: it refuses more, and a worker that asks for too much would never get anything.
    let most = Limits::default().batch;
    let (give, free) = channel::bounded(places);
    let mut spare = places;
    let mut lost = None;
    let mut pause = Duration::from_millis(50);
    let place = shared.grantor().place();
    let own = [std::process::id()];
    let pids: &[u32] = match place {
        SchedulerPlace::Elsewhere => &[],
        SchedulerPlace::SameProcess | SchedulerPlace::SameMachine => &own,
    };
    let is_told = place == SchedulerPlace::SameMachine;
    let origin = is_told.then(|| process_origin(pids)).flatten();
    loop {
        while free.try_recv().is_ok() {
            spare += 1;
        }
        let kept = if shared.pace.is_short() {
            0
        } else {
            places - setup.concurrency
        };
        let wanted = capped(spare.saturating_sub(kept), most);
        if wanted == 0 {
            select! {
                recv(stopped) -> _ => return Ok(()),
                recv(free) -> _ => spare += 1,
            }?;
            continue;
        }
        // A claim that may have been granted in an answer that got lost is made again, as it was.
        let is_repeated = lost.is_some();
        let (lease_id, asked) = match lost.take() {
            Some((lease_id, asked)) => (Some(lease_id), asked),
            None => {
                // Only a claim for one lease can be repeated: so they are asked for one by one where answers get lost.
                let drawn = shared.grantor().loses_answers().then(draw::lease_id);
                (drawn, shared.grantor().mono())
            }
        };
        let reports = shared.reports_begins();
        // Of the leases that are held, as many run as may; only this claim can bring more meanwhile.
        let idle = setup.concurrency.saturating_sub(places - spare);
        let reply = shared.grantor().claim(ClaimRequest {
            lease_id,
            addon_id: setup.addon.clone(),
            job_types: setup.types.clone(),
            max_jobs: shared.pace.batch(setup.batch.min(most)),
            max_leases: if lease_id.is_some() { 1 } else { wanted },
            wait_sec: CLAIM_WAIT_SEC,
            instance_id: shared.instance,
            node_id: None,
            pids: pids.to_vec(),
            process_origin: origin.clone().filter(|_| reports),
            begins_now: reports.then(|| capped(idle, most)),
            returns_unbegun: reports,
        });
        let answer = select! {
            recv(stopped) -> _ => return Ok(()),
            future(reply) -> answer => answer,
        }?;
        match answer {
            Ok(leases) => {
                pause = Duration::from_millis(50);
                for lease in leases {
                    spare = spare.saturating_sub(1);
                    let asked = Asked {
                        at: asked,
                        reports,
                        is_repeated,
                    };
                    start(lease, asked, Slot(give.clone()));
                }
            }
            // It has taken nothing: the claim is made again in its words.
            Err(error) if reports && does_not_know_begins(&error) => shared.report_no_begins(),
            Err(error) => {
                shared.note(&error);
                if error.code == ErrorCode::Unavailable {
                    lost = lease_id.map(|lease_id| (lease_id, asked));
                }
                select! {
                    recv(stopped) -> _ => return Ok(()),
                    after(pause) => pause = (pause * 2).min(Duration::from_secs(5)),
                }?;
            }
        }
    }
}

/// Returns `count`, or `most` if that is less.
fn capped(count: usize, most: u32) -> u32 {
    u32::try_from(count).map_or(most, |count| count.min(most))
}

/// Returns `true` if a scheduler refused a claim because it is of a release that does not know begins: it refuses fields
/// that it does not know, and names the first. That release does not know the origin of processes either.
fn does_not_know_begins(error: &ApiError) -> bool {
    let about_content = matches!(error.code, ErrorCode::Malformed | ErrorCode::Invalid);
    const UNKNOWN: [&str; 3] = ["begins_now", "returns_unbegun", "process_origin"];
    let names = |text: &str| UNKNOWN.iter().any(|field| text.contains(field));
    about_content
        && (names(&error.message)
            || error
                .fields
                .iter()
                .any(|it| names(&it.message) || names(&it.field)))
}
