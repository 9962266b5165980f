//! The global pool: jobtree's own, made by rayon's rules when rayon's side needs it first.
//!
//! A program that uses both sides has one global pool, not two. Whoever comes first decides how many
//! threads it has: rayon's variables count if that is rayon, jobtree's if it is jobtree.

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

use jobtree_pool::Pool;

use crate::builder::ThreadPoolBuilder;
use crate::error::{ErrorKind, ThreadPoolBuildError};
use crate::start;
use crate::thread::ThreadSpawn;

static READY: OnceLock<&'static Pool> = OnceLock::new();

/// Held while a global pool is made: of two threads that both need the first one, none shall start
/// threads in vain.
static BUILDING: Mutex<()> = Mutex::new(());

/// The global pool, made now if there is none.
///
/// # Panics
/// If it cannot be made.
#[inline]
pub(crate) fn pool() -> &'static Pool {
    match READY.get() {
        Some(pool) => pool,
        None => make_default(),
    }
}

/// Makes the global pool if the caller is about to need it: every free function does on a thread that
/// belongs to no pool.
#[inline]
pub(crate) fn make_if_outside() {
    if jobtree_pool::current_worker_index().is_none() {
        pool();
    }
}

#[cold]
fn make_default() -> &'static Pool {
    let made = match make(ThreadPoolBuilder::new()) {
        // No threads to be had on this platform at all: then the caller is the pool.
        Err(error) if error.is_unsupported() => {
            make(ThreadPoolBuilder::new().num_threads(1).use_current_thread())
        }
        made => made,
    };
    match made.map_err(|error| error.kind) {
        Ok(()) | Err(ErrorKind::GlobalPoolExists) => READY.get_or_init(shared_pool),
        Err(kind) => {
            let error = ThreadPoolBuildError::new(kind);
            panic!("the global thread pool cannot be made: {error}")
        }
    }
}

/// Makes the global pool as `builder` describes it, which must be the first.
pub(crate) fn make<S: ThreadSpawn>(
    builder: ThreadPoolBuilder<S>,
) -> Result<(), ThreadPoolBuildError> {
    // Poisoned if a thread's name or a spawn handler panicked: nothing was made then.
    let _one_at_a_time = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    if READY.get().is_some() {
        return Err(ThreadPoolBuildError::new(ErrorKind::GlobalPoolExists));
    }
    start::start(builder, |description| description.build_global())?.wait_until_running();
    READY.get_or_init(shared_pool);
    Ok(())
}

/// jobtree's global pool, in which forks nest their waits from now on. Jobs of jobtree's go on parking there.
fn shared_pool() -> &'static Pool {
    let pool = Pool::global();
    if start::WAITS_ARE_NESTED {
        pool.nest_forks();
    }
    pool
}

impl ThreadPoolBuildError {
    fn is_unsupported(&self) -> bool {
        matches!(&self.kind, ErrorKind::Io(error) if error.kind() == io::ErrorKind::Unsupported)
    }
}
