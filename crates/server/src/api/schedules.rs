//! Schedules. Writing one is submitting its jobs ahead of time, and needs the same scope.

use std::sync::Arc;

use jobtree_protocol::operations::{
    CreateSchedule, GetSchedule, ListSchedules, PauseSchedule, ReplaceSchedule, ResumeSchedule,
};
use jobtree_protocol::{ScheduleList, ScheduleView};

use super::route::{Call, routes};
use crate::daemon::Daemon;
use crate::problem::Answered;

jobtree_protocol::schedule_operations!(routes);

async fn list_schedules(daemon: Arc<Daemon>, call: Call<ListSchedules>) -> Answered<ScheduleList> {
    let mut schedules = daemon.scheduler.schedules().await?;
    if let Some(own) = call.caller.addon() {
        schedules.retain(|schedule| schedule.spec.job.addon_id == own.as_str());
    }
    Ok(ScheduleList { schedules })
}

async fn get_schedule(daemon: Arc<Daemon>, mut call: Call<GetSchedule>) -> Answered<ScheduleView> {
    call.view(&daemon).await
}

async fn create_schedule(
    daemon: Arc<Daemon>,
    call: Call<CreateSchedule>,
) -> Answered<ScheduleView> {
    call.caller.acts_for(&call.body.job.addon_id)?;
    Ok(daemon.scheduler.put_schedule(None, call.body).await?)
}

async fn replace_schedule(
    daemon: Arc<Daemon>,
    mut call: Call<ReplaceSchedule>,
) -> Answered<ScheduleView> {
    call.view(&daemon).await?;
    call.caller.acts_for(&call.body.job.addon_id)?;
    let replaced = daemon.scheduler.put_schedule(Some(call.id), call.body);
    Ok(replaced.await?)
}

async fn pause_schedule(daemon: Arc<Daemon>, call: Call<PauseSchedule>) -> Answered<ScheduleView> {
    Ok(daemon.scheduler.pause_schedule(call.id, true).await?)
}

async fn resume_schedule(
    daemon: Arc<Daemon>,
    call: Call<ResumeSchedule>,
) -> Answered<ScheduleView> {
    Ok(daemon.scheduler.pause_schedule(call.id, false).await?)
}
