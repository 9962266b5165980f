//! Actions on all jobs that a query finds: prepared, started, watched, stopped.

use std::sync::Arc;

use jobtree_protocol::operations::{
    GetBulkAction, ListBulkActions, PrepareBulkAction, StartBulkAction, StopBulkAction,
};
use jobtree_protocol::{BulkList, BulkRequest, BulkView, JobQuery};

use super::route::{Call, routes};
use crate::daemon::Daemon;
use crate::problem::{Answered, Refusal};

jobtree_protocol::bulk_operations!(routes);

async fn list_bulk_actions(daemon: Arc<Daemon>, call: Call<ListBulkActions>) -> Answered<BulkList> {
    let actions = daemon.bulk.list(call.caller.addon());
    Ok(BulkList { actions })
}

async fn prepare_bulk_action(
    daemon: Arc<Daemon>,
    call: Call<PrepareBulkAction>,
) -> Answered<BulkView> {
    let query = call.body.query;
    let Some(addon_id) = call.caller.narrowed(query.addon_id.clone()) else {
        return Err(Refusal::forbidden(
            "the token is for another addon: leave addon_id out, or use another token",
        ));
    };
    let request = BulkRequest {
        query: JobQuery { addon_id, ..query },
        ..call.body
    };
    let by = call.caller.name().to_owned();
    Ok(daemon.bulk.prepare(&daemon.scheduler, request, by).await?)
}

async fn get_bulk_action(daemon: Arc<Daemon>, call: Call<GetBulkAction>) -> Answered<BulkView> {
    Ok(daemon.bulk.get(call.id, call.caller.addon())?)
}

async fn start_bulk_action(daemon: Arc<Daemon>, call: Call<StartBulkAction>) -> Answered<BulkView> {
    let addon = call.caller.addon();
    Ok(daemon.bulk.start(&daemon.scheduler, call.id, addon)?)
}

async fn stop_bulk_action(daemon: Arc<Daemon>, call: Call<StopBulkAction>) -> Answered<BulkView> {
    Ok(daemon.bulk.stop(call.id, call.caller.addon())?)
}
