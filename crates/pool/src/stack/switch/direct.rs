//! The switch of our own: x86-64 with the System V conventions.
//!
//! A stack that is suspended, downwards:
//!
//! ```text
//!   before the first switch                      later
//!   +-------------------------------+           +-------------------------------+ <- where its first frame begins
//!   | the hub                       |           | frames of `first_frame`, of   |
//!   | the two arguments             |           | the bottom, of what it calls  |
//!   | the bottom                    |           +-------------------------------+
//!   +-------------------------------+           | rbp                           |
//!   | address of `first_steps`      | <- sp     | rbx                           |
//!   +-------------------------------+           | address to go on at           | <- sp
//! ```
//!
//! The other registers are the compiler's business: the switch says that it changes them.

use std::arch::{asm, naked_asm};
use std::cell::{Cell, UnsafeCell};

use corosensei::stack::Stack as _;

use super::Bottom;
use super::annotations::Annotations;
use crate::stack::Stack;

/// `true` if [`StackInUse::pass`] can be called.
pub(crate) const PASSES_DIRECTLY: bool = true;

/// The number of words that [`first_steps`] finds on a stack: see the picture above.
const WORDS_TO_BEGIN_WITH: usize = 5;

/// The place where a thread's own stack is suspended while others run.
pub(crate) struct Hub {
    suspended_at: Cell<*mut usize>,
    annotations: Annotations,
}

impl Hub {
    pub(crate) fn new() -> Hub {
        Hub {
            suspended_at: Cell::new(std::ptr::null_mut()),
            annotations: Annotations::new(),
        }
    }
}

/// A stack with something on it that can be suspended and resumed; or none.
pub(crate) struct StackInUse {
    stack: UnsafeCell<Option<Stack>>,
    /// While it is suspended.
    suspended_at: Cell<*mut usize>,
    annotations: Annotations,
    /// As large as the portable one, so that fibers have the same layout with both. With a sanitizer the annotations take
    /// the place.
    #[cfg(not(feature = "sanitizer"))]
    _room: [usize; 3],
}

impl StackInUse {
    pub(crate) fn none() -> StackInUse {
        StackInUse {
            stack: UnsafeCell::new(None),
            suspended_at: Cell::new(std::ptr::null_mut()),
            annotations: Annotations::new(),
            #[cfg(not(feature = "sanitizer"))]
            _room: [0; 3],
        }
    }

    /// Puts `bottom` on `stack`, to begin when it is first resumed.
    ///
    /// # Safety
    /// There is no stack in use here. `bottom` may be called with these arguments, and does not unwind. `hub` stays where it
    /// is until `bottom` has returned.
    pub(crate) unsafe fn prepare(
        &self,
        stack: Stack,
        bottom: Bottom,
        arguments: [*const (); 2],
        hub: &Hub,
    ) {
        let [first, second] = arguments;
        let words: [*const (); WORDS_TO_BEGIN_WITH] = [
            first_steps as *const (),
            bottom as *const (),
            first,
            second,
            std::ptr::from_ref(hub).cast(),
        ];
        self.annotations
            .describe(stack.limit().get(), stack.base().get());
        let first_frame = std::ptr::with_exposed_provenance_mut::<*const ()>(stack.first_frame());
        // SAFETY: the upper part of a stack can be written, the place is aligned as a stack must be, and nothing runs there.
        unsafe {
            let top = first_frame.sub(words.len());
            top.cast::<[*const (); WORDS_TO_BEGIN_WITH]>().write(words);
            self.suspended_at.set(top.cast());
            *self.stack.get() = Some(stack);
        }
    }

    /// Returns the address at which the stack begins, its highest one. 0 if there is none.
    pub(crate) fn base(&self) -> usize {
        // SAFETY: only `prepare` and `take_stack` write, which are not called meanwhile: all this belongs to one thread.
        let stack = unsafe { &*self.stack.get() };
        stack.as_ref().map_or(0, |stack| stack.base().get())
    }

