//! What the library promises about the program's own code that it calls, and where its lost panics are found.
//!
//! Callbacks, wakers and destructors of a program may do anything that other code may: panic, wait, fork, open nurseries, cancel,
//! spawn, or call the object that calls them. The library calls them without holding a lock.
//!
//! * The panic of a job's body, of a fork or of a scope's task goes to the code that waits for it.
//! * The panic of a callback, a waker, or a destructor that the library runs has no such receiver. The panic hook reports it as
//!   every panic; it is counted ([`caught_panics`], also in
//!   [`Runtime::statistics`](crate::Runtime::statistics)) and kept in a short list ([`recent_panics`]); and the library
//!   goes on as if the code had returned.
//! * The future of a cancelled job that waits for something which knows nothing of jobs is dropped. A panic of its destructor is such
//!   a panic, too: the job's outcome is its cancellation.
//! * Values, errors and locals that nobody takes are dropped outside of any job: `Job::current()` is `None` there.
//! * Code that runs because a job ends cannot wait for that end. Such a wait panics, with a message that says so.
//!
//! ```
//! use jobtree_runtime::{nursery, user_code};
//!
//! let before = user_code::caught_panics();
//! let outcome = nursery(|n| {
//!     let job = n.spawn(|| Ok(jobtree_runtime::sleep(std::time::Duration::MAX)?));
//!     let _callback = job.job().on_cancel(|_| panic!("a callback with a bug"));
//!     job.cancel("enough");
//!     Ok(job.join().is_err())
//! });
//! assert!(outcome.unwrap());
//! assert!(user_code::caught_panics() > before);
//! ```

pub use jobtree_base::user_code::{CaughtPanic, Place, caught_panics, recent_panics};
