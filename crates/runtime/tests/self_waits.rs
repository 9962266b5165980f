//! Waits that could never end, because what they wait for ends after the code that waits: refused, or done without a wait.

mod support;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use jobtree_runtime::binding::OwnedNursery;
use jobtree_runtime::{BoxError, Dispatcher};
use support::{end, runtime, watch};

/// Long enough for every test here to fail by it.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_job_inside_an_owned_nursery_cannot_wait_for_it() {
    let _watch = watch();
    let runtime = runtime(2);
    let scope = Arc::new(runtime.owned_nursery(false).unwrap());
    let inside = Arc::clone(&scope);
    let refused = scope.nursery().spawn(move || {
        let error = inside.wait().unwrap_err().to_string();
        // By a job below the one in the scope, too, on whichever thread.
        let below = jobtree_runtime::nursery(|n| {
            Ok(n.spawn(|| Ok(inside.wait().unwrap_err().to_string()))
                .join()?)
        })?;
        Ok((error, below))
    });
    let (error, below) = refused.join().unwrap();
    for message in [error, below] {
        assert!(message.contains("wait for it outside"), "{message}");
    }
    assert!(!scope.close(), "the wait that was refused has closed it");
    scope.wait().unwrap();
    drop(scope);
    end(&runtime);
}

#[test]
fn an_owned_nursery_that_a_job_inside_drops_is_left_to_the_tree() {
    let _watch = watch();
    let runtime = runtime(2);
    let scope = runtime.owned_nursery(false).unwrap();
    let job = scope.job().clone();
    let (give, given) = mpsc::channel::<OwnedNursery>();
    let (tell, told) = mpsc::channel();
    let nursery = scope.nursery().clone();
    nursery.launch(move || {
        drop(given.recv()?);
        Ok(tell.send(())?)
    });
    give.send(scope).unwrap();
    told.recv_timeout(LIMIT)
        .expect("the job is not stuck in the destructor");
    assert!(job.is_cancelled());
    // The runtime's root ends after the scope.
    end(&runtime);
    assert!(job.is_ended());
}

#[test]
fn a_dispatcher_can_be_used_inside_itself() {
    let _watch = watch();
    let runtime = runtime(1);
    let dispatcher = Dispatcher::new(1).unwrap();
    let depth = runtime.nursery(|_| {
        let (inner, dispatcher) = (dispatcher.clone(), dispatcher.clone());
        let thread = || std::thread::current().id();
        let outer = dispatcher.run(|| {
            let outer = thread();
            // Its only thread is this one.
            let middle = inner.run(|| Ok((thread(), inner.run(|| Ok(thread()))?)))?;
            assert_eq!(middle, (outer, outer));
            let failed = inner
                .run(|| Err::<(), BoxError>("no luck".into()))
                .unwrap_err();
            assert!(failed.to_string().contains("no luck"), "{failed}");
            Ok(outer)
        })?;
        assert_ne!(outer, thread());
        Ok(2)
    });
    assert_eq!(depth.unwrap(), 2);
    end(&runtime);
}
