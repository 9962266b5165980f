//! Starting the threads that serve a runtime: those that keep deadlines and those that block.

use std::io;
use std::sync::{Mutex, PoisonError};

/// The beginning of the names of threads that cannot be started, for tests.
static FAILING: Mutex<Option<&'static str>> = Mutex::new(None);

/// Starts a thread that nothing joins.
///
/// # Errors
/// If the system has no room for it.
pub fn start_service_thread(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let failing = *FAILING.lock().unwrap_or_else(PoisonError::into_inner);
    if failing.is_some_and(|prefix| name.starts_with(prefix)) {
        return Err(io::Error::other("thread starts fail, for a test"));
    }
    let builder = std::thread::Builder::new().name(name);
    builder.spawn(body).map(drop)
}

/// For tests: from now on, service threads whose name begins with `prefix` cannot be started; `None` ends it. It holds for
/// the whole process.
pub fn fail_service_threads(prefix: Option<&'static str>) {
    *FAILING.lock().unwrap_or_else(PoisonError::into_inner) = prefix;
}
