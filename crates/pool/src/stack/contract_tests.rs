//! The contract of the context switch, as `README.md` in this folder states it, put to the test.
//!
//! The switch is corosensei's; these tests are about what the pool relies on. A new version of it, or a
//! compiler that treats its assembly otherwise, has to pass them before it is used.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::thread;

use corosensei::stack::Stack as _;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::class::SMALL_STACK_SIZE;
use super::testing::in_child_process_with;
use super::{DEFAULT_STACK_SIZE, Stack, StackCache, StackClass, StackSupply};

/// Runs a body on a stack of the class, resuming it until it returns, and gives the stack back.
fn run_on<R: 'static>(class: StackClass, body: impl FnOnce(&Yielder<(), ()>) -> R + 'static) -> R {
    let cache = new_cache();
    let mut coroutine = new_coroutine(&cache, class, body);
    loop {
        if let CoroutineResult::Return(value) = coroutine.resume(()) {
            cache.give(coroutine.into_stack());
            return value;
        }
    }
}

fn new_cache() -> StackCache {
    StackCache::new(&StackSupply::new(DEFAULT_STACK_SIZE).expect("a supply"))
}

fn new_coroutine<R: 'static>(
    cache: &StackCache,
    class: StackClass,
    body: impl FnOnce(&Yielder<(), ()>) -> R + 'static,
) -> Coroutine<(), (), R, Stack> {
    Coroutine::with_stack(cache.take(class).expect("a stack"), |yielder, ()| {
        body(yielder)
    })
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .expect("a panic with a plain message")
}

mod registers {
    use super::*;

    /// More live values than there are registers of either kind, so that all of them are in use.
    #[inline(never)]
    fn hold_values_across(seed: u64, switch: impl FnOnce()) -> (u64, f64) {
        let whole: [u64; 24] = std::array::from_fn(|i| black_box(seed + i as u64));
        let fractions: [f64; 40] = std::array::from_fn(|i| black_box(seed as f64 + i as f64 / 2.0));
        switch();
        (whole.iter().sum(), fractions.iter().sum())
    }

    #[test]
    fn values_live_across_a_switch_survive_on_both_sides() {
        let undisturbed = |seed| hold_values_across(seed, || ());
        let cache = new_cache();
        let mut coroutine = new_coroutine(&cache, StackClass::Small, |yielder| {
            (0..100)
                .map(|round| hold_values_across(round, || yielder.suspend(())))
                .collect()
        });
        let mut results: Option<Vec<(u64, f64)>> = None;
        for round in 1000..=1100 {
            let outside = hold_values_across(round, || results = coroutine.resume(()).as_return());
            assert_eq!(outside, undisturbed(round));
        }
        let results = results.expect("a hundred switches and a return");
        assert_eq!(results, (0..100).map(undisturbed).collect::<Vec<_>>());
        cache.give(coroutine.into_stack());
    }

    /// On x86-64 the callee-saved registers by name: each is given a known value before a call that
    /// switches away and back, while the other side overwrites all of them.
    #[cfg(target_arch = "x86_64")]
    mod x86_64 {
        use super::*;
        use std::arch::asm;

        /// Calls `function(argument)` with known values in rbx, rbp and r12 to r15, and returns the bits in
        /// which any of them differs afterwards.
        #[inline(never)]
        fn changed_bits(function: extern "C" fn(*const ()), argument: *const ()) -> u64 {
            let changed: u64;
            // SAFETY: rbx and rbp are saved and put back; what the call may change is declared as clobbered.
            // The stack is aligned when the block starts, and two pushes keep it so.
            unsafe {
                asm!(
                    "push rbx",
                    "push rbp",
                    "mov rbx, 0x1111",
                    "mov rbp, 0x2222",
                    "mov r12, 0x3333",
                    "mov r13, 0x4444",
                    "mov r14, 0x5555",
                    "mov r15, 0x6666",
                    "call rax",
                    "xor rbx, 0x1111",
                    "xor rbp, 0x2222",
                    "xor r12, 0x3333",
                    "xor r13, 0x4444",
                    "xor r14, 0x5555",
                    "xor r15, 0x6666",
                    "mov rax, rbx",
                    "or rax, rbp",
                    "or rax, r12",
                    "or rax, r13",
                    "or rax, r14",
                    "or rax, r15",
                    "pop rbp",
                    "pop rbx",
                    inlateout("rax") function as *const () as u64 => changed,
                    in("rdi") argument,
                    lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
                    clobber_abi("sysv64"),
                );
            }
            changed
        }

