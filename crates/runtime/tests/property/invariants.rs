//! What must hold at every moment, whatever the model says.

use jobtree_runtime::{Job, JobState};

use crate::told::Id;
use crate::world::World;

/// Looks at the real tree after every step.
#[derive(Default)]
pub struct Watch {
    /// The state in which each job was last seen.
    last: Vec<Option<JobState>>,
}

impl Watch {
    /// # Errors
    /// With the first invariant that does not hold.
    pub fn check(&mut self, jobs: &[Option<Job>], world: &World) -> Result<(), String> {
        self.last.resize(jobs.len(), None);
        for (number, job) in jobs.iter().enumerate() {
            let Some(job) = job else { continue };
            let (before, now) = (self.last[number], job.state());
            if !may_follow(before, now) {
                return Err(format!("job {number} went from {before:?} to {now:?}"));
            }
            if before.is_some_and(JobState::is_terminal) {
                continue;
            }
            self.last[number] = Some(now);
            check_children(number, job, now, jobs, world)?;
        }
        Ok(())
    }
}

fn check_children(
    number: Id,
    job: &Job,
    state: JobState,
    jobs: &[Option<Job>],
    world: &World,
) -> Result<(), String> {
    let children = job.children();
    if state.is_terminal() && !children.is_empty() {
        return Err(format!("job {number} is {state} but has active children"));
    }
    for child in children {
        let child_number = jobs.iter().position(|known| known.as_ref() == Some(&child));
        let is_shielded = child_number.is_some_and(|n| world.tree.jobs[n].nature.shielded);
        if job.is_cancelled() && !child.is_cancelled() && !is_shielded {
            return Err(format!(
                "job {number} is cancelled, but its child {child_number:?} is not"
            ));
        }
        if child.parent().as_ref() != Some(job) {
            return Err(format!("a child of {number} has another parent"));
        }
    }
    Ok(())
}

/// Whether a job may be seen in one state and then in another, some steps of its life later.
fn may_follow(before: Option<JobState>, after: JobState) -> bool {
    use JobState::{Active, Cancelling, Completed, Completing, Pending};
    let Some(before) = before else { return true };
    match before {
        same if same == after => true,
        Pending => true,
        Active => after != Pending,
        Completing => !matches!(after, Pending | Active),
        Cancelling => after.is_terminal() && after != Completed,
        _ => false,
    }
}
