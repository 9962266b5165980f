//! Jobs of a manager below jobs that are none of its own.

mod support;

use std::sync::mpsc;
use std::time::Duration;

use jobtree_lanes::{JobManager, Lane, LaneJob, PumpLimit};
use jobtree_runtime::{BoxError, Job, JobError, Runtime, labelled_nursery, sleep};
use support::{FAR, for_ever, watch};

fn house() -> (Runtime, JobManager) {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let manager = JobManager::builder().runtime(&runtime).build().unwrap();
    (runtime, manager)
}

#[test]
fn a_host_that_is_cancelled_takes_its_guest_and_all_below_it_along() {
    let _watchdog = watch();
    let (runtime, manager) = house();
    let (told, tells) = mpsc::channel();
    let inside = manager.clone();
    let host = runtime.spawn(move || {
        let guest = LaneJob::action(move || {
            Ok(labelled_nursery("scope", |n| {
                let tells = told.clone();
                n.job_options().label("leaf").launch(move || {
                    tells.send(Job::current().unwrap())?;
                    for_ever()
                });
                told.send(Job::current().unwrap())?;
                Ok(sleep(FAR)?)
            })?)
        });
        Ok(inside.schedule_child(guest.label("guest")).join()?)
    });
    let below = [tells.recv().unwrap(), tells.recv().unwrap()];
    let leaf = below.iter().find(|job| job.label() == "leaf").unwrap();
    assert!(
        leaf.path().ends_with("/guest/scope/leaf"),
        "{}",
        leaf.path()
    );
    let dump = host.job().dump_tree();
    let labels: Vec<&str> = dump.jobs()[1..]
        .iter()
        .map(|job| job.label.as_str())
        .collect();
    assert_eq!(labels, ["guest", "scope", "leaf"]);
    host.cancel("enough");
    let job = host.job().clone();
    assert!(matches!(host.join(), Err(JobError::Cancelled(_))));
    assert!(job.is_ended() && below.iter().all(Job::is_ended));
    assert_eq!(manager.slots().in_use, 0);
    manager.shutdown(FAR).unwrap();
    runtime.shutdown(FAR).unwrap();
}

#[test]
fn a_guest_that_fails_is_its_hosts_to_handle() {
    let _watchdog = watch();
    let (runtime, manager) = house();
    let host = runtime.spawn(move || {
        let guest = LaneJob::action(|| Err::<(), BoxError>("no luck".into()));
        let said = manager
            .schedule_child(guest)
            .join()
            .unwrap_err()
            .to_string();
        assert!(said.contains("no luck"), "{said}");
        let second = manager.schedule_child(LaneJob::action(|| Ok(7)));
        Ok(second.join()?)
    });
    assert_eq!(host.join().unwrap(), 7);
    runtime.shutdown(FAR).unwrap();
}

#[test]
fn a_manager_that_is_shut_down_ends_its_guests_and_not_their_hosts() {
    let _watchdog = watch();
    let (runtime, manager) = house();
    let (told, tells) = mpsc::channel();
    let inside = manager.clone();
    let host = runtime.spawn(move || {
        let guests = [Lane::Any, Lane::Main].map(|lane| {
            let told = told.clone();
            let guest = LaneJob::action(move || {
                told.send(())?;
                Ok(sleep(FAR)?)
            });
            inside.schedule_child(guest.lane(lane))
        });
        let ended = guests.map(|guest| guest.join().is_err());
        let late = inside.schedule_child(LaneJob::action(|| Ok(())));
        Ok((ended, late.is_canceled()))
    });
    tells.recv().unwrap();
    // The other one lies in a lane that nobody pumps.
    while manager.queued(&Lane::Main) == 0 {
        std::thread::yield_now();
    }
    manager.shutdown(FAR).unwrap();
    assert_eq!(manager.slots().in_use, 0);
    assert_eq!(host.join().unwrap(), ([true, true], true));
    runtime.shutdown(FAR).unwrap();
}

#[test]
fn a_guest_that_does_not_end_is_named_by_the_shutdown() {
    let _watchdog = watch();
    let (runtime, manager) = house();
    let (told, tells) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let inside = manager.clone();
    let host = runtime.spawn(move || {
        let deaf = LaneJob::action(move || {
            told.send(())?;
            Ok(goes.recv()?)
        });
        Ok(inside.schedule_child(deaf.label("deaf")).wait().is_err())
    });
    tells.recv().unwrap();
    let error = manager.shutdown(Duration::from_millis(1)).unwrap_err();
    assert_eq!(error.stragglers().len(), 1, "{error}");
    assert!(error.stragglers()[0].ends_with("/deaf"), "{error}");
    go.send(()).unwrap();
    host.join().unwrap();
    manager.shutdown(FAR).unwrap();
    runtime.shutdown(FAR).unwrap();
}

#[test]
fn outside_of_a_job_it_is_the_managers_own() {
    let _watchdog = watch();
    let (runtime, manager) = house();
    let job = LaneJob::action(|| Ok(Job::current().unwrap().parent()));
    let handle = manager.schedule_child(job.lane(Lane::Main));
    assert_eq!(handle.job().parent().as_ref(), Some(manager.job()));
    manager.pump(&Lane::Main, PumpLimit::default()).unwrap();
    assert_eq!(handle.join().unwrap().as_ref(), Some(manager.job()));
    manager.shutdown(FAR).unwrap();
    runtime.shutdown(FAR).unwrap();
}
