//! The root of a test target that `scripts/rayon-suite` puts together: upstream's unit tests, compiled
//! outside of the crate that they test.
//!
//! They lie in the same modules as upstream, so that `crate::` and `super::` mean what they meant, with
//! two small helpers of upstream's written anew on its public API. Tests that look at private state are
//! listed in `exceptions` and left out.

#![cfg(test)]

pub use rayon_core::*;

mod unwind {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    pub fn halt_unwinding<R>(body: impl FnOnce() -> R) -> std::thread::Result<R> {
        catch_unwind(AssertUnwindSafe(body))
    }
}

mod registry {
    /// Runs `body` on a thread of the current or the global pool.
    pub fn in_worker<R: Send>(body: impl FnOnce((), bool) -> R + Send) -> R {
        rayon_core::scope(|_| body((), true))
    }
}

mod broadcast {
    mod test;
}

mod join {
    use crate::unwind;
    use rayon_core::{join, join_context};
    mod test;
}

mod scope {
    mod test;
}

mod spawn {
    use rayon_core::{spawn, spawn_fifo};
    mod test;
}

mod thread_pool {
    mod test;
}

mod test;
