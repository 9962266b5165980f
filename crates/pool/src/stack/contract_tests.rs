//! The contract of the context switch, as `README.md` in this folder states it, put to the test.
//!
//! They run against the switch that the pool is built with: our own, or corosensei's. A new version of it, or a
//! compiler that treats its assembly otherwise, has to pass them before it is used.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use corosensei::stack::Stack as _;

use super::class::SMALL_STACK_SIZE;
use super::switch::{Hub, PASSES_DIRECTLY, Routine, StackInUse, Way, stack_pointer};
use super::testing::in_child_process_with;
use super::{DEFAULT_STACK_SIZE, StackCache, StackClass, StackSupply};

/// Runs a body on a stack of the class, resuming it until it returns, and gives the stack back.
fn run_on<R: 'static>(class: StackClass, body: impl FnOnce(&Way) -> R + 'static) -> R {
    let cache = new_cache();
    let mut routine = new_routine(&cache, class, body);
    loop {
        if let Some(value) = routine.resume() {
            cache.give(routine.into_stack());
            return value;
        }
    }
}

fn new_cache() -> StackCache {
    StackCache::new(&StackSupply::new(DEFAULT_STACK_SIZE).expect("a supply"))
}

fn new_routine<R: 'static>(
    cache: &StackCache,
    class: StackClass,
    body: impl FnOnce(&Way) -> R + 'static,
) -> Routine<R> {
    Routine::new(cache.take(class).expect("a stack"), body)
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
        let mut routine = new_routine(&cache, StackClass::Small, |way| {
            (0..100)
                .map(|round| hold_values_across(round, || way.suspend()))
                .collect()
        });
        let mut results: Option<Vec<(u64, f64)>> = None;
        for round in 1000..=1100 {
            let outside = hold_values_across(round, || results = routine.resume());
            assert_eq!(outside, undisturbed(round));
        }
        let results = results.expect("a hundred switches and a return");
        assert_eq!(results, (0..100).map(undisturbed).collect::<Vec<_>>());
        cache.give(routine.into_stack());
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

        extern "C" fn suspend(way: *const ()) {
            // SAFETY: called below with the way of the running routine.
            unsafe { (*way.cast::<Way>()).suspend() };
        }

        type Inner = Routine<u64>;

        extern "C" fn resume(routine: *const ()) {
            // SAFETY: called below with a pointer to a routine that nothing else refers to meanwhile.
            let routine = unsafe { &mut *routine.cast_mut().cast::<Inner>() };
            assert_eq!(routine.resume(), None);
        }

        #[test]
        fn callee_saved_registers_survive_suspending_and_resuming() {
            let cache = new_cache();
            let mut routine: Inner = new_routine(&cache, StackClass::Small, |way| {
                let mut changed = 0;
                for _ in 0..10 {
                    changed |= changed_bits(suspend, std::ptr::from_ref(way).cast());
                    overwrite_registers();
                }
                changed
            });
            for _ in 0..10 {
                let argument = std::ptr::from_mut(&mut routine).cast_const().cast();
                assert_eq!(changed_bits(resume, argument), 0, "across resume");
                overwrite_registers();
            }
            assert_eq!(routine.resume(), Some(0), "across suspend");
            cache.give(routine.into_stack());
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
            let mut routine = new_routine(&cache, StackClass::Small, move |way| {
                // SAFETY: the resumer computes nothing before it puts the default back.
                unsafe { write_float_control(toward_zero) };
                way.suspend();
                read_float_control()
            });
            let suspended = routine.resume();
            let leaked = read_float_control();
            // SAFETY: back to what it was.
            unsafe { write_float_control(before) };
            assert_eq!(suspended, None);
            assert_eq!(leaked, toward_zero, "the resumer sees what the routine set");
            assert_eq!(
                routine.resume(),
                Some(before),
                "and the routine sees what the resumer set"
            );
            cache.give(routine.into_stack());
        }
    }
}

mod frames {
    use super::*;

    #[repr(align(64))]
    #[derive(Clone, Copy)]
    struct Aligned([u8; 64]);

    #[test]
    fn a_stack_is_aligned_at_entry_and_after_each_switch() {
        for class in StackClass::ALL {
            // A capture of odd size, then one that is aligned more strictly than the stack.
            let odd = [7u8; 3];
            let strict = Aligned([9; 64]);
            run_on(class, move |way| {
                for _ in 0..3 {
                    assert_eq!(stack_pointer() % 16, 0);
                    let local = black_box(strict);
                    assert_eq!(std::ptr::from_ref(&local).addr() % 64, 0);
                    assert_eq!((local.0[63], black_box(odd)[2]), (9, 7));
                    way.suspend();
                }
            });
        }
    }

