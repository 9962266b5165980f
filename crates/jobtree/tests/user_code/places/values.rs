//! Destructors of values that are given to the library: results of jobs, captured state, messages, job locals.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use jobtree::{
    Dispatcher, JobHandle, JobLocal, JoinSet, Runtime, channel, future, nursery, sleep, supervisor,
    sync, with_local,
};

use crate::behaviour::Behaviour;
use crate::place::Place;
use crate::stage::{OnDrop, Stage, until};

pub const PLACES: &[Place] = &[
    Place::new("value/taken", taken),
    Place::new("value/handle-dropped-before-end", handle_dropped_before_end),
    Place::new("value/handle-dropped-after-end", handle_dropped_after_end),
    Place::new("value/not-taken-in-nursery", not_taken_in_nursery),
    Place::new("value/not-taken-of-future", not_taken_of_future),
    Place::new(
        "value/not-taken-of-dispatched-job",
        not_taken_of_dispatched_job,
    ),
    Place::new(
        "value/not-taken-of-dispatched-job-with-nursery",
        of_dispatched_job_with_nursery,
    ),
    Place::new("value/not-taken-of-last-child", not_taken_of_last_child),
    Place::new("value/of-cancelled-job", of_cancelled_job),
    Place::new("value/of-failed-nursery", of_failed_nursery),
    Place::new("value/of-block-on", of_block_on),
    Place::new("value/handle-in-value", handle_in_value),
    Place::new("captured/after-run", captured_after_run),
    Place::new(
        "captured/in-cancelled-nursery",
        captured_in_cancelled_nursery,
    ),
    Place::new("captured/after-shutdown", captured_after_shutdown),
    Place::new("captured/queued-at-cancellation", captured_queued),
    Place::new("captured/queued-at-dispatcher", captured_at_dispatcher),
    Place::new("captured/by-supervised-body", captured_by_body),
    Place::new("message/left-in-channel", left_in_channel),
    Place::new("message/closed-channel", closed_channel),
    Place::new("message/replaced", replaced),
    Place::new("message/pushed-out", pushed_out),
    Place::new("message/refused", refused),
    Place::new("message/of-dropped-send", of_dropped_send),
    Place::new("message/of-cancelled-send", of_cancelled_send),
    Place::new("message/of-abandoned-producer", of_abandoned_producer),
    Place::new("local/with-local", local_of_with_local),
    Place::new("local/inherited-by-jobs", local_inherited),
    Place::new("local/outlived-by-job", local_outlived),
    Place::new("value/mutex-content", mutex_content),
    Place::new("value/rwlock-content", rwlock_content),
    Place::new("value/owned-guard-content", owned_guard_content),
    Place::new("value/left-in-join-set", left_in_join_set),
    Place::new("value/given-up-by-join-set", given_up_by_join_set),
    Place::new("value/after-join-timeout", after_join_timeout),
    Place::new("message/left-in-broadcast", left_in_broadcast),
    Place::new(
        "message/left-in-broadcast-by-panic",
        left_in_broadcast_by_panic,
    ),
    Place::new("message/pushed-out-of-broadcast", pushed_out_of_broadcast),
    Place::new("message/broadcast-to-nobody", broadcast_to_nobody),
    Place::new("message/replaced-in-watch", replaced_in_watch),
    Place::new("message/left-in-watch-by-panic", left_in_watch_by_panic),
    Place::new("message/left-in-oneshot", left_in_oneshot),
    Place::new("message/of-any-closed-channel", of_any_closed_channel),
];

/// Starts a job whose value's destructor is user code. The job ends when the function that is returned is called.
fn valued(stage: &Arc<Stage>) -> (JobHandle<OnDrop>, impl FnOnce() + Send + 'static) {
    let (sender, receiver) = channel::bounded::<()>(1);
    let value = stage.on_drop();
    let handle = stage.in_job(move || {
        let _ = receiver.recv();
        Ok(value)
    });
    (handle, move || drop(sender.send(())))
}

fn taken(stage: &Arc<Stage>) {
    let (handle, end) = valued(stage);
    end();
    let value = handle.join().unwrap();
    stage.propagates(|| drop(value));
}

fn handle_dropped_before_end(stage: &Arc<Stage>) {
    let (handle, end) = valued(stage);
    let job = handle.job().clone();
    drop(handle);
    end();
    until(|| job.is_ended());
    stage.until_acted();
}

