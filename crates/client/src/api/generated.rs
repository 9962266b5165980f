//! The methods that follow from the table of operations: those of entries with `client:`. Each takes the id of the path,
//! the query and the body, as far as the operation has them, and returns the answer.

#[allow(clippy::wildcard_imports, reason = "the types that the table names")]
use jobtree_protocol::operations::*;
#[allow(clippy::wildcard_imports, reason = "the types that the table names")]
use jobtree_protocol::*;

use crate::call::Result;
use crate::client::Client;

macro_rules! methods {
    ($($entries:tt)*) => {
        jobtree_protocol::summarize_operations! { [method_each] $($entries)* }
    };
}

macro_rules! method_each {
    ($({
        $Operation:ident $id:ident [$($summary:literal)+]
        path: $path:tt query: $query:tt body: $body:tt
        client: [$($client:ident)?] scheduler: [$($scheduler:ident)?]
    })+) => {
        impl Client {
            $(method! { [$($client)?] $Operation [$($summary)+] $path $query $body })+
        }
    };
}

macro_rules! method {
    ([] $Operation:ident $summary:tt $path:tt $query:tt $body:tt) => {};
    (
        [$client:ident] $Operation:ident [$($summary:literal)+]
        [$($path:ty)?] [$($query:ty)?] [$($body:ty)?]
    ) => {
        $(#[doc = $summary])+
        ///
        /// # Errors
        /// If the daemon refuses the call, or does not answer.
        pub fn $client(
            &self
            $(, id: $path)?
            $(, query: &$query)?
            $(, request: &<$body as RequestBody>::Value)?
        ) -> Result<AnswerOf<$Operation>> {
            self.call::<$Operation>(
                part!($($path, id)?),
                part!(ref $($query, query)?),
                part!(ref $($body, request)?),
            )
        }
    };
}

/// A part of a call that an operation may have.
macro_rules! part {
    () => {
        ()
    };
    (ref) => {
        &()
    };
    ($(ref)? $type:ty, $part:expr) => {
        $part
    };
}

jobtree_protocol::probe_operations!(methods);
jobtree_protocol::job_operations!(methods);
jobtree_protocol::command_operations!(methods);
jobtree_protocol::bulk_operations!(methods);
jobtree_protocol::work_operations!(methods);
jobtree_protocol::lease_operations!(methods);
jobtree_protocol::schedule_operations!(methods);
jobtree_protocol::operating_operations!(methods);
jobtree_protocol::observing_operations!(methods);
jobtree_protocol::event_operations!(methods);
jobtree_protocol::token_operations!(methods);
jobtree_protocol::session_operations!(methods);