    #[test]
    fn frames_lie_between_limit_and_base() {
        let cache = new_cache();
        let stack = cache.take(StackClass::Small).expect("a stack");
        let (limit, base) = (stack.limit().get(), stack.base().get());
        let mut routine = Routine::new(stack, |_| stack_pointer());
        let inside = routine.resume();
        let inside = inside.expect("a body that does not suspend returns");
        assert!(limit < inside && inside < base);
        assert!(
            base - inside < 4096,
            "the switch itself takes little: {}",
            base - inside
        );
        cache.give(routine.into_stack());
    }

    /// Goes down until `bytes` of stack are used, then back up through frames that must be intact.
    #[inline(never)]
    fn descend(top: usize, bytes: usize, way: &Way) -> usize {
        let frame = black_box([top - stack_pointer(); 32]);
        if top - stack_pointer() < bytes {
            let below = descend(top, bytes, way);
            return below + usize::from(frame.iter().all(|&value| value == frame[0]));
        }
        way.suspend();
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
            let intact = run_on(class, move |way| descend(stack_pointer(), bytes, way));
            assert!(intact > bytes / 4096, "{intact} frames");
        }
    }
}

#[cfg(jobtree_direct_switch)]
mod passing {
    use super::*;
    use std::cell::RefCell;

    /// Stacks that pass the thread around.
    struct Ring {
        hub: Hub,
        stacks: [StackInUse; 3],
        rounds: usize,
        /// By whom, in which round.
        turns: RefCell<Vec<(usize, usize)>>,
        ended: Cell<usize>,
    }

    unsafe extern "C" fn go_round(ring: *const (), position: *const ()) {
        // SAFETY: the test's own, which is there until all have ended.
        let ring = unsafe { &*ring.cast::<Ring>() };
        let position = position.addr();
        let next = &ring.stacks[(position + 1) % ring.stacks.len()];
        for round in 0..ring.rounds {
            // A value in a frame of its own, on each stack another.
            let kept = black_box([position + 10 * round; 32]);
            ring.turns.borrow_mut().push((position, round));
            // SAFETY: on this stack; the next one has not ended: it has as many rounds, and comes later.
            unsafe { ring.stacks[position].pass(next) };
            assert_eq!(black_box(kept)[31], position + 10 * round);
        }
        ring.ended.update(|ended| ended + 1);
    }

    #[test]
    fn stacks_pass_the_thread_in_a_ring_and_the_end_of_each_comes_back_to_the_hub() {
        let cache = new_cache();
        let ring = Ring {
            hub: Hub::new(),
            stacks: std::array::from_fn(|_| StackInUse::none()),
            rounds: 1000,
            turns: RefCell::default(),
            ended: Cell::new(0),
        };
        for (position, in_use) in ring.stacks.iter().enumerate() {
            let stack = cache.take(StackClass::Small).expect("a stack");
            let address = std::ptr::from_ref(&ring).cast();
            let arguments = [address, std::ptr::without_provenance(position)];
            // SAFETY: none is in use, and the ring is there until all have ended.
            unsafe { in_use.prepare(stack, go_round, arguments, &ring.hub) };
        }
        for (position, in_use) in ring.stacks.iter().enumerate() {
            // SAFETY: on the test's own stack; prepared, or suspended at its last turn.
            unsafe { in_use.resume(&ring.hub) };
            assert_eq!(ring.ended.get(), position + 1, "one end at a time");
        }
        let turns = ring.turns.take();
        let expected = (0..ring.rounds).flat_map(|round| (0..3).map(move |who| (who, round)));
        assert!(turns.into_iter().eq(expected));
        for in_use in &ring.stacks {
            // SAFETY: all have ended.
            cache.give(unsafe { in_use.take_stack() }.expect("a stack"));
        }
    }
}

mod panics {
    use super::*;