fn handle_dropped_after_end(stage: &Arc<Stage>) {
    let (handle, end) = valued(stage);
    end();
    until(|| handle.is_finished());
    // A panic has no receiver, whoever drops the value.
    drop(handle);
    stage.until_acted();
}

fn not_taken_in_nursery(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        nursery(|n| {
            drop(n.spawn(|| {
                sleep(Duration::from_millis(1))?;
                Ok(user.on_drop())
            }));
            Ok(())
        })?;
        Ok(())
    });
    stage.check_bystander(handle.join());
    stage.until_acted();
}

fn not_taken_of_future(stage: &Arc<Stage>) {
    let runtime = stage.runtime();
    let user = stage.clone();
    let handle = runtime.spawn_future(async move {
        future::yield_now().await;
        Ok(user.on_drop())
    });
    stage.keep_job(handle.job());
    drop(runtime);
    drop(handle);
    stage.is_alone();
    stage.until_acted();
}

fn not_taken_of_dispatched_job(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        nursery(|n| {
            let job = n.job_options().on(&Dispatcher::io());
            let child = job.spawn(|| Ok(user.on_drop()));
            // A job that has ended by then leaves its value to the handle.
            drop(child);
            Ok(())
        })?;
        Ok(())
    });
    stage.check_bystander(handle.join());
    stage.until_acted();
}

fn of_dispatched_job_with_nursery(stage: &Arc<Stage>) {
    if stage.behaviour != Behaviour::Hold {
        stage.act_often(4);
    }
    let user = stage.clone();
    let handle = stage.in_job(move || {
        nursery(|n| {
            for _ in 0..4 {
                let child = n.job_options().on(&Dispatcher::io()).spawn(|| {
                    let value = user.on_drop();
                    nursery(|n| {
                        n.launch(|| Ok(()));
                        n.launch(|| Ok(sleep(Duration::from_millis(1))?));
                        Ok(())
                    })?;
                    Ok(value)
                });
                drop(child);
            }
            Ok(())
        })?;
        Ok(())
    });
    stage.check_bystander(handle.join());
    stage.until_acted();
}

fn not_taken_of_last_child(stage: &Arc<Stage>) {
    // The outer job has returned; the child that ends last ends it, and its value goes with it.
    let runtime = stage.runtime();
    let user = stage.clone();
    let handle = runtime.spawn_future(async move {
        let value = user.on_drop();
        future::nursery(async |n| {
            drop(n.spawn(|| Ok(sleep(Duration::from_millis(1))?)));
            Ok(())
        })
        .await?;
        Ok(value)
    });
    stage.keep_job(handle.job());
    drop(runtime);
    drop(handle);
    stage.is_alone();
    stage.until_acted();
}

fn of_cancelled_job(stage: &Arc<Stage>) {
    let (handle, end) = valued(stage);
    handle.cancel("the program");
    end();
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn of_failed_nursery(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        let outcome = nursery(|n| {
            n.launch(|| Err("fails".into()));
            Ok(user.on_drop())
        });
        Ok(outcome.is_err())
    });
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn of_block_on(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || Ok(jobtree::block_on(async { user.on_drop() }).is_ok()));
    stage.check_body(handle.join());
}

fn handle_in_value(stage: &Arc<Stage>) {
    // A value that owns the handle of another job, which owns a value.
    let runtime = stage.runtime();
    let user = stage.clone();
    let inner = runtime.spawn(move || Ok(user.on_drop()));
    let outer = runtime.spawn(move || Ok(inner));
    drop(runtime);
    stage.is_alone();
    drop(outer);
    stage.until_acted();
}

fn captured_after_run(stage: &Arc<Stage>) {
    let value = stage.on_drop();
    let handle = stage.in_job(move || {
        let _value = value;
        Ok(())
    });
    stage.check_body(handle.join());
}

fn captured_in_cancelled_nursery(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        let outcome = nursery(|n| {
            n.cancel("before anything is spawned");
            let value = user.on_drop();
            n.launch(move || {
                drop(value);
                Ok(())
            });
            Ok(())
        });
        std::mem::forget(outcome);
        Ok(())
    });
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn captured_after_shutdown(stage: &Arc<Stage>) {
    let runtime = Runtime::builder().workers(stage.workers).build().unwrap();
    runtime.shutdown(Duration::from_secs(3)).unwrap();
    let value = stage.on_drop();
    let handle = stage.contain(|| runtime.spawn(move || Ok(drop(value))));
    if let Some(handle) = handle {
        stage.contain(|| drop(handle.join()));
    }
    stage.until_acted();
}

