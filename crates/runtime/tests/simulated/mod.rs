//! What the tests of simulations need and no program does.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::sync::Arc;
use std::task::Poll;

use jobtree_pool::OnceLatch;

/// A future that is ready when `latch` is open, and tells nobody of it: whoever opens it must not be waited for.
pub async fn opened(latch: Arc<OnceLatch>) {
    poll_fn(|_| {
        if latch.is_set() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// What `body` panics with.
pub fn panic_message(body: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(body)).expect_err("it does not panic");
    *payload.downcast::<String>().expect("a message with values")
}

/// Runs one test of this very program, which others leave out, in a process of its own, with `seed` in the environment.
pub fn run_test_of_this_program(name: &str, seed: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env("JOBTREE_SIM_SEED", seed)
        .env_remove("RUST_BACKTRACE")
        .output()
        .unwrap()
}
