//! The remote lane through the daemon: a request becomes a durable job, and the job's result is its answer.
//!
//! [`DaemonTransport`] is for whoever asks: a job manager of `jobtree-lanes` takes it as its transport, or it is asked
//! itself. [`serve`] is for whoever answers: a worker whose jobs are what a
//! [`RemoteService`](jobtree_lanes::remote::RemoteService) does. Neither knows the other's address, the daemon admits the
//! work as it admits all other, and it shows each request, its log and its tree as those of any job.
//!
//! What a request of the remote lane promises holds here, too: it is carried out **at most once**. A job whose worker is
//! lost is not run again, but answered as what it is, [`ConnectionLost`](RemoteError::ConnectionLost); only somebody
//! who takes a running job's lease away by hand has it run again. Whoever stops waiting cancels the job.

mod carried;
mod serving;
mod transport;

pub use serving::serve;
pub use transport::{DaemonTransport, DaemonTransportBuilder};

#[doc(no_inline)]
pub use jobtree_lanes::remote::RemoteError;
