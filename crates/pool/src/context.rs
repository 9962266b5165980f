//! The context that a piece of work inherits from the code that forked or spawned it.
//!
//! A fiber knows its current context, and so does a thread that is no worker; every entry in a queue
//! carries the one it was made in, and the thread that runs the entry installs it for as long as it runs. A higher
//! layer hangs its own state on `user` (the job tree: the current job) and can stop what runs in the context
//! (`stop.rs`). Which `isolate` it lies in goes with it, by value (`isolation.rs`).

use std::cell::Cell;

use crate::isolation::{self, Isolation};
use crate::raw::fuel::Meter;
use crate::stop::StopSignal;
use crate::sync::step::Step;
use crate::sync::{AtomicU64, Ordering};
use crate::worker::Worker;

/// An inherited surrounding. Lives in the frame of the function that installed it, which ends only
/// after everything that carries it.
#[derive(Debug)]
#[cfg_attr(not(target_pointer_width = "64"), repr(align(256)))]
pub(crate) struct Context {
    /// A pointer of the layer above.
    user: *const (),
    /// The word that says when to stop, or null. It outlives the context. A context with limits that cannot be stopped has
    /// [`NEVER_SET`]: so a fork in it sees, by the comparison that it makes anyway, that it has to look at its thread.
    stop_word: *const AtomicU64,
    /// The bits that count in it.
    stop_mask: u64,
    /// The limit on what work in the context may burn. It outlives the context.
    meter: *const Meter,
    /// Set if the code that waits for what runs in the context does so in a destructor, while its thread unwinds: a panic
    /// that is passed on to it would end the process. [`std::thread::panicking`] says so on that thread alone.
    is_unwinding: bool,
}

/// The stop word of contexts with limits that cannot be stopped. Loom's atomics cannot be static; its models have no limits.
#[cfg(not(loom))]
static NEVER_SET: AtomicU64 = AtomicU64::new(0);

/// A stop signal that is never set, for a context with `meter`: the address is null unless forks in it have to look.
fn no_stop(meter: &Meter, is_unwinding: bool) -> *const AtomicU64 {
    #[cfg(not(loom))]
    if meter.gate.is_some() && !is_unwinding {
        return &raw const NEVER_SET;
    }
    let _ = (meter, is_unwinding);
    std::ptr::null()
}

/// A context, or none, and the innermost `isolate` around it: what an entry carries, in one word.
///
/// The isolation's number lies in the bits that addresses do not use: the highest, or where there are none, the lowest
/// ([`isolation`]). So it can be read without following the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct ContextRef {
    tagged: *const Context,
}

#[cfg(target_pointer_width = "64")]
const SHIFT: u32 = usize::BITS - isolation::BITS;

impl ContextRef {
    /// The context of work that is in no other: no isolation, no user pointer, no stop signal.
    pub(crate) const OUTERMOST: ContextRef = ContextRef {
        tagged: std::ptr::null(),
    };

    /// The outermost context, except that it is inside `isolation`.
    #[inline]
    pub(crate) fn outermost_inside(isolation: Isolation) -> ContextRef {
        ContextRef::OUTERMOST.isolated(isolation)
    }

    /// `context`, in the same isolation as this one.
    #[inline]
    pub(crate) fn nesting(self, context: &Context) -> ContextRef {
        ContextRef {
            tagged: std::ptr::from_ref(context),
        }
        .isolated(self.isolation())
    }

    /// The same context, which has no isolation or that of `isolation`'s surroundings, inside `isolation`.
    #[inline]
    pub(crate) fn isolated(self, isolation: Isolation) -> ContextRef {
        let (address, number) = (self.address(), isolation.number());
        #[cfg(target_pointer_width = "64")]
        let tagged = address
            .map_addr(|address| (address & (usize::MAX >> isolation::BITS)) | (number << SHIFT));
        #[cfg(not(target_pointer_width = "64"))]
        let tagged = address.map_addr(|address| address | number);
        let isolated = ContextRef { tagged };
        debug_assert!(
            isolated.address() == address && isolated.isolation() == isolation,
            "an address that uses the bits of the isolation"
        );
        isolated
    }

    /// The innermost isolation.
    #[inline(always)]
    pub(crate) fn isolation(self) -> Isolation {
        #[cfg(target_pointer_width = "64")]
        return Isolation::from_number(self.tagged.addr() >> SHIFT);
        #[cfg(not(target_pointer_width = "64"))]
        return Isolation::from_number(self.tagged.addr() & ((1 << isolation::BITS) - 1));
    }

    /// The context's address, or null.
    #[inline(always)]
    pub(crate) fn address(self) -> *const Context {
        self.tagged.map_addr(|address| {
            // As the processor wants addresses: the unused bits are copies of the highest used one.
            #[cfg(target_arch = "x86_64")]
            return ((address << isolation::BITS) as isize >> isolation::BITS) as usize;
            #[cfg(all(target_pointer_width = "64", not(target_arch = "x86_64")))]
            return address & (usize::MAX >> isolation::BITS);
            #[cfg(not(target_pointer_width = "64"))]
            return address & !((1 << isolation::BITS) - 1);
        })
    }