fn captured_queued(stage: &Arc<Stage>) {
    // The only worker is busy, so the job is still queued when it is cancelled.
    let runtime = stage.runtime_of(Runtime::builder().workers(1));
    let (release, released) = std::sync::mpsc::channel::<()>();
    let busy = runtime.spawn(move || Ok(released.recv()?));
    until(|| busy.job().state() == jobtree::JobState::Active);
    std::thread::sleep(Duration::from_millis(1));
    let value = stage.on_drop();
    let queued = runtime.spawn(move || Ok(drop(value)));
    stage.keep_job(queued.job());
    stage.contain(|| queued.cancel("before it runs"));
    drop(runtime);
    stage.is_alone();
    release.send(()).unwrap();
    stage.contain(|| drop(queued.join()));
    stage.check_bystander(busy.join());
    stage.until_acted();
}

fn captured_at_dispatcher(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        let dispatcher = Dispatcher::new(1)?;
        let (release, released) = std::sync::mpsc::channel::<()>();
        nursery(|n| {
            n.job_options()
                .on(&dispatcher)
                .launch(move || Ok(released.recv()?));
            std::thread::sleep(Duration::from_millis(2));
            let value = user.on_drop();
            let queued = n
                .job_options()
                .supervisor()
                .on(&dispatcher)
                .spawn(move || Ok(drop(value)));
            queued.cancel("before it runs");
            drop(queued);
            release.send(())?;
            Ok(())
        })?;
        Ok(())
    });
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn captured_by_body(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        let value = user.on_drop();
        let outcome = supervisor(move |n| {
            let _value = &value;
            n.launch(|| Err("alone".into()));
            Ok(())
        });
        Ok(outcome.is_ok())
    });
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn left_in_channel(stage: &Arc<Stage>) {
    let (sender, receiver) = channel::bounded(4);
    sender.send(stage.on_drop()).unwrap_or(());
    drop(sender);
    stage.contain(|| drop(receiver));
    stage.until_acted();
}

fn closed_channel(stage: &Arc<Stage>) {
    let (sender, receiver) = channel::unbounded();
    sender.send(stage.on_drop()).unwrap_or(());
    let (same, other) = (sender.clone(), receiver.clone());
    stage.on_reenter(move || {
        let _ = (same.len(), other.try_recv(), same.stats());
    });
    stage.contain(|| receiver.close());
    stage.contain(|| drop(receiver.try_recv()));
    stage.contain(|| drop((sender, receiver)));
    stage.drop_handles();
    stage.clear_reentries();
    stage.until_acted();
}

fn replaced(stage: &Arc<Stage>) {
    let (sender, receiver) = channel::conflated();
    let (same, other) = (sender.clone(), receiver.clone());
    stage.on_reenter(move || {
        let _ = (same.len(), other.stats(), same.try_send(None));
    });
    sender.send(Some(stage.on_drop())).unwrap_or(());
    stage.contain(|| drop(sender.send(None)));
    stage.until_acted();
    // The channel still works.
    sender.send(None).unwrap_or(());
    assert!(receiver.recv().is_ok_and(|message| message.is_none()));
}

fn pushed_out(stage: &Arc<Stage>) {
    let (sender, receiver) = channel::dropping_oldest(1);
    sender.send(Some(stage.on_drop())).unwrap_or(());
    stage.contain(|| drop(sender.send(None)));
    stage.until_acted();
    sender.send(None).unwrap_or(());
    assert!(receiver.recv().is_ok_and(|message| message.is_none()));
}

fn refused(stage: &Arc<Stage>) {
    let (sender, receiver) = channel::dropping_newest(1);
    sender.send(None).unwrap_or(());
    stage.contain(|| drop(sender.send(Some(stage.on_drop()))));
    stage.until_acted();
    assert!(receiver.recv().is_ok_and(|message| message.is_none()));
}

fn of_dropped_send(stage: &Arc<Stage>) {
    let (sender, receiver) = channel::bounded(1);
    sender.send(None).unwrap_or(());
    let mut sending = Box::pin(sender.send_async(Some(stage.on_drop())));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(sending.as_mut().poll(&mut context).is_pending());
    stage.contain(|| drop(sending));
    stage.until_acted();
    assert!(receiver.recv().is_ok_and(|message| message.is_none()));
}