        /// Leaves other values in those callee-saved registers that may be named here, as code between two
        /// switches may. The compiler keeps rbx and rbp for itself, and changes them as it goes.
        #[inline(always)]
        fn overwrite_registers() {
            // SAFETY: every register that is written is declared.
            unsafe {
                asm!(
                    "mov r12, -1", "mov r13, -1", "mov r14, -1", "mov r15, -1",
                    out("r12") _, out("r13") _, out("r14") _, out("r15") _,
                    options(nostack),
                );
            }
        }

        extern "C" fn suspend(yielder: *const ()) {
            // SAFETY: called below with the yielder of the running coroutine.
            unsafe { (*yielder.cast::<Yielder<(), ()>>()).suspend(()) };
        }

        type Inner = Coroutine<(), (), u64, Stack>;

        extern "C" fn resume(coroutine: *const ()) {
            // SAFETY: called below with a pointer to a coroutine that nothing else refers to meanwhile.
            let coroutine = unsafe { &mut *coroutine.cast_mut().cast::<Inner>() };
            assert_eq!(coroutine.resume(()), CoroutineResult::Yield(()));
        }

        #[test]
        fn callee_saved_registers_survive_suspending_and_resuming() {
            let cache = new_cache();
            let mut coroutine: Inner = new_coroutine(&cache, StackClass::Small, |yielder| {
                let mut changed = 0;
                for _ in 0..10 {
                    changed |= changed_bits(suspend, std::ptr::from_ref(yielder).cast());
                    overwrite_registers();
                }
                changed
            });
            for _ in 0..10 {
                let argument = std::ptr::from_mut(&mut coroutine).cast_const().cast();
                assert_eq!(changed_bits(resume, argument), 0, "across resume");
                overwrite_registers();
            }
            assert_eq!(
                coroutine.resume(()),
                CoroutineResult::Return(0),
                "across suspend"
            );
            cache.give(coroutine.into_stack());
        }

        fn read_float_control() -> (u32, u16) {
            let (mut mxcsr, mut x87) = (0u32, 0u16);
            // SAFETY: the two stores write to the two variables, and nothing else changes.
            unsafe {
                asm!(
                    "stmxcsr [{mxcsr}]",
                    "fnstcw [{x87}]",
                    mxcsr = in(reg) &mut mxcsr,
                    x87 = in(reg) &mut x87,
                    options(nostack, preserves_flags),
                );
            }
            (mxcsr, x87)
        }

        /// # Safety
        ///
        /// No floating-point arithmetic happens until the default is back.
        unsafe fn write_float_control((mxcsr, x87): (u32, u16)) {
            // SAFETY: both are values that were read before, with only the rounding changed.
            unsafe {
                asm!(
                    "ldmxcsr [{mxcsr}]",
                    "fldcw [{x87}]",
                    mxcsr = in(reg) &mxcsr,
                    x87 = in(reg) &x87,
                    options(nostack, preserves_flags, readonly),
                );
            }
        }

        #[test]
        fn floating_point_control_words_are_not_saved_and_belong_to_the_thread() {
            const MXCSR_ROUNDING: u32 = 0b11 << 13;
            const X87_ROUNDING: u16 = 0b11 << 10;
            let before = read_float_control();
            let toward_zero = (before.0 | MXCSR_ROUNDING, before.1 | X87_ROUNDING);
            let cache = new_cache();
            let mut coroutine = new_coroutine(&cache, StackClass::Small, move |yielder| {
                // SAFETY: the resumer computes nothing before it puts the default back.
                unsafe { write_float_control(toward_zero) };
                yielder.suspend(());
                read_float_control()
            });
            let suspended = coroutine.resume(());
            let leaked = read_float_control();
            // SAFETY: back to what it was.
            unsafe { write_float_control(before) };
            assert_eq!(suspended, CoroutineResult::Yield(()));
            assert_eq!(
                leaked, toward_zero,
                "the resumer sees what the coroutine set"
            );
            assert_eq!(
                coroutine.resume(()),
                CoroutineResult::Return(before),
                "and the coroutine sees what the resumer set"
            );
            cache.give(coroutine.into_stack());
        }
    }
}

