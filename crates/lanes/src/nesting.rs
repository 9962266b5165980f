//! How deep pumps may nest: a job or a callback that a pump runs may pump again, on top of the same stack.
//!
//! A lane of a thread cannot be pumped inside of itself, but the lane of the workers can, since any thread may pump it, and so
//! can the lanes of different managers. Without a bound, a job that pumps until nothing is left would run the next such job on
//! top of itself, until the stack overflows. Jobs do not say what they run on top of: the parent of a job is another one. So the
//! stack is asked, by its name. A stack stays with its thread, so the notes do, too.

use std::cell::RefCell;

use jobtree_runtime::binding::name_of_stack;

use crate::pump::PumpError;

/// How many pumps may run on top of each other. Picked by feel: a program that nests on purpose needs two or three, and the
/// frames of this many fit into the smallest stack.
const DEEPEST: usize = 16;

thread_local! {
    /// The stacks of this thread on which a pump is under way, once for each pump.
    static PUMPS: RefCell<Vec<*const ()>> = const { RefCell::new(Vec::new()) };
}

/// A pump on the calling stack, until it is dropped.
pub(crate) struct NestedPump {
    stack: *const (),
}

impl NestedPump {
    pub(crate) fn enter() -> Result<NestedPump, PumpError> {
        let stack = name_of_stack();
        // A thread whose locals are gone ends with what it does now.
        let is_too_deep = PUMPS.try_with(|pumps| {
            let mut pumps = pumps.borrow_mut();
            let is_too_deep = pumps.iter().filter(|other| **other == stack).count() >= DEEPEST;
            if !is_too_deep {
                pumps.push(stack);
            }
            is_too_deep
        });
        match is_too_deep {
            Ok(true) => Err(PumpError::TooDeep { pumps: DEEPEST }),
            _ => Ok(NestedPump { stack }),
        }
    }
}

impl Drop for NestedPump {
    fn drop(&mut self) {
        let _ = PUMPS.try_with(|pumps| {
            let mut pumps = pumps.borrow_mut();
            if let Some(own) = pumps.iter().rposition(|stack| *stack == self.stack) {
                pumps.swap_remove(own);
            }
        });
    }
}
