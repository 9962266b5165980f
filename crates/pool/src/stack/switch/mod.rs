//! The switch of a thread from one stack to another.
//!
//! Every worker thread has a hub, which runs on the stack that the system gave the thread, and resumes stacks. A stack that
//! is resumed runs a function until that returns; meanwhile it can go back to the hub, or pass the thread to another stack
//! that is suspended, and is suspended itself. There are two ways:
//!
//! - `direct`, on x86-64: a switch of our own, of a dozen instructions. From stack to stack it is one switch, and no
//!   return; so the processor, which predicts returns by the calls that it has seen, predicts those of a stack
//!   that waited right if the one that ran before waited at the same place.
//! - `portable`, elsewhere: corosensei's. It knows only the way to the hub and back, so passing the thread
//!   on takes two switches, and the hub's return is predicted wrong.
//!
//! Both are used alike; `PASSES_DIRECTLY` says which it is. What the rest of the pool may rely on: `README.md` in the
//! folder above.

#[cfg(jobtree_direct_switch)]
mod annotations;
#[cfg(jobtree_direct_switch)]
mod direct;
#[cfg(not(jobtree_direct_switch))]
mod portable;

#[cfg(jobtree_direct_switch)]
pub(crate) use direct::{Hub, PASSES_DIRECTLY, StackInUse};
#[cfg(not(jobtree_direct_switch))]
pub(crate) use portable::{Hub, PASSES_DIRECTLY, StackInUse};

#[cfg(any(test, feature = "bench-support"))]
mod routine;
#[cfg(any(test, feature = "bench-support"))]
pub(crate) use routine::Routine;
#[cfg(test)]
pub(crate) use routine::Way;

/// Returns the address down to which the running stack is in use. Not the address of a variable: sanitizers keep those elsewhere.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let pointer;
    // Without `nostack`, so the compiler aligns the stack as for a call.
    // SAFETY: only reads the register.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("mov {}, rsp", out(reg) pointer)
    };
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("mov {}, sp", out(reg) pointer)
    };
    // SAFETY: as above.
    #[cfg(target_arch = "riscv64")]
    unsafe {
        std::arch::asm!("mv {}, sp", out(reg) pointer)
    };
    pointer
}

/// The function that runs on a stack, from its first resumption on. Must not unwind.
pub(crate) type Bottom = unsafe extern "C" fn(*const (), *const ());
