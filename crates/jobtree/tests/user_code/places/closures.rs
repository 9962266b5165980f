//! Closures that are the body of a job or of a part of one.

use std::sync::Arc;
use std::time::Duration;

use jobtree::{
    Dispatcher, JobLocal, block_on, future, isolate, labelled_nursery, nursery, shield, supervisor,
    with_local, with_timeout,
};

use crate::behaviour::Behaviour;
use crate::place::{Outcome, Place, Rule, SHIELDED};
use crate::stage::Stage;

/// What waits for a job of the runtime's root may need the very worker that is isolated.
const FROM_OUTSIDE: Rule = (
    &[Behaviour::JoinSame, Behaviour::PanicWait],
    Outcome::NotApplicable("inside `isolate`, wait only for work made inside"),
);

pub const PLACES: &[Place] = &[
    Place::new("closure/runtime-spawn", runtime_spawn),
    Place::new("closure/runtime-spawn-small-stack", small_stack),
    Place::new("closure/runtime-nursery-body", runtime_nursery_body),
    Place::new("closure/nursery-body", nursery_body),
    Place::new("closure/labelled-nursery-body", labelled_nursery_body),
    Place::new("closure/supervisor-body", supervisor_body),
    Place::new("closure/nursery-spawn", nursery_spawn),
    Place::new("closure/nursery-launch", nursery_launch),
    Place::new(
        "closure/nursery-spawn-with-timeout",
        nursery_spawn_with_timeout,
    ),
    Place::new("closure/nursery-try-spawn", nursery_try_spawn),
    Place::new("closure/supervisor-spawn", supervisor_spawn),
    Place::new("closure/produce", produce),
    Place::new("closure/async-nursery-spawn", async_nursery_spawn),
    Place::new("closure/dispatcher-run", dispatcher_run),
    Place::new("closure/dispatcher-spawn", dispatcher_spawn),
    Place::new("closure/own-dispatcher-run", own_dispatcher_run),
    Place::new("closure/with-timeout-body", with_timeout_body),
    Place::new("closure/shield-body", shield_body).with(&[SHIELDED]),
    Place::new("closure/with-local-body", with_local_body),
    Place::new("closure/isolate-body", isolate_body).with(&[FROM_OUTSIDE]),
    Place::new("closure/outside-nursery-spawn", outside_nursery_spawn),
];

fn runtime_spawn(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        user.act();
        Ok(1)
    });
    stage.check_body(handle.join());
}

fn small_stack(stage: &Arc<Stage>) {
    let runtime = stage.runtime();
    let user = stage.clone();
    let handle = runtime.spawn(move || {
        nursery(|n| {
            let job = n.job_options().small_stack().label("small");
            Ok(job.spawn(|| Ok(user.act())).join()?)
        })?;
        Ok(())
    });
    stage.keep_job(handle.job());
    drop(runtime);
    stage.is_alone();
    stage.check_body(handle.join());
}

fn runtime_nursery_body(stage: &Arc<Stage>) {
    let runtime = stage.runtime();
    let outcome = runtime.nursery(|n| {
        stage.keep_job(n.job());
        stage.is_alone();
        Ok(stage.act())
    });
    stage.check_body(outcome);
}

/// Runs `part` in a job; the panic, if there is one, is that of the job.
fn in_job(
    stage: &Arc<Stage>,
    part: impl FnOnce(&Arc<Stage>) -> Result<(), jobtree::BoxError> + Send + 'static,
) {
    let user = stage.clone();
    let handle = stage.in_job(move || part(&user));
    stage.check_body(handle.join());
}

fn nursery_body(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        nursery(|n| {
            let child = n.spawn(|| Ok(1));
            stage.act();
            let _ = n.state();
            Ok(drop(child.join()))
        })?;
        Ok(())
    });
}

fn labelled_nursery_body(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        Ok(labelled_nursery("named", |_| Ok(stage.act()))?)
    });
}

fn supervisor_body(stage: &Arc<Stage>) {
    in_job(stage, |stage| Ok(supervisor(|_| Ok(stage.act()))?));
}

