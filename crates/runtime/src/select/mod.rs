//! `select!`: the first of several things that comes.
//!
//! The macros are the interface; what is public here is for what they expand to.

mod channels;
mod clause;
mod futures;
mod random;
mod selecting;

pub use channels::{RecvClause, SendClause};
pub use clause::{Clause, ClauseSet, Kind};
pub use futures::{FutureClause, Moment, after, join};
pub use selecting::{block, look, wait};

/// The output of the clause that has won.
pub fn won<T>(output: Option<T>) -> T {
    match output {
        Some(output) => output,
        None => unreachable!("a clause that has won has an output"),
    }
}

/// The number that is no clause's.
pub fn nobody() -> ! {
    unreachable!("there is no such clause")
}

/// Waits for the first of several things, does that one, and none of the others.
///
/// ```
/// use std::time::Duration;
/// use jobtree_runtime::{channel, select};
///
/// let (numbers, from_numbers) = channel::bounded(1);
/// let (to_log, _log) = channel::rendezvous::<&str>();
/// numbers.send(42).unwrap();
/// let told = select! {
///     recv(from_numbers) -> number => format!("received {}", number.unwrap()),
///     send(to_log, "nothing new") -> sent => { sent.unwrap(); "logged".to_owned() }
///     after(Duration::from_secs(3600)) => "too late".to_owned(),
/// }?;
/// assert_eq!(told, "received 42");
/// # Ok::<(), jobtree_runtime::Cancelled>(())
/// ```
///
/// # Clauses
///
/// Up to ten of these, each with what is to be done then. All but the winner are as if they had never been written.
///
/// | clause | wins when | gives |
/// | --- | --- | --- |
/// | `recv(receiver) -> received` | there is a value, or the channel is closed and empty | `Result<T, RecvError>` |
/// | `send(sender, value) -> sent` | the value was sent, or the channel is closed | `Result<(), SendError<T>>` |
/// | `send_from(sender, slot) -> sent` | as `send`, of the value in an `Option<T>` | as `send` |
/// | `join(handle) -> outcome` | the job has ended; its handle is used up | `Outcome<T>` |
/// | `future(future) -> output` | the future is ready | what it is ready with |
/// | `after(duration)` | the time is over | nothing |
/// | `default` | none of the others can win at once; must be the last | nothing |
///
/// `recv` and the senders take the ends by reference, `send_from` and `join` borrow their variables mutably. A value that
/// `send` could not send is dropped; `send_from` leaves it in its variable, and does not take part at all if there is
/// none. A `future` that is to be used again afterwards is given as `future(&mut future)` or `future(pinned.as_mut())`.
///
/// # Which one wins
///
/// If several could, the one that is written first. With `fair;` in front a random one is looked at first, so that none
/// is kept waiting by busy others:
///
/// ```
/// use jobtree_runtime::{channel, select};
///
/// let (a, from_a) = channel::unbounded();
/// let (b, from_b) = channel::unbounded();
/// for _ in 0..1000 {
///     a.send(1).unwrap();
///     b.send(1000).unwrap();
/// }
/// let mut sum = 0;
/// for _ in 0..100 {
///     sum += select! {
///         fair;
///         recv(from_a) -> number => number.unwrap(),
///         recv(from_b) -> number => number.unwrap(),
///     }?;
/// }
/// assert!(sum > 100 && sum < 100_000, "some of each");
/// # Ok::<(), jobtree_runtime::Cancelled>(())
/// ```
///
/// # Cancellation
///
/// The value is a `Result`: [`Cancelled`](crate::Cancelled) if the current job is cancelled. Then nothing was done, even
/// if something could have been.
///
/// In async code [`select_async!`](crate::select_async) does not block.
///
/// ```
/// use jobtree_runtime::{channel, nursery, select};
///
/// let (sender, receiver) = channel::bounded(4);
/// let (stop, stopped) = channel::rendezvous::<()>();
/// nursery(|n| {
///     n.launch(|| {
///         let mut next = Some(0_u64);
///         loop {
///             select! {
///                 recv(stopped) -> _ => break,
///                 send_from(sender, next) -> sent => sent?,
///             }?;
///             next = next.or(Some(1));
///         }
///         Ok(())
///     });
///     assert_eq!(receiver.recv()?, 0);
///     assert_eq!(receiver.recv()?, 1);
///     drop(stop);
///     Ok(())
/// })?;
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
#[macro_export]
macro_rules! select {
    ($($clauses:tt)*) => {
        $crate::__select!(@begin block $($clauses)*)
    };
}