fn of_cancelled_send(stage: &Arc<Stage>) {
    let user = stage.clone();
    let (sender, receiver) = channel::bounded(1);
    sender.send(None).unwrap_or(());
    let handle = stage.in_job(move || Ok(drop(sender.send(Some(user.on_drop())))));
    until(|| handle.job().waiting_for().is_some());
    handle.cancel("the program");
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
    drop(receiver);
}

fn of_abandoned_producer(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        let outcome = supervisor(|n| {
            let (received, producer) = n.produce(1, |out| {
                out.send(None)?;
                Ok(out.send(Some(user.on_drop()))?)
            });
            // Its second message finds no room.
            until(|| producer.job().waiting_for().is_some());
            drop(received);
            Ok(std::mem::forget(producer.join()))
        });
        Ok(outcome.is_ok())
    });
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

static LOCAL: JobLocal<OnDrop> = JobLocal::new();

fn local_of_with_local(stage: &Arc<Stage>) {
    let value = stage.on_drop();
    let handle = stage.in_job(move || Ok(with_local(&LOCAL, value, || Ok(LOCAL.get().is_some()))?));
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn local_inherited(stage: &Arc<Stage>) {
    let value = stage.on_drop();
    let handle = stage.in_job(move || {
        let outcome = with_local(&LOCAL, value, || {
            nursery(|n| {
                for _ in 0..3 {
                    n.launch(|| Ok(assert!(LOCAL.get().is_some())));
                }
                Ok(())
            })?;
            Ok(())
        });
        Ok(outcome.is_ok())
    });
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn local_outlived(stage: &Arc<Stage>) {
    // The last job that has the local is a handle's, which another thread drops.
    let value = stage.on_drop();
    let handle = stage.in_job(move || {
        let job = with_local(&LOCAL, value, || Ok(jobtree::Job::current()))?;
        Ok(job)
    });
    let job = stage.check_bystander(handle.join());
    stage.contain(|| drop(job));
    stage.until_acted();
}

fn mutex_content(stage: &Arc<Stage>) {
    let mutex = sync::Mutex::new(Some(stage.on_drop()));
    let handle = stage.in_job(move || {
        let mut guard = mutex.lock()?;
        *guard = None;
        Ok(())
    });
    stage.check_body(handle.join());
}

fn rwlock_content(stage: &Arc<Stage>) {
    let lock = sync::RwLock::new(Some(stage.on_drop()));
    let handle = stage.in_job(move || {
        let mut guard = lock.write()?;
        *guard = None;
        Ok(())
    });
    stage.check_body(handle.join());
}

fn owned_guard_content(stage: &Arc<Stage>) {
    let mutex = Arc::new(sync::Mutex::new(stage.on_drop()));
    let handle = stage.in_job(move || {
        let guard = mutex.lock_owned()?;
        drop(mutex);
        // The last one.
        Ok(drop(guard))
    });
    stage.check_body(handle.join());
}

/// Two jobs that have ended with values whose destructors are user code.
fn ended_jobs(stage: &Arc<Stage>) -> [JobHandle<OnDrop>; 2] {
    acts_each_time(stage, 2);
    let runtime = stage.runtime();
    let handles = [(), ()].map(|()| {
        let user = stage.clone();
        runtime.spawn(move || Ok(user.on_guarded_drop()))
    });
    drop(runtime);
    until(|| handles.iter().all(JobHandle::is_finished));
    stage.is_alone();
    handles
}

/// Has each of some destructors do what the cell is about, unless that is to block: the stage waits for one.
fn acts_each_time(stage: &Arc<Stage>, count: usize) {
    if stage.behaviour != Behaviour::Hold {
        stage.act_often(count);
    }
}

fn until_all_acted(stage: &Arc<Stage>, count: usize) {
    stage.until_acted();
    let count = if stage.behaviour == Behaviour::Hold {
        1
    } else {
        count
    };
    until(|| stage.runs() == count);
    stage.until_acted();
}

fn left_in_join_set(stage: &Arc<Stage>) {
    let set = JoinSet::from_iter(ended_jobs(stage));
    drop(set);
    until_all_acted(stage, 2);
}

fn given_up_by_join_set(stage: &Arc<Stage>) {
    // A panic drops the set, which has one outcome that was not taken.
    let handles = ended_jobs(stage);
    dropped_by_panic(|| {
        let mut set = JoinSet::from_iter(handles);
        let taken = set.join_next().expect("there are two");
        stage.check_bystander(taken.map(std::mem::forget));
        set
    });
    stage.until_acted();
}

fn after_join_timeout(stage: &Arc<Stage>) {
    let (handle, end) = valued(stage);
    let outcome = handle.join_timeout(Duration::from_millis(1));
    let Err(handle) = outcome else {
        unreachable!("it has not ended")
    };
    end();
    drop(handle);
    stage.until_acted();
}

/// The number of values in a channel whose destructors all do what the cell is about.
const SEVERAL: usize = 3;

fn left_in_broadcast(stage: &Arc<Stage>) {
    acts_each_time(stage, SEVERAL);
    let (sender, receiver) = channel::broadcast(SEVERAL);
    for _ in 0..SEVERAL {
        sender.send(stage.on_guarded_drop());
    }
    drop(receiver);
    until_all_acted(stage, SEVERAL);
    // The channel still works.
    let other = sender.subscribe();
    std::mem::forget(other);
    drop(sender);
}

/// Drops what `make` returns by a panic of the program.
fn dropped_by_panic<T>(make: impl FnOnce() -> T) {
    let unwinds = || -> () {
        let _dropped = make();
        panic!("the program");
    };
    let payload = catch_unwind(AssertUnwindSafe(unwinds)).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"the program"));
}

