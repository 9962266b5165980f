//! Says which task used up which stack, before the process ends.
//!
//! A task that recurses too deeply touches the guard below its stack and the kernel sends SIGSEGV (or
//! SIGBUS). There is no stack left to handle that on, so the handler runs on an alternate signal stack, which
//! each worker thread has (`ThreadGuard`). It looks the address up in the table of slabs; if it is a guard of
//! ours it writes one line and aborts, else the signal goes to the handler that was there before ours: the standard
//! library's own check for thread stacks, a crash reporter, or the default action.
//!
//! The handler may only do what is safe in a signal handler: it reads atomics and thread-local cells that are
//! initialised at compile time and have no destructor, fills a buffer on its own stack, and calls `write`,
//! `sigaction`, `raise` and `abort`. It takes no lock and allocates nothing.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering, compiler_fence};

use super::class::{StackClass, in_largest_whole_unit};
use super::guard::{self, GuardMethod};
use super::registry::{self, OverflownStack};
use super::slab::{last_os_error, map_anonymous, page_size, round_up_to_pages, unmap};
use crate::job::JobName;

thread_local! {
    static TASK_NAME: Cell<Option<JobName>> = const { Cell::new(None) };
    /// The name given to the innermost [`ThreadGuard`], which owns it.
    static THREAD_NAME: Cell<Option<ptr::NonNull<str>>> = const { Cell::new(None) };
}

/// Sets the name of the task that this thread is running, and returns the one before. Only a report asks what it is, in
/// a signal handler: it must be there already, as that of a type is.
///
/// The thread that runs a task sets its name and puts the old one back afterwards. The name belongs to the thread,
/// not to the stack: a worker that changes stacks sets the name of the task it goes on with.
#[inline(always)]
pub fn set_task_name(name: Option<JobName>) -> Option<JobName> {
    let before = TASK_NAME.replace(name);
    // The only other reader is a signal handler on this thread: the write must precede what may fault.
    compiler_fence(Ordering::SeqCst);
    before
}

/// Installs the fault handler for the process. Does nothing when it has been installed before.
pub fn install_handler() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        for (signal, previous) in [(libc::SIGSEGV, &BEFORE_SEGV), (libc::SIGBUS, &BEFORE_BUS)] {
            // SAFETY: all zeroes is a valid `sigaction`: default action, no flags, no blocked signals.
            let mut before: libc::sigaction = unsafe { mem::zeroed() };
            // SAFETY: only asks what is installed now.
            if unsafe { libc::sigaction(signal, ptr::null(), &mut before) } != 0 {
                continue;
            }
            // Before the handler is in place, since a fault may come at once.
            previous.remember(&before);
            // SAFETY: as above.
            let mut ours: libc::sigaction = unsafe { mem::zeroed() };
            ours.sa_sigaction = on_fault as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: `on_fault` has the signature that SA_SIGINFO demands, and does only what is safe in
            // a signal handler.
            if unsafe { libc::sigaction(signal, &ours, &mut before) } == 0 {
                // Another handler may have been installed between our question and our handler.
                previous.remember(&before);
            }
        }
    });
}

/// While it lives, an overflow on this thread is reported, with the thread's name.
///
/// Gives the thread an alternate signal stack if it has none that is large enough (the standard library
/// gives its threads one, foreign threads have none), and takes it away again when dropped, on the same thread.
pub struct ThreadGuard {
    /// A raw allocation, since the thread-local cell points into it.
    name: ptr::NonNull<str>,
    name_before: Option<ptr::NonNull<str>>,
    signal_stack: Option<SignalStack>,
    /// Belongs to the thread it was made on.
    _not_send: PhantomData<*mut ()>,
}

impl ThreadGuard {
    /// Prepares the current thread, which is called `thread_name` in the report.
    ///
    /// Where the system refuses a signal stack, an overflow is an unexplained crash but still no corruption.
    pub fn new(thread_name: &str) -> ThreadGuard {
        let name = ptr::NonNull::from(Box::leak(Box::<str>::from(thread_name)));
        let name_before = THREAD_NAME.replace(Some(name));
        // Touched here so that a handler on this thread never is the first to, which could allocate.
        TASK_NAME.with(|_| ());
        ThreadGuard {
            name,
            name_before,
            signal_stack: SignalStack::install_if_needed(),
            _not_send: PhantomData,
        }
    }
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        drop(self.signal_stack.take());
        THREAD_NAME.set(self.name_before);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: made from a box in `new`; the cell, the only other place that knew it, now points elsewhere.
        drop(unsafe { Box::from_raw(self.name.as_ptr()) });
    }
}

/// An alternate signal stack of our own, with a guard page below it.
struct SignalStack {
    mapping: usize,
    mapping_len: usize,
    /// One, or none if the system refused it.
    guards: usize,
    before: libc::stack_t,
}