    /// The context; `None` is the outermost one.
    ///
    /// # Safety
    /// The context is alive for `'a`: the caller runs in it or holds an entry that carries it.
    #[inline(always)]
    pub(crate) unsafe fn get<'a>(self) -> Option<&'a Context> {
        // SAFETY: null or alive by contract.
        unsafe { self.address().as_ref() }
    }

    /// Returns the word that a slot of a queue holds.
    #[inline(always)]
    pub(crate) fn into_word(self) -> *mut Context {
        self.tagged.cast_mut()
    }

    /// Returns the context of a word that [`ContextRef::into_word`] returned.
    #[inline(always)]
    pub(crate) fn from_word(word: *mut Context) -> ContextRef {
        ContextRef { tagged: word }
    }
}

thread_local! {
    /// The context of a thread as long as it is no worker.
    static OUTSIDE: Cell<ContextRef> = const { Cell::new(ContextRef::OUTERMOST) };
}

impl Context {
    /// A context that inherits of `outer` the meter, and whether its caller unwinds, and nothing else. It is to be installed as one that is
    /// [nested](ContextRef::nesting) in `outer`.
    ///
    /// # Safety
    /// `outer` must be alive, and stay so as long as this one. So must the word of `stop`.
    #[inline]
    pub(crate) unsafe fn inside(
        outer: ContextRef,
        user: *const (),
        stop: Option<StopSignal<'_>>,
    ) -> Context {
        // SAFETY: by contract.
        let (meter, is_unwinding) = unsafe { (Meter::of(outer), is_unwinding_in(outer)) };
        let (stop_word, stop_mask) = match stop {
            Some(stop) => stop.into_parts(),
            None => (no_stop(meter, is_unwinding), 0),
        };
        Context {
            user,
            stop_word,
            stop_mask,
            meter,
            is_unwinding,
        }
    }

    /// The context `outer`, but with another meter.
    ///
    /// # Safety
    /// `outer` must be alive, and stay so as long as this one, and so must `meter`.
    pub(crate) unsafe fn metered(outer: ContextRef, meter: &Meter) -> Context {
        // SAFETY: by contract.
        let outer_context = unsafe { outer.get() };
        let is_unwinding = outer_context.is_some_and(|outer| outer.is_unwinding);
        let stoppable = outer_context.filter(|outer| outer.has_stop());
        Context {
            user: outer_context.map_or(std::ptr::null(), |outer| outer.user),
            stop_word: stoppable.map_or_else(
                || no_stop(meter, is_unwinding),
                |stoppable| stoppable.stop_word,
            ),
            stop_mask: stoppable.map_or(0, |stoppable| stoppable.stop_mask),
            meter,
            is_unwinding,
        }
    }

    /// This context for a caller that unwinds: it cannot be stopped, and nothing in it is refused by a panic.
    pub(crate) fn shielding(&self) -> Context {
        Context {
            user: self.user,
            stop_word: std::ptr::null(),
            stop_mask: 0,
            meter: self.meter,
            is_unwinding: true,
        }
    }

    /// Returns the limit on what work in the context may burn.
    #[inline(always)]
    pub(crate) fn meter(&self) -> &Meter {
        // SAFETY: it outlives the context, by the contracts of those who make one.
        unsafe { &*self.meter }
    }

    /// Returns `true` if it can be stopped.
    pub(crate) fn has_stop(&self) -> bool {
        self.stop_mask != 0
    }

    /// Returns `true` if forks in it have to look whether they are to unwind, or whether their thread does.
    #[inline(always)]
    pub(crate) fn is_watched(&self) -> bool {
        !self.stop_word.is_null()
    }

    /// Returns `true` if the context was told to stop.
    #[inline(always)]
    pub(crate) fn is_stopped(&self) -> bool {
        // SAFETY: null or alive for longer than the context.
        let word = unsafe { self.stop_word.as_ref() };
        word.is_some_and(|word| word.load(Ordering::Relaxed) & self.stop_mask != 0)
    }
}

/// The context that code runs in on `worker`, or on the calling thread if that is none.
#[inline]
pub(crate) fn of(worker: Option<&Worker>) -> ContextRef {
    match worker {
        Some(worker) => worker.strand().context().get(),
        None => OUTSIDE.get(),
    }
}

/// The context of the calling thread as one that is no worker.
pub(crate) fn outside() -> ContextRef {
    OUTSIDE.get()
}

/// Lends the context that the calling code runs in; `None` is the outermost one.
#[inline(always)]
pub(crate) fn with_current<R>(body: impl FnOnce(Option<&Context>) -> R) -> R {
    // SAFETY: the current context is alive while code runs in it, and `body` cannot keep it.
    Worker::with_running(|worker| body(unsafe { of(worker).get() }))
}

/// The pointer that the innermost [`with_user_context`] around this code installed, or null.
///
/// Forks and the tasks of scopes inherit it, whichever thread runs them.
pub fn user_context() -> *const () {
    with_current(|context| context.map_or(std::ptr::null(), |context| context.user))
}