fn left_in_broadcast_by_panic(stage: &Arc<Stage>) {
    acts_each_time(stage, SEVERAL);
    dropped_by_panic(|| {
        let (sender, receiver) = channel::broadcast(SEVERAL);
        for _ in 0..SEVERAL {
            sender.send(stage.on_guarded_drop());
        }
        (sender, receiver)
    });
    until_all_acted(stage, SEVERAL);
}

fn pushed_out_of_broadcast(stage: &Arc<Stage>) {
    let (sender, mut receiver) = channel::broadcast(1);
    let sender = Arc::new(sender);
    let same = sender.clone();
    stage.on_reenter(move || {
        let mut other = same.subscribe();
        same.send(None);
        let _ = other.try_recv();
    });
    sender.send(Some(stage.on_drop()));
    // The destructor's panic is not that of the one who sends.
    sender.send(None);
    stage.until_acted();
    while let Err(lagged) = receiver.recv() {
        assert!(matches!(lagged, channel::BroadcastRecvError::Lagged(_)));
    }
}

fn broadcast_to_nobody(stage: &Arc<Stage>) {
    let (sender, receiver) = channel::broadcast(1);
    drop(receiver);
    assert_eq!(sender.send(stage.on_drop()), 0);
    stage.until_acted();
}

fn replaced_in_watch(stage: &Arc<Stage>) {
    let (sender, receiver) = channel::watch(Some(stage.on_drop()));
    let sender = Arc::new(sender);
    let (same, other) = (sender.clone(), receiver.clone());
    stage.on_reenter(move || {
        let _ = (same.get(), other.clone().get());
        same.send(None);
    });
    sender.send(None);
    stage.until_acted();
    assert!(sender.get().is_none());
}

fn left_in_watch_by_panic(stage: &Arc<Stage>) {
    dropped_by_panic(|| channel::watch(stage.on_guarded_drop()));
    stage.until_acted();
}

fn left_in_oneshot(stage: &Arc<Stage>) {
    let (sender, receiver) = channel::oneshot();
    sender.send(stage.on_drop()).unwrap_or(());
    stage.contain(|| drop(receiver));
    stage.until_acted();
}

fn of_any_closed_channel(stage: &Arc<Stage>) {
    // Receiving from several, a job is cancelled; what is in the channels goes with them.
    acts_each_time(stage, 2);
    let user = stage.clone();
    let handle = stage.in_job(move || {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| channel::bounded(1)).unzip();
        if let Some(job) = jobtree::Job::current() {
            job.cancel("the program");
        }
        let received = channel::recv_any(&receivers);
        for sender in &senders {
            sender.try_send(user.on_guarded_drop()).unwrap_or(());
        }
        Ok(std::mem::forget(received))
    });
    let _ = stage.contain(|| drop(handle.join()));
    until_all_acted(stage, 2);
}