    /// Takes the stack out.
    ///
    /// # Safety
    /// What ran on it has ended: its last switch was from its end to the hub.
    pub(crate) unsafe fn take_stack(&self) -> Option<Stack> {
        self.suspended_at.set(std::ptr::null_mut());
        self.annotations.forget_first_frame();
        // SAFETY: nothing runs on it.
        unsafe { (*self.stack.get()).take() }
    }

    /// Goes from the hub to the stack. Returns when some stack goes back to the hub.
    ///
    /// # Safety
    /// The caller is on the hub's stack. The stack is prepared, or suspended, on this thread.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self, hub: &Hub) {
        hub.annotations.leave_for(&self.annotations);
        // SAFETY: by contract.
        unsafe { switch(&hub.suspended_at, self.suspended_at.get()) };
        hub.annotations.go_on();
    }

    /// Goes from this stack to the hub. Returns when another stack resumes the stack, or passes the thread to it.
    ///
    /// # Safety
    /// The caller is on this stack, and the hub is suspended.
    #[inline(always)]
    pub(crate) unsafe fn leave(&self, hub: &Hub) {
        self.annotations.leave_for(&hub.annotations);
        // SAFETY: by contract.
        unsafe { switch(&self.suspended_at, hub.suspended_at.get()) };
        self.annotations.go_on();
    }

    /// Goes from this stack to `next`. Returns as [`leave`](StackInUse::leave) does.
    ///
    /// # Safety
    /// The caller is on this stack, and `next` is another one, prepared or suspended, on this thread.
    #[inline(always)]
    pub(crate) unsafe fn pass(&self, next: &StackInUse) {
        self.annotations.leave_for(&next.annotations);
        // SAFETY: by contract.
        unsafe { switch(&self.suspended_at, next.suspended_at.get()) };
        self.annotations.go_on();
    }
}

/// Suspends the running stack, notes where, and goes on where another one was suspended.
///
/// It jumps, and neither calls nor returns: the processor's memory of calls stays as it is. For this it must be inlined.
///
/// # Safety
/// `to` is where a stack of this thread was suspended or prepared, and is not used again before that has been suspended
/// anew.
#[inline(always)]
unsafe fn switch(from: &Cell<*mut usize>, to: *mut usize) {
    // SAFETY: what a call may change is declared as changed, and so are the registers that a call keeps, except rbx and rbp,
    // which the compiler does not let go of: they are saved here. Without `nostack` nothing is kept below the stack pointer.
    // The pushed words are taken off again by the code that switches back, two of them here and the address there, so that the
    // stack pointer is the same. Memory is declared as changed, since others run meanwhile.
    unsafe {
        asm!(
            "push rbp",
            "push rbx",
            "lea rax, [rip + 2f]",
            "push rax",
            "mov [rdi], rsp",
            "mov rsp, rsi",
            "pop rax",
            "jmp rax",
            "2:",
            "pop rbx",
            "pop rbp",
            inlateout("rdi") from.as_ptr() => _,
            inlateout("rsi") to => _,
            lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
            clobber_abi("sysv64"),
        );
    }
}

/// The place where a stack is suspended that was only prepared: takes what [`StackInUse::prepare`] left there as arguments.
///
/// For the unwinder, and with it for backtraces, the stack ends here.
///
/// # Safety
/// Only jumped to by [`switch`], on a prepared stack.
#[unsafe(naked)]
unsafe extern "C" fn first_steps() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "xor ebp, ebp",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        // Now the stack is empty, and so aligned for a call.
        "call {first_frame}",
        "ud2",
        ".cfi_endproc",
        first_frame = sym first_frame,
    )
}

/// The first frame that the compiler made. An unwind would end here, and the process with it.
///
/// # Safety
/// As for [`StackInUse::prepare`].
unsafe extern "C" fn first_frame(
    bottom: Bottom,
    first: *const (),
    second: *const (),
    hub: *const Hub,
) -> ! {
    Annotations::begin();
    // SAFETY: by contract; the hub stays until `bottom` has returned, and is suspended then.
    unsafe {
        bottom(first, second);
        let hub = &*hub;
        let nowhere = Cell::new(std::ptr::null_mut());
        Annotations::end_for(&hub.annotations);
        switch(&nowhere, hub.suspended_at.get());
    }
    unreachable!("a stack whose bottom has returned is not resumed");
}