mod frames {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    fn stack_pointer() -> usize {
        let pointer;
        // SAFETY: only reads the register. Without `nostack`, so the compiler aligns the stack for a call,
        // counting from what it assumes of the alignment at entry.
        unsafe { std::arch::asm!("mov {}, rsp", out(reg) pointer) };
        pointer
    }

    #[cfg(target_arch = "aarch64")]
    fn stack_pointer() -> usize {
        let pointer;
        // SAFETY: only reads the register.
        unsafe { std::arch::asm!("mov {}, sp", out(reg) pointer) };
        pointer
    }

    #[cfg(target_arch = "riscv64")]
    fn stack_pointer() -> usize {
        let pointer;
        // SAFETY: only reads the register.
        unsafe { std::arch::asm!("mv {}, sp", out(reg) pointer) };
        pointer
    }

    #[repr(align(64))]
    #[derive(Clone, Copy)]
    struct Aligned([u8; 64]);

    #[test]
    fn a_stack_is_aligned_at_entry_and_after_each_switch() {
        for class in StackClass::ALL {
            // A capture of odd size, then one that is aligned more strictly than the stack.
            let odd = [7u8; 3];
            let strict = Aligned([9; 64]);
            run_on(class, move |yielder| {
                for _ in 0..3 {
                    assert_eq!(stack_pointer() % 16, 0);
                    let local = black_box(strict);
                    assert_eq!(std::ptr::from_ref(&local).addr() % 64, 0);
                    assert_eq!((local.0[63], black_box(odd)[2]), (9, 7));
                    yielder.suspend(());
                }
            });
        }
    }

    #[test]
    fn frames_lie_between_limit_and_base() {
        let cache = new_cache();
        let stack = cache.take(StackClass::Small).expect("a stack");
        let (limit, base) = (stack.limit().get(), stack.base().get());
        let mut coroutine =
            Coroutine::<(), (), usize, Stack>::with_stack(stack, |_, ()| stack_pointer());
        let CoroutineResult::Return(inside) = coroutine.resume(()) else {
            panic!("a body that does not suspend returns");
        };
        assert!(limit < inside && inside < base);
        assert!(
            base - inside < 4096,
            "the switch itself takes little: {}",
            base - inside
        );
        cache.give(coroutine.into_stack());
    }

    #[test]
    fn a_body_that_captures_too_much_is_refused() {
        let cache = new_cache();
        let captured = [1u8; 1025];
        let stack = cache.take(StackClass::Small).expect("a stack");
        let refused = catch_unwind(AssertUnwindSafe(|| {
            drop(Coroutine::<(), (), u8, Stack>::with_stack(
                stack,
                move |_, ()| captured[1024],
            ));
        }));
        assert!(refused.is_err());
        // The stack went down with the panic.
        cache.supply().expect_missing(1);
    }

    /// Goes down until `bytes` of stack are used, then back up through frames that must be intact.
    #[inline(never)]
    fn descend(top: usize, bytes: usize, yielder: &Yielder<(), ()>) -> usize {
        let frame = black_box([top - stack_pointer(); 32]);
        if top - stack_pointer() < bytes {
            let below = descend(top, bytes, yielder);
            return below + usize::from(frame.iter().all(|&value| value == frame[0]));
        }
        yielder.suspend(());
        0
    }

    #[test]
    fn deep_frames_survive_a_switch_at_the_bottom() {
        for (class, size) in [
            (StackClass::Small, SMALL_STACK_SIZE),
            (StackClass::Default, DEFAULT_STACK_SIZE),
        ] {
            // All but a few KiB, which the deepest frames and the suspension need.
            let bytes = size - 8 * 1024;
            let intact = run_on(class, move |yielder| {
                descend(stack_pointer(), bytes, yielder)
            });
            assert!(intact > bytes / 4096, "{intact} frames");
        }
    }
}

mod panics {
    use super::*;

