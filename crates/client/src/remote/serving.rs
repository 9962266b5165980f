//! The side that answers.

use jobtree_lanes::remote::{RemoteError, RemoteService};
use jobtree_runtime::BoxError;
use jobtree_worker::{Permanent, Run};

use super::carried::{CarriedAnswer, CarriedRequest, ended, told};
use crate::worker::Worker;

/// Has a worker do what `service` offers, for requests that come as jobs of this type.
///
/// ```no_run
/// use jobtree_client::{Client, Worker, remote};
/// use jobtree_lanes::remote::RemoteService;
///
/// let service = RemoteService::new("assets");
/// service.handle("load", |request| Ok(std::fs::read(std::str::from_utf8(&request.payload)?)?));
/// let client = Client::new("http://127.0.0.1:7717")?;
/// remote::serve(Worker::new(client).addon("game"), "asset", &service).run()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn serve(worker: Worker, job_type: &str, service: &RemoteService) -> Worker {
    let service = service.clone();
    worker.handle(job_type, move |request: CarriedRequest, run: &Run| {
        perform(&service, request, run)
    })
}

fn perform(
    service: &RemoteService,
    request: CarriedRequest,
    run: &Run,
) -> Result<CarriedAnswer, BoxError> {
    let refused = |error: &RemoteError| BoxError::from(Permanent::new(told(error)));
    if run.attempt() > 1 {
        let why = "the worker that had it was lost".to_owned();
        return Err(refused(&RemoteError::ConnectionLost(why)));
    }
    let request = request.into_request().map_err(|error| refused(&error))?;
    // Whatever came of it, nobody does it again.
    ended(service.answer(request)).map_err(|error| Permanent::new(error).into())
}