fn nursery_spawn(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        nursery(|n| {
            let job = n.job().clone();
            stage.on_reenter(move || drop((job.children(), job.dump_tree())));
            let child = n.spawn(|| {
                // The scope itself, from a child: spawning there, its state.
                let _ = n.state();
                n.launch(|| Ok(()));
                Ok(stage.act())
            });
            Ok(child.join()?)
        })?;
        Ok(())
    });
}

fn nursery_launch(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        Ok(nursery(|n| Ok(n.launch(|| Ok(stage.act()))))?)
    });
}

fn nursery_spawn_with_timeout(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        nursery(|n| {
            let options = n
                .job_options()
                .timeout(Duration::from_secs(60))
                .label("limited");
            Ok(options.spawn(|| Ok(stage.act())).join()?)
        })?;
        Ok(())
    });
}

fn nursery_try_spawn(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        nursery(|n| match n.try_spawn(|| Ok(stage.act())) {
            Ok(child) => Ok(child.join()?),
            Err(refused) => Err(refused.reason().to_string().into()),
        })?;
        Ok(())
    });
}

fn supervisor_spawn(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        let outcome = supervisor(|n| {
            let child = n.spawn(|| Ok(user.act()));
            Ok(child.join())
        })?;
        Ok(outcome)
    });
    if let Some(outcome) = stage.check_bystander(handle.join()) {
        stage.check_body(outcome);
    }
}

fn produce(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        nursery(|n| {
            let (received, producer) = n.produce(1, |out| {
                stage.act();
                Ok(out.send(1)?)
            });
            let _ = received.recv();
            Ok(producer.join()?)
        })?;
        Ok(())
    });
}

fn async_nursery_spawn(stage: &Arc<Stage>) {
    let runtime = stage.runtime();
    let user = stage.clone();
    let handle = runtime.spawn_future(async move {
        future::nursery(async |n| {
            let inner = n.clone();
            user.on_reenter(move || drop(inner.spawn(|| Ok(()))));
            let child = n.spawn(move || Ok(user.act()));
            Ok(child.await?)
        })
        .await?;
        Ok(())
    });
    stage.keep_job(handle.job());
    drop(runtime);
    stage.is_alone();
    stage.check_body(handle.join());
}

fn dispatcher_run(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        let user = stage.clone();
        Ok(Dispatcher::io().run(move || Ok(user.act()))?)
    });
}

fn dispatcher_spawn(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        nursery(|n| {
            let job = n.job_options().on(&Dispatcher::io());
            Ok(job.spawn(|| Ok(stage.act())).join()?)
        })?;
        Ok(())
    });
}

fn own_dispatcher_run(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        let dispatcher = Arc::new(Dispatcher::new(1)?);
        let same = dispatcher.clone();
        stage.on_reenter(move || drop(format!("{same:?}")));
        let user = stage.clone();
        Ok(dispatcher.run(move || Ok(user.act()))?)
    });
}

fn with_timeout_body(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        Ok(with_timeout(Duration::from_secs(60), || Ok(stage.act()))?)
    });
}

fn shield_body(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        Ok(shield(Duration::from_secs(60), || Ok(stage.act()))?)
    });
}

fn with_local_body(stage: &Arc<Stage>) {
    static LOCAL: JobLocal<u32> = JobLocal::new();
    in_job(stage, |stage| {
        Ok(with_local(&LOCAL, 7, || {
            stage.act();
            assert_eq!(LOCAL.get().as_deref(), Some(&7));
            Ok(())
        })?)
    });
}

fn isolate_body(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        isolate(|| stage.act());
        Ok(())
    });
}

fn outside_nursery_spawn(stage: &Arc<Stage>) {
    // The global runtime, by a thread that belongs to no job.
    let outcome = nursery(|n| {
        let child = n.spawn(|| {
            let child = jobtree::Job::current().unwrap();
            stage.keep_job(&child);
            stage.is_alone();
            Ok(stage.act())
        });
        Ok(block_on(child)??)
    });
    stage.check_body(outcome);
}