    #[test]
    fn a_panic_caught_on_a_stack_can_be_carried_over_a_switch_and_go_on() {
        let cache = new_cache();
        let mut coroutine = new_coroutine(&cache, StackClass::Default, |yielder| {
            let caught = catch_unwind(|| panic!("spilt milk")).expect_err("a panic");
            assert!(!thread::panicking());
            yielder.suspend(());
            resume_unwind(caught);
        });
        assert_eq!(coroutine.resume(()), CoroutineResult::Yield::<(), ()>(()));
        assert!(!thread::panicking());
        let arrived = catch_unwind(AssertUnwindSafe(|| coroutine.resume(())));
        assert_eq!(
            message(&*arrived.expect_err("the panic goes on in the resumer")),
            "spilt milk"
        );
        assert!(coroutine.done());
        cache.give(coroutine.into_stack());
    }

    #[test]
    fn a_panic_that_leaves_the_body_unwinds_its_frames_and_arrives_in_the_resumer() {
        let witness = Rc::new(());
        let on_the_stack = Rc::clone(&witness);
        let cache = new_cache();
        let mut coroutine = new_coroutine(&cache, StackClass::Default, move |_| {
            let _held = black_box(on_the_stack);
            panic!("too hot");
        });
        let arrived = catch_unwind(AssertUnwindSafe(|| {
            let _: CoroutineResult<(), ()> = coroutine.resume(());
        }));
        assert_eq!(message(&*arrived.expect_err("a panic")), "too hot");
        assert_eq!(
            Rc::strong_count(&witness),
            1,
            "the frame's values were dropped"
        );
        cache.give(coroutine.into_stack());
    }

    /// Why the pool catches, waits and then resumes the panic: that a thread is panicking is the thread's
    /// state, so suspending halfway through an unwinding would make everybody else on it look panicking.
    #[test]
    fn a_stack_suspended_while_panicking_would_disturb_its_thread() {
        struct SuspendsWhenDropped<'a>(&'a Yielder<(), ()>);
        impl Drop for SuspendsWhenDropped<'_> {
            fn drop(&mut self) {
                self.0.suspend(());
            }
        }
        // On a thread of its own, as it is in a bad state meanwhile.
        let disturbed = thread::spawn(|| {
            let cache = new_cache();
            let mut coroutine = new_coroutine(&cache, StackClass::Default, |yielder| {
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    let _suspends = SuspendsWhenDropped(yielder);
                    panic!("half way");
                }));
            });
            coroutine.resume(());
            let disturbed = thread::panicking();
            coroutine.resume(());
            assert!(!thread::panicking(), "the panic was caught in the end");
            cache.give(coroutine.into_stack());
            disturbed
        });
        assert!(disturbed.join().expect("no panic escapes"));
    }

    /// A small stack has room for a panic, its message and the symbolised backtrace.
    #[test]
    fn a_small_stack_has_room_to_print_a_panic_with_its_backtrace() {
        let name = concat!(
            module_path!(),
            "::a_small_stack_has_room_to_print_a_panic_with_its_backtrace"
        );
        let output = in_child_process_with(name, &[("RUST_BACKTRACE", "full")], || {
            run_on(StackClass::Small, |_| {
                let caught = catch_unwind(|| panic!("printed at length"));
                assert!(caught.is_err());
            });
        });
        if let Some(output) = output {
            let printed = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{printed}");
            assert!(printed.contains("printed at length"), "{printed}");
            assert!(printed.contains("a_small_stack_has_room"), "{printed}");
        }
    }
}

mod backtraces {
    use super::*;

    #[inline(never)]
    fn bottom_of_the_new_stack() -> String {
        black_box(Backtrace::force_capture().to_string())
    }

    #[inline(never)]
    fn resumer_on_the_old_stack(coroutine: &mut Coroutine<(), (), String, Stack>) -> String {
        let resumed = black_box(coroutine).resume(());
        black_box(
            resumed
                .as_return()
                .expect("a body that does not suspend returns"),
        )
    }