/// As [`select!`](crate::select), for async code: it awaits, and does not block.
///
/// Dropped before it has an end, it has done nothing; unless a `send` was won already, whose value is then sent.
///
/// ```
/// use jobtree_runtime::{block_on, channel, select_async};
///
/// let (sender, receiver) = channel::unbounded();
/// sender.send("hello").unwrap();
/// let told = block_on(async {
///     select_async! {
///         recv(receiver) -> received => received.unwrap(),
///         future(std::future::pending::<()>()) -> () => "never",
///     }
/// })??;
/// assert_eq!(told, "hello");
/// # Ok::<(), jobtree_runtime::Cancelled>(())
/// ```
#[macro_export]
macro_rules! select_async {
    ($($clauses:tt)*) => {
        $crate::__select!(@begin wait $($clauses)*)
    };
}

/// Reads the clauses one by one into a list of (number, name, clause, pattern, body), from which the whole is made. The
/// names are all the same to the reader, and all different to the compiler: each comes from its own step.
#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    (@begin $how:ident fair; $($clauses:tt)*) => {
        $crate::__select!(@read $how true [0 1 2 3 4 5 6 7 8 9] [] $($clauses)*)
    };
    (@begin $how:ident $($clauses:tt)*) => {
        $crate::__select!(@read $how false [0 1 2 3 4 5 6 7 8 9] [] $($clauses)*)
    };

    (@read $how:ident $fair:ident [$($numbers:tt)*] []) => {
        ::core::compile_error!("select! needs a clause: it would wait for ever")
    };
    (@read $how:ident $fair:ident [$($numbers:tt)*] [] default => $($rest:tt)*) => {
        ::core::compile_error!("select! needs a clause beside `default`")
    };
    (@read $how:ident $fair:ident [$($numbers:tt)*] [$($read:tt)+]) => {
        $crate::__select!(@make $how $fair [$($read)+] [])
    };
    (@read $how:ident $fair:ident [$($numbers:tt)*] [$($read:tt)+] default => $body:block $(,)?) => {
        $crate::__select!(@make look $fair [$($read)+] [$body])
    };
    (@read $how:ident $fair:ident [$($numbers:tt)*] [$($read:tt)+] default => $body:expr $(,)?) => {
        $crate::__select!(@make look $fair [$($read)+] [$body])
    };
    (@read $how:ident $fair:ident [$($numbers:tt)*] [$($read:tt)+] default => $($rest:tt)*) => {
        ::core::compile_error!("`default` must be the last clause of select!")
    };
    (@read $how:ident $fair:ident [] [$($read:tt)*] $($rest:tt)+) => {
        ::core::compile_error!("select! has at most ten clauses beside `default`")
    };
    (@read $how:ident $fair:ident [$($numbers:tt)+] [$($read:tt)*]
        after($($arguments:tt)*) => $($rest:tt)*) => {
        $crate::__select!(@body $how $fair [$($numbers)+] [$($read)*] (after($($arguments)*)) (()) $($rest)*)
    };
    (@read $how:ident $fair:ident [$($numbers:tt)+] [$($read:tt)*]
        $kind:ident($($arguments:tt)*) -> $output:pat => $($rest:tt)*) => {
        $crate::__select!(@body $how $fair [$($numbers)+] [$($read)*] ($kind($($arguments)*)) ($output) $($rest)*)
    };
    (@read $($other:tt)*) => {
        ::core::compile_error!(
            "a clause of select! is `recv(receiver) -> received => …`, `send(sender, value) -> sent => …`, \
             `send_from(sender, slot) -> sent => …`, `join(handle) -> outcome => …`, \
             `future(future) -> output => …`, `after(duration) => …` or `default => …`"
        )
    };

    (@body $how:ident $fair:ident [$number:tt $($numbers:tt)*] [$($read:tt)*]
        ($($clause:tt)*) ($output:pat) $body:block , $($rest:tt)*) => {
        $crate::__select!(@read $how $fair [$($numbers)*]
            [$($read)* ($number clause ($($clause)*) ($output) ($body))] $($rest)*)
    };
    (@body $how:ident $fair:ident [$number:tt $($numbers:tt)*] [$($read:tt)*]
        ($($clause:tt)*) ($output:pat) $body:block $($rest:tt)*) => {
        $crate::__select!(@read $how $fair [$($numbers)*]
            [$($read)* ($number clause ($($clause)*) ($output) ($body))] $($rest)*)
    };
    (@body $how:ident $fair:ident [$number:tt $($numbers:tt)*] [$($read:tt)*]
        ($($clause:tt)*) ($output:pat) $body:expr $(, $($rest:tt)*)?) => {
        $crate::__select!(@read $how $fair [$($numbers)*]
            [$($read)* ($number clause ($($clause)*) ($output) ($body))] $($($rest)*)?)
    };

    (@make $how:ident $fair:ident
        [$(($number:tt $name:ident ($($clause:tt)*) ($output:pat) ($body:expr)))+] [$($default:expr)?]) => {{
        // The clauses are gone before anything is done: what they borrow is free again.
        let (winner, ($($name,)+)) = {
            $(let mut $name = ::core::pin::pin!($crate::__select!(@clause $($clause)*));)+
            let winner = $crate::__select!(@wait $how $fair [$($name)+]);
            (winner, ($($name.as_mut().take_output(),)+))
        };
        match winner {
            ::core::result::Result::Err(cancelled) => {
                ::core::result::Result::Err::<_, $crate::Cancelled>(cancelled)
            }
            ::core::result::Result::Ok(winner) => ::core::result::Result::Ok(match winner {
                $($number => {
                    let $output = $crate::select::won($name);
                    $body
                })+
                $(_ => $default,)?
                #[allow(unreachable_patterns)]
                _ => $crate::select::nobody(),
            }),
        }
    }};

    (@wait wait $fair:ident [$($name:ident)+]) => {
        $crate::select::wait($crate::__select!(@set $($name)+), $fair).await
    };
    (@wait $how:ident $fair:ident [$($name:ident)+]) => {
        $crate::select::$how($crate::__select!(@set $($name)+), $fair)
    };
    (@set) => { () };
    (@set $name:ident $($names:ident)*) => {
        ($name.as_mut(), $crate::__select!(@set $($names)*))
    };

    (@clause recv($receiver:expr $(,)?)) => { $receiver.recv_clause() };
    (@clause send($sender:expr, $value:expr $(,)?)) => { $sender.send_clause($value) };
    (@clause send_from($sender:expr, $slot:expr $(,)?)) => { $sender.send_clause_from(&mut $slot) };
    (@clause join($handle:expr $(,)?)) => { $crate::select::join(&mut $handle) };
    (@clause future($future:expr $(,)?)) => { $crate::select::FutureClause::new($future) };
    (@clause after($duration:expr $(,)?)) => { $crate::select::after($duration) };
    (@clause $($other:tt)*) => {
        ::core::compile_error!(::core::concat!("select! has no such clause: ", ::core::stringify!($($other)*)))
    };
}