/// The bytes that our handler, or the one it passes a fault on to, may need beside the kernel's own frame.
const HANDLER_NEEDS: usize = 4 * 1024;

impl SignalStack {
    /// `None` if the thread has one that will do, or the system refuses.
    fn install_if_needed() -> Option<SignalStack> {
        let before = current_signal_stack()?;
        let needed = kernel_frame_size() + HANDLER_NEEDS;
        let has_one = before.ss_flags & libc::SS_DISABLE == 0;
        // While the thread is on it, it cannot be changed.
        let is_on_it = before.ss_flags & libc::SS_ONSTACK != 0;
        if is_on_it || (has_one && before.ss_size >= needed) {
            return None;
        }
        let page = page_size();
        let usable = round_up_to_pages(needed + 3 * HANDLER_NEEDS);
        let mapping_len = page + usable;
        let mapping = map_anonymous(mapping_len).ok()?;
        let guard_method = GuardMethod::best();
        // SAFETY: the lowest page of a mapping made above, which is not in use yet. Without a guard the signal
        // stack is still of use, so a refusal is no reason to go without.
        let guarded = unsafe { guard::install(guard_method, mapping, page) }.is_ok();
        let ours = libc::stack_t {
            ss_sp: (mapping + page) as *mut c_void,
            ss_flags: 0,
            ss_size: usable,
        };
        // SAFETY: the memory stays mapped until `drop` takes the signal stack away.
        if unsafe { libc::sigaltstack(&ours, ptr::null_mut()) } != 0 {
            // SAFETY: exactly the mapping made above, which was not installed.
            unsafe { unmap(mapping, mapping_len) };
            guard::unmapped(guard_method, usize::from(guarded));
            return None;
        }
        Some(SignalStack {
            mapping,
            mapping_len,
            guards: usize::from(guarded),
            before,
        })
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        let ours = (self.mapping + page_size()) as *mut c_void;
        let Some(current) = current_signal_stack() else {
            return;
        };
        if current.ss_sp == ours {
            // Some systems check the size even when disabling.
            let mut before = self.before;
            before.ss_flags &= libc::SS_DISABLE;
            if before.ss_flags != 0 {
                before.ss_size = current.ss_size;
            }
            // SAFETY: the signal stack that was there before, whose owner has not taken it away, since it
            // would have found ours.
            if unsafe { libc::sigaltstack(&before, ptr::null_mut()) } != 0 {
                // It is in use right now. Better to leak it than to unmap it.
                return;
            }
        }
        // SAFETY: exactly the mapping made in `install_if_needed`, and no longer the signal stack.
        unsafe { unmap(self.mapping, self.mapping_len) };
        guard::unmapped(GuardMethod::best(), self.guards);
    }
}

fn current_signal_stack() -> Option<libc::stack_t> {
    let mut current = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: only asks.
    let answered = unsafe { libc::sigaltstack(ptr::null(), current.as_mut_ptr()) } == 0;
    debug_assert!(
        answered,
        "asking for the signal stack: error {}",
        last_os_error()
    );
    // SAFETY: filled by the call, and valid as zeroes too.
    answered.then(|| unsafe { current.assume_init() })
}

/// Returns the size of the frame that the kernel pushes when it delivers a signal: all registers, so it grows with the processor.
fn kernel_frame_size() -> usize {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    // SAFETY: reads a constant that the kernel passed to the process; 0 if it is an old kernel.
    let told = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let told = 0;
    told.max(libc::MINSIGSTKSZ)
}

/// The action that ours replaced.
struct PreviousAction {
    handler: AtomicUsize,
    flags: AtomicI32,
}

static BEFORE_SEGV: PreviousAction = PreviousAction::default_action();
static BEFORE_BUS: PreviousAction = PreviousAction::default_action();

impl PreviousAction {
    const fn default_action() -> PreviousAction {
        PreviousAction {
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicI32::new(0),
        }
    }

    fn remember(&self, action: &libc::sigaction) {
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        // Release: a handler on another thread that sees this address sees its flags.
        self.handler.store(action.sa_sigaction, Ordering::Release);
    }