    #[test]
    #[cfg_attr(
        feature = "sanitizer",
        ignore = "built for AddressSanitizer, the switch leaves no way back for the unwinder"
    )]
    fn a_backtrace_shows_the_frames_of_its_stack_and_then_the_resumer() {
        let cache = new_cache();
        let mut coroutine =
            new_coroutine(&cache, StackClass::Default, |_| bottom_of_the_new_stack());
        let trace = resumer_on_the_old_stack(&mut coroutine);
        let inside = trace.find("bottom_of_the_new_stack").expect(&trace);
        let outside = trace.find("resumer_on_the_old_stack").expect(&trace);
        assert!(inside < outside, "{trace}");
        cache.give(coroutine.into_stack());
    }
}

mod thread_locals {
    use super::*;

    thread_local! {
        static HERE: Cell<usize> = const { Cell::new(0) };
    }

    #[inline(never)]
    fn address_here() -> usize {
        HERE.with(|here| std::ptr::from_ref(here).addr())
    }

    /// A stack that stays with its thread may hold the address of a thread-local across a switch.
    #[test]
    fn a_thread_local_has_the_same_address_before_and_after_a_switch() {
        let resumer = address_here();
        run_on(StackClass::Small, move |yielder| {
            HERE.with(|here| {
                here.set(1);
                yielder.suspend(());
                here.set(here.get() + 1);
                assert_eq!(std::ptr::from_ref(here).addr(), address_here());
            });
            assert_eq!(address_here(), resumer);
        });
        assert_eq!(HERE.get(), 2);
    }
}

// Under AddressSanitizer the C library's allocator, whose figures are read here, is not the one in use.
#[cfg(all(target_os = "linux", target_env = "gnu", not(feature = "sanitizer")))]
mod allocation {
    use super::super::testing::assert_passes_in_child_process;
    use super::*;

    /// Bytes that the C library's allocator has handed out. What a thread freed lately counts too, as the
    /// library keeps it for the thread.
    fn bytes_handed_out() -> usize {
        // SAFETY: only reads the allocator's figures.
        unsafe { libc::mallinfo2() }.uordblks
    }

    /// Takes all small blocks that the library keeps for this thread, for good: from now on even a block
    /// that is freed at once makes the figure grow.
    fn use_up_what_was_freed() {
        for size in (8..=1032).step_by(8) {
            for _ in 0..64 {
                // Not zeroed: zeroed blocks may bypass what is kept for the thread.
                black_box(Box::leak(vec![1u8; size].into_boxed_slice()));
            }
        }
    }

    /// Whether the body allocates, even if it frees again.
    ///
    /// Other threads of the process (the test runner's) may allocate meanwhile and make the figure grow too,
    /// so it has to grow every time.
    fn allocates(mut body: impl FnMut()) -> bool {
        (0..10).all(|_| {
            use_up_what_was_freed();
            let before = bytes_handed_out();
            body();
            bytes_handed_out() != before
        })
    }

    #[test]
    fn a_million_switches_allocate_nothing() {
        // In a process of its own, where no other test allocates meanwhile.
        let name = concat!(module_path!(), "::a_million_switches_allocate_nothing");
        assert_passes_in_child_process(name, || {
            let cache = new_cache();
            let mut coroutine = new_coroutine(&cache, StackClass::Default, |yielder| {
                loop {
                    yielder.suspend(());
                }
            });
            coroutine.resume(());
            assert!(
                allocates(|| drop(black_box(Box::new([0u8; 40])))),
                "the measurement would show a single block"
            );
            assert!(!allocates(|| {
                for _ in 0..500_000 {
                    // There and back: two switches.
                    let _: CoroutineResult<(), std::convert::Infallible> = coroutine.resume(());
                }
            }));
            // SAFETY: nothing on the stack needs dropping.
            unsafe { coroutine.force_reset() };
            cache.give(coroutine.into_stack());
        });
    }

    #[test]
    fn taking_and_giving_a_hot_stack_allocates_nothing() {
        let name = concat!(
            module_path!(),
            "::taking_and_giving_a_hot_stack_allocates_nothing"
        );
        assert_passes_in_child_process(name, || {
            let cache = new_cache();
            cache.give(cache.take(StackClass::Small).expect("a stack"));
            assert!(!allocates(|| {
                for _ in 0..10_000 {
                    cache.give(cache.take(StackClass::Small).expect("the same stack"));
                }
            }));
        });
    }
}
