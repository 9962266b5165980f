//! A worker's own mail: strands of its that may go on, and tasks that must run on this very worker.
//!
//! # Protocol
//!
//! Senders push onto a linked stack with a compare-and-swap; the owner takes the whole stack with one
//! swap and reverses it. Nobody pops single nodes, so there is no ABA and no node is read after it
//! has been taken. A sender then notifies the owner (`Sleep::notify`); the owner looks into its inbox
//! after it has marked itself sleepy, so mail is either seen then or the notice is (see
//! `sleep/README.md`).

use std::ptr;

use crate::deque::Entry;
use crate::strand::Strand;
use crate::sync::step::{Step, order_at};
use crate::sync::{AtomicPtr, Ordering};

/// A letter. Embedded in a strand, or boxed around a task.
pub(crate) struct Mail {
    next: AtomicPtr<Mail>,
    content: MailContent,
}

/// What a letter says.
#[derive(Clone, Copy)]
pub(crate) enum MailContent {
    /// What this parked strand waited for has happened. The letter lies in the strand itself.
    Resume(*const Strand),
    /// Run this on this worker. The letter is a box of its own.
    Run(Entry),
}

impl Mail {
    pub(crate) fn new(content: MailContent) -> Mail {
        Mail {
            next: AtomicPtr::new(ptr::null_mut()),
            content,
        }
    }
}

/// See the module's head.
pub(crate) struct Inbox {
    newest: AtomicPtr<Mail>,
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox {
            newest: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.newest.load(Ordering::Relaxed).is_null()
    }

    /// Puts `mail` in. The caller then notifies the owner.
    ///
    /// # Safety
    /// `mail` is in no inbox, and stays alive until the owner has taken it.
    pub(crate) unsafe fn push(&self, mail: *const Mail) {
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: alive by contract, and ours alone until the exchange succeeds.
            unsafe { (*mail).next.store(newest, Ordering::Relaxed) };
            match self.newest.compare_exchange_weak(
                newest,
                mail.cast_mut(),
                order_at(Step::InboxRelease, Ordering::Release),
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(seen) => newest = seen,
            }
        }
    }

    /// Takes all mail, oldest first.
    ///
    /// # Safety
    /// Only the owner. Boxed letters are freed here, so each must have been made by
    /// `Box::into_raw`.
    pub(crate) unsafe fn take_all(&self, mut deliver: impl FnMut(MailContent)) {
        let mut mail = self.newest.swap(ptr::null_mut(), Ordering::Acquire);
        let mut oldest: *mut Mail = ptr::null_mut();
        while !mail.is_null() {
            // SAFETY: taken out by the swap, so ours; its sender keeps it alive until now.
            let next = unsafe { (*mail).next.load(Ordering::Relaxed) };
            // SAFETY: as above.
            unsafe { (*mail).next.store(oldest, Ordering::Relaxed) };
            oldest = mail;
            mail = next;
        }
        while !oldest.is_null() {
            let mail = oldest;
            // SAFETY: on the reversed list, so still ours.
            let (next, content) =
                unsafe { ((*mail).next.load(Ordering::Relaxed), (*mail).content) };
            if let MailContent::Run(_) = content {
                // SAFETY: letters with tasks are boxed, by contract.
                drop(unsafe { Box::from_raw(mail) });
            }
            oldest = next;
            deliver(content);
        }
    }
}