/// The context that [`with_user_context`] installs.
///
/// It replaces what is installed around it as a whole: without a stop signal of its own, it shields what
/// runs in it from an outer one.
#[derive(Clone, Copy, Debug)]
pub struct UserContext<'a> {
    /// The pointer that [`user_context`] returns.
    pub user: *const (),
    /// Says when to stop. `None` is never.
    pub stop: Option<StopSignal<'a>>,
}

/// Runs `body` with `context` as the context of everything it forks, installs or spawns in scopes of its own.
///
/// For layers that keep per-job state. It works on every thread: what is installed or forked from a thread
/// that is no worker inherits its context. Tasks that no code waits for ([`spawn`](crate::spawn())) inherit
/// none. A nested call replaces the context, a nested [`isolate`](crate::isolate()) keeps it.
///
/// # Stopping
/// If the context has a [`StopSignal`] and that is set, then a fork in it, a `spawn` into a scope, or a
/// parallel loop between two blocks unwinds with [`Stopped`](crate::Stopped) instead of going on. The unwinding
/// passes through `join`s and scopes as a panic does, so everything that was forked has ended when it
/// arrives here; it is for the caller to catch. Set the signal first, then call
/// [`Pool::interrupt_forks`](crate::Pool::interrupt_forks).
///
/// While a thread panics, what its destructors fork is not stopped.
///
/// # Safety
/// Whatever `user` points to must outlive everything that reads the pointer by [`user_context`] as this layer
/// uses it: all that `body` forks, installs or spawns in scopes ends before `body` does.
pub unsafe fn with_user_context<R>(context: UserContext<'_>, body: impl FnOnce() -> R) -> R {
    Worker::with_running(|worker| {
        let outer = of(worker);
        // SAFETY: the current context is alive as long as we are inside; the word is borrowed for the call.
        let context = unsafe { Context::inside(outer, context.user, context.stop) };
        let _installed = Installed::new(worker, outer.nesting(&context));
        body()
    })
}

/// Returns `true` if the code that runs in `context` has a caller that unwinds.
///
/// # Safety
/// `context` must be null or alive.
#[inline]
unsafe fn is_unwinding_in(context: ContextRef) -> bool {
    // SAFETY: by contract.
    unsafe { context.get() }.is_some_and(|context| context.is_unwinding)
}

/// Returns `true` if a panic of the calling code may end the process: its thread unwinds, or, in what a destructor has
/// installed, forked or spawned in a scope, the thread that waits for it does.
///
/// For refusals that are panics: such code is not refused anything.
pub fn is_unwinding() -> bool {
    std::thread::panicking()
        || with_current(|context| context.is_some_and(|context| context.is_unwinding))
}

/// Runs `body` in a context that says so, if the thread is panicking: what runs in it elsewhere is not stopped and not
/// refused anything, since a second panic would end the process. To be used by whatever hands work to other threads and
/// then passes their panics on.
pub(crate) fn shielded_if_panicking<R>(body: impl FnOnce() -> R) -> R {
    if !std::thread::panicking() {
        return body();
    }
    Worker::with_running(|worker| {
        let outer = of(worker);
        // SAFETY: the current context is alive as long as we are inside.
        match unsafe { outer.get() } {
            Some(context) if context.is_watched() => {
                let shield = context.shielding();
                let _installed = Installed::new(worker, outer.nesting(&shield));
                body()
            }
            _ => body(),
        }
    })
}

/// A context installed on a fiber, or on a thread that is no worker, for as long as this value lives.
pub(crate) struct Installed<'w> {
    worker: Option<&'w Worker>,
    outer: ContextRef,
}

impl<'w> Installed<'w> {
    #[inline]
    pub(crate) fn new(worker: Option<&'w Worker>, context: ContextRef) -> Installed<'w> {
        let outer = change(worker, context);
        Installed { worker, outer }
    }
}

impl Drop for Installed<'_> {
    #[inline]
    fn drop(&mut self) {
        change(self.worker, self.outer);
    }
}

/// [`Installed`], except that the context which is installed again at the end is not looked at: it may be gone.
pub(crate) struct Swapped<'w> {
    worker: Option<&'w Worker>,
    outer: ContextRef,
}

impl<'w> Swapped<'w> {
    #[inline]
    pub(crate) fn new(worker: Option<&'w Worker>, context: ContextRef) -> Swapped<'w> {
        let outer = change(worker, context);
        Swapped { worker, outer }
    }
}

impl Drop for Swapped<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.worker {
            Some(worker) => worker.strand().context().set(self.outer),
            None => OUTSIDE.set(self.outer),
        }
    }
}

/// Changes the context that code runs in, and returns the one before.
#[inline]
fn change(worker: Option<&Worker>, context: ContextRef) -> ContextRef {
    let Some(worker) = worker else {
        return OUTSIDE.replace(context);
    };
    let strand = worker.strand();
    let before = strand.context().replace(context);
    // SAFETY: a `&Worker` is only to be had on the fiber's own stack.
    unsafe { strand.stay_interrupted(Step::InterruptContextLook) };
    before
}