    #[test]
    fn a_panic_caught_on_a_stack_can_be_carried_over_a_switch_and_go_on() {
        let cache = new_cache();
        let mut routine = new_routine(&cache, StackClass::Default, |way| {
            let caught = catch_unwind(|| panic!("spilt milk")).expect_err("a panic");
            assert!(!thread::panicking());
            way.suspend();
            resume_unwind(caught);
        });
        assert_eq!(routine.resume(), None::<()>);
        assert!(!thread::panicking());
        let arrived = catch_unwind(AssertUnwindSafe(|| routine.resume()));
        assert_eq!(
            message(&*arrived.expect_err("the panic goes on in the resumer")),
            "spilt milk"
        );
        cache.give(routine.into_stack());
    }

    unsafe extern "C" fn panics(_: *const (), _: *const ()) {
        panic!("too hot");
    }

    #[test]
    fn a_panic_that_reaches_the_bottom_ends_the_process() {
        let name = concat!(
            module_path!(),
            "::a_panic_that_reaches_the_bottom_ends_the_process"
        );
        let output = in_child_process_with(name, &[], || {
            let (hub, in_use) = (Hub::new(), StackInUse::none());
            let cache = new_cache();
            let stack = cache.take(StackClass::Small).expect("a stack");
            // SAFETY: none is in use, and nothing else runs on it. That it unwinds is what is tried.
            unsafe {
                in_use.prepare(stack, panics, [std::ptr::null(); 2], &hub);
                in_use.resume(&hub);
            }
        });
        if let Some(output) = output {
            let printed = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{printed}");
            assert!(printed.contains("too hot"), "{printed}");
        }
    }

    /// Shows why the pool catches, waits and then resumes a panic: that a thread is panicking is the thread's state, so
    /// suspending halfway through an unwinding would make all other code on it look panicking.
    #[test]
    fn a_stack_suspended_while_panicking_would_disturb_its_thread() {
        struct SuspendsWhenDropped<'a>(&'a Way);
        impl Drop for SuspendsWhenDropped<'_> {
            fn drop(&mut self) {
                self.0.suspend();
            }
        }
        // On a thread of its own, as it is in a bad state meanwhile.
        let disturbed = thread::spawn(|| {
            let cache = new_cache();
            let mut routine = new_routine(&cache, StackClass::Default, |way| {
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    let _suspends = SuspendsWhenDropped(way);
                    panic!("half way");
                }));
            });
            routine.resume();
            let disturbed = thread::panicking();
            routine.resume();
            assert!(!thread::panicking(), "the panic was caught in the end");
            cache.give(routine.into_stack());
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
    fn resumer_on_the_old_stack(routine: &mut Routine<String>) -> String {
        let resumed = black_box(routine).resume();
        black_box(resumed.expect("a body that does not suspend returns"))
    }

    #[test]
    #[cfg_attr(
        all(feature = "sanitizer", not(jobtree_direct_switch)),
        ignore = "built for AddressSanitizer, corosensei's switch leaves no way back for the unwinder"
    )]
    fn a_backtrace_shows_the_frames_of_its_stack() {
        let cache = new_cache();
        let mut routine = new_routine(&cache, StackClass::Default, |_| bottom_of_the_new_stack());
        let trace = resumer_on_the_old_stack(&mut routine);
        let inside = trace.find("bottom_of_the_new_stack").expect(&trace);
        let outside = trace.find("resumer_on_the_old_stack");
        // Who has resumed a stack is of no interest, if it passes the thread on by itself.
        assert_eq!(outside.is_none(), PASSES_DIRECTLY, "{trace}");
        assert!(outside.is_none_or(|outside| inside < outside), "{trace}");
        cache.give(routine.into_stack());
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
        run_on(StackClass::Small, move |way| {
            HERE.with(|here| {
                here.set(1);
                way.suspend();
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

    /// Returns `true` if the body allocates, even if it frees again.
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

    thread_local! {
        static ENOUGH: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn a_million_switches_allocate_nothing() {
        // In a process of its own, where no other test allocates meanwhile.
        let name = concat!(module_path!(), "::a_million_switches_allocate_nothing");
        assert_passes_in_child_process(name, || {
            let cache = new_cache();
            let mut routine = new_routine(&cache, StackClass::Default, |way| {
                while !ENOUGH.get() {
                    way.suspend();
                }
            });
            routine.resume();
            assert!(
                allocates(|| drop(black_box(Box::new([0u8; 40])))),
                "the measurement would show a single block"
            );
            assert!(!allocates(|| {
                for _ in 0..500_000 {
                    // There and back: two switches.
                    routine.resume();
                }
            }));
            ENOUGH.set(true);
            routine.resume().expect("it has ended");
            cache.give(routine.into_stack());
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
