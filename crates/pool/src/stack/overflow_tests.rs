//! Overflows for real, each in a process of its own that must die in the way described.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use super::super::cache::StackCache;
use super::super::class::DEFAULT_STACK_SIZE;
use super::super::guard::GuardMethod;
use super::super::supply::StackSupply;
use super::super::switch::Routine;
use super::super::testing::in_child_process;
use super::*;

#[inline(never)]
fn recurse(depth: usize) -> usize {
    let frame = black_box([depth; 64]);
    if black_box(depth) == usize::MAX {
        return 0;
    }
    recurse(depth + 1) + black_box(frame)[depth % 64]
}

/// Runs out of a stack of ours.
fn overflow_on(class: StackClass, method: GuardMethod) {
    let supply = StackSupply::with_guard_method(DEFAULT_STACK_SIZE, method).expect("a supply");
    let stack = StackCache::new(&supply).take(class).expect("a stack");
    Routine::new(stack, |_| recurse(0)).resume();
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn assert_died(output: &Output, signal: c_int, last_words: &str) {
    let stderr = stderr(output);
    assert_eq!(output.status.signal(), Some(signal), "{stderr}");
    assert!(stderr.contains(last_words), "{stderr}");
}

#[test]
fn an_overflow_names_task_thread_and_size_then_aborts() {
    let name = concat!(
        module_path!(),
        "::an_overflow_names_task_thread_and_size_then_aborts"
    );
    let output = in_child_process(name, || {
        install_handler();
        install_handler();
        let _guard = ThreadGuard::new("baker-3");
        set_task_name(Some(|| "knead dough"));
        overflow_on(StackClass::Default, GuardMethod::best());
    });
    if let Some(output) = output {
        assert_died(
            &output,
            libc::SIGABRT,
            "jobtree: stack overflow in task 'knead dough' on worker thread 'baker-3': \
             its 2 MiB stack is used up; raise it with Builder::stack_size",
        );
    }
}

#[test]
fn a_small_stack_advises_the_default_class() {
    let name = concat!(module_path!(), "::a_small_stack_advises_the_default_class");
    let output = in_child_process(name, || {
        install_handler();
        let _guard = ThreadGuard::new("baker-0");
        overflow_on(StackClass::Small, GuardMethod::best());
    });
    if let Some(output) = output {
        assert_died(
            &output,
            libc::SIGABRT,
            "jobtree: stack overflow in a task without a name on worker thread 'baker-0': \
             its 64 KiB stack is used up; run the task on a stack of the default class",
        );
    }
}

#[test]
fn an_overflow_is_reported_with_guards_by_protection_too() {
    let name = concat!(
        module_path!(),
        "::an_overflow_is_reported_with_guards_by_protection_too"
    );
    let output = in_child_process(name, || {
        install_handler();
        let _guard = ThreadGuard::new("baker-1");
        set_task_name(Some(|| "proof"));
        overflow_on(StackClass::Default, GuardMethod::Protection);
    });
    if let Some(output) = output {
        assert_died(
            &output,
            libc::SIGABRT,
            "jobtree: stack overflow in task 'proof'",
        );
    }
}

/// Runs a function on a thread that the standard library knows nothing of.
fn on_foreign_thread(body: fn()) {
    extern "C" fn start(body: *mut c_void) -> *mut c_void {
        // SAFETY: the pointer is the function passed below.
        let body: fn() = unsafe { mem::transmute(body) };
        body();
        ptr::null_mut()
    }
    // SAFETY: the thread is joined before this function returns; what it is passed is a plain function.
    unsafe {
        let mut thread = mem::zeroed();
        let argument = body as *const () as *mut c_void;
        assert_eq!(
            libc::pthread_create(&mut thread, ptr::null(), start, argument),
            0
        );
        assert_eq!(libc::pthread_join(thread, ptr::null_mut()), 0);
    }
}

#[test]
fn a_foreign_thread_gets_a_signal_stack_of_its_own() {
    let name = concat!(
        module_path!(),
        "::a_foreign_thread_gets_a_signal_stack_of_its_own"
    );
    let output = in_child_process(name, || {
        install_handler();
        on_foreign_thread(|| {
            let _guard = ThreadGuard::new("stranger");
            set_task_name(Some(|| "visit"));
            overflow_on(StackClass::Default, GuardMethod::best());
        });
    });
    if let Some(output) = output {
        assert_died(
            &output,
            libc::SIGABRT,
            "in task 'visit' on worker thread 'stranger'",
        );
    }
}

#[test]
fn a_threads_own_stack_is_still_reported_by_the_standard_library() {
    let name = concat!(
        module_path!(),
        "::a_threads_own_stack_is_still_reported_by_the_standard_library"
    );
    let output = in_child_process(name, || {
        install_handler();
        let thread = std::thread::Builder::new().name("plain".into());
        let thread = thread.spawn(|| recurse(0)).expect("a thread");
        let _ = thread.join();
    });
    if let Some(output) = output {
        assert_died(&output, libc::SIGABRT, "has overflowed its stack");
        assert!(stderr(&output).contains("plain"), "{}", stderr(&output));
        assert!(
            !stderr(&output).contains("jobtree: stack overflow"),
            "{}",
            stderr(&output)
        );
    }
}

/// An address that is never mapped and is no guard of ours.
fn touch_the_lowest_page() {
    // SAFETY: deliberately wrong; the process dies of it.
    unsafe { black_box(16 as *mut u8).write_volatile(1) };
}

#[test]
fn another_fault_takes_the_default_action() {
    let name = concat!(module_path!(), "::another_fault_takes_the_default_action");
    let output = in_child_process(name, || {
        install_handler();
        let _guard = ThreadGuard::new("clumsy");
        touch_the_lowest_page();
    });
    if let Some(output) = output {
        assert_died(&output, libc::SIGSEGV, "");
        assert!(
            !stderr(&output).contains("jobtree: stack overflow"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn another_fault_reaches_the_handler_installed_before_ours() {
    extern "C" fn earlier(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
        // SAFETY: the kernel's pointer, passed on; `_exit` is allowed in a handler.
        unsafe {
            libc::_exit(if (*info).si_addr() as usize == 16 {
                42
            } else {
                1
            })
        };
    }
    let name = concat!(
        module_path!(),
        "::another_fault_reaches_the_handler_installed_before_ours"
    );
    let output = in_child_process(name, || {
        // SAFETY: zeroes are a valid action; the handler has the type that SA_SIGINFO demands.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = earlier as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            assert_eq!(libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut()), 0);
        }
        install_handler();
        touch_the_lowest_page();
    });
    if let Some(output) = output {
        assert_eq!(output.status.code(), Some(42), "{}", stderr(&output));
    }
}

#[test]
fn a_signal_that_somebody_sent_takes_its_default_action() {
    let name = concat!(
        module_path!(),
        "::a_signal_that_somebody_sent_takes_its_default_action"
    );
    let output = in_child_process(name, || {
        // SAFETY: puts the default action in the standard library's place, then sends a signal.
        unsafe {
            let default_action: libc::sigaction = mem::zeroed();
            assert_eq!(
                libc::sigaction(libc::SIGSEGV, &default_action, ptr::null_mut()),
                0
            );
            install_handler();
            libc::raise(libc::SIGSEGV);
        }
    });
    if let Some(output) = output {
        assert_died(&output, libc::SIGSEGV, "");
    }
}

#[test]
fn a_thread_guard_leaves_the_thread_as_it_found_it() {
    fn state() -> (usize, usize, bool, Option<ptr::NonNull<str>>) {
        let stack = current_signal_stack().expect("an answer");
        let disabled = stack.ss_flags & libc::SS_DISABLE != 0;
        (
            stack.ss_sp as usize,
            stack.ss_size,
            disabled,
            THREAD_NAME.get(),
        )
    }
    fn check() {
        let before = state();
        {
            let _outer = ThreadGuard::new("outer");
            let with_outer = state();
            assert!(!with_outer.2, "there is a signal stack");
            assert!(with_outer.1 >= kernel_frame_size() + HANDLER_NEEDS);
            {
                let _inner = ThreadGuard::new("inner");
                assert_eq!(state().0, with_outer.0, "the same signal stack serves both");
                assert_ne!(state().3, with_outer.3);
            }
            assert_eq!(state(), with_outer);
        }
        let after = state();
        assert_eq!((after.2, after.3), (before.2, before.3));
        assert!(
            before.2 || after == before,
            "the signal stack from before is back"
        );
    }
    std::thread::spawn(check)
        .join()
        .expect("on a thread of the standard library");
    on_foreign_thread(check);
}

#[test]
fn task_names_nest() {
    let set = |name| set_task_name(name).map(|before| before());
    assert_eq!(set(Some(|| "outer")), None);
    assert_eq!(set(Some(|| "inner")), Some("outer"));
    assert_eq!(set(Some(|| "outer")), Some("inner"));
    assert_eq!(set(None), Some("outer"));
}

#[test]
fn long_names_are_cut_at_a_character_and_the_advice_stays() {
    let stack = OverflownStack {
        usable: 20 * 1024,
        class: StackClass::Default,
    };
    let long = "ä".repeat(1000);
    let report = Report::new(stack, Some(&long), Some(&long));
    let text = std::str::from_utf8(report.as_bytes()).expect("cut at a character");
    assert!(
        text.contains(&format!("task '{}...'", "ä".repeat(80))),
        "{text}"
    );
    assert!(text.contains("its 20 KiB stack is used up"), "{text}");
    assert!(
        text.ends_with("recurse less deeply in the task\n"),
        "{text}"
    );
}