    /// Does what would have happened without us.
    ///
    /// # Safety
    ///
    /// Called from our handler with its own arguments.
    unsafe fn handle(&self, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        let handler = self.handler.load(Ordering::Acquire);
        let takes_info = self.flags.load(Ordering::Relaxed) & libc::SA_SIGINFO != 0;
        if handler != libc::SIG_DFL && handler != libc::SIG_IGN {
            if takes_info {
                // SAFETY: installed with SA_SIGINFO, so it is a function of this type.
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { mem::transmute(handler) };
                handler(signal, info, context);
            } else {
                // SAFETY: installed without SA_SIGINFO, so it is a function of this type.
                let handler: extern "C" fn(c_int) = unsafe { mem::transmute(handler) };
                handler(signal);
            }
            return;
        }
        // SAFETY: the kernel passes a valid pointer to every SA_SIGINFO handler.
        let is_fault = unsafe { is_fault(info) };
        if handler == libc::SIG_IGN && !is_fault {
            return;
        }
        // A fault happens again when the instruction is repeated, and then takes the default action; a signal
        // sent by a process has to be sent again.
        // SAFETY: all zeroes is the default action; both calls are allowed in a handler.
        unsafe {
            let default_action: libc::sigaction = mem::zeroed();
            libc::sigaction(signal, &default_action, ptr::null_mut());
            if !is_fault {
                libc::raise(signal);
            }
        }
    }
}

/// Returns `true` if the kernel found a fault, rather than a process sending the signal.
///
/// # Safety
///
/// `info` is what the kernel passed to a handler.
unsafe fn is_fault(info: *const libc::siginfo_t) -> bool {
    // SAFETY: by contract valid to read.
    unsafe { (*info).si_code > 0 }
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid pointer to an SA_SIGINFO handler, and for a fault the address is set.
    let address = unsafe { is_fault(info).then(|| (*info).si_addr() as usize) };
    if let Some(stack) = address.and_then(registry::guard_at) {
        // Only now may the thread-local cells be read: who runs on one of our stacks is a worker, and has them.
        let thread_name = THREAD_NAME.get();
        // SAFETY: the guard that owns the name lives as long as the cell points to it.
        let thread_name = thread_name.map(|name| unsafe { name.as_ref() });
        Report::new(stack, TASK_NAME.get().map(|name| name()), thread_name).write_to_stderr();
        // SAFETY: allowed in a handler.
        unsafe { libc::abort() };
    }
    let previous = if signal == libc::SIGSEGV {
        &BEFORE_SEGV
    } else {
        &BEFORE_BUS
    };
    // SAFETY: called from our handler with its own arguments.
    unsafe { previous.handle(signal, info, context) };
}

/// One line of text, built without allocation.
struct Report {
    text: [u8; Report::CAPACITY],
    len: usize,
}

impl Report {
    const CAPACITY: usize = 640;
    /// Longer names are cut, so that the advice at the end of the line is always there.
    const LONGEST_NAME: usize = 160;

    fn new(stack: OverflownStack, task: Option<&str>, thread: Option<&str>) -> Report {
        let mut report = Report {
            text: [0; Report::CAPACITY],
            len: 0,
        };
        report.push("jobtree: stack overflow in ");
        report.push_named("task", "a task without a name", task);
        report.push(" on ");
        report.push_named("worker thread", "a worker thread without a name", thread);
        report.push(": its ");
        let (amount, unit) = in_largest_whole_unit(stack.usable);
        report.push_number(amount);
        report.push(" ");
        report.push(unit);
        report.push(" stack is used up; ");
        report.push(match stack.class {
            StackClass::Default => {
                "raise it with Builder::stack_size, or recurse less deeply in the task\n"
            }
            StackClass::Small => {
                "run the task on a stack of the default class, or keep large values on the heap\n"
            }
        });
        report
    }

    fn push_named(&mut self, kind: &str, unnamed: &str, name: Option<&str>) {
        let Some(name) = name else {
            return self.push(unnamed);
        };
        let shown = &name[..name.floor_char_boundary(Report::LONGEST_NAME)];
        self.push(kind);
        self.push(" '");
        self.push(shown);
        self.push(if shown.len() < name.len() {
            "...'"
        } else {
            "'"
        });
    }

    fn push_number(&mut self, number: usize) {
        let mut digits = [0; 20];
        let mut rest = number;
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.push_bytes(&digits[first..]);
    }

    fn push(&mut self, text: &str) {
        self.push_bytes(text.as_bytes());
    }

    /// Drops what does not fit: a panic in here would be worse than a cut line.
    fn push_bytes(&mut self, bytes: &[u8]) {
        let room = &mut self.text[self.len..];
        let count = bytes.len().min(room.len());
        room[..count].copy_from_slice(&bytes[..count]);
        self.len += count;
    }

    fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }

    fn write_to_stderr(&self) {
        let mut rest = self.as_bytes();
        while !rest.is_empty() {
            // SAFETY: the buffer is readable for its length; `write` is allowed in a handler.
            let written =
                unsafe { libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(written) {
                Ok(count) if count > 0 => rest = &rest[count..],
                // No error can be reported about a failed report.
                _ => return,
            }
        }
    }
}

#[cfg(test)]
#[path = "overflow_tests.rs"]
mod tests;
