//! A worker's own mail: fibers of its that may go on, and tasks that must run on this very worker.
//!
//! # Protocol
//!
//! Senders push onto a linked stack with a compare-and-swap; the owner takes the whole stack with one
//! swap and reverses it. No thread pops single nodes, so there is no ABA and nothing depends on a node that
//! has been taken. A sender then notifies the owner (`Sleep::notify`); the owner looks into its inbox
//! after it has marked itself sleepy, so mail is either seen then or the notice is (see
//! `sleep/README.md`).
//!
//! Each letter lies on a line that its sender wrote last, and says where the next one is: to read a pile of them is one
//! cache miss after another. So a letter also says where one further down lies ([`Trail`]), for the processor alone. To
//! find that out its sender looks at letters that may have been taken meanwhile: at fibers, which are there as long as the
//! pool, and never at a task's.

use std::ptr;
use std::sync::atomic::AtomicI32;

use crate::deque::Entry;
use crate::raw::{PREFETCHES, prefetch};
use crate::strand::Strand;
use crate::sync::step::{Step, order_at};
use crate::sync::{AtomicPtr, Ordering};

/// A letter, as far as an inbox is concerned: the link to the next one. It comes first in what it stands for, a fiber or
/// a [`TaskLetter`], and the lowest bit of its address says which.
pub(crate) struct Mail {
    next: AtomicPtr<Mail>,
}

/// A letter with a task, in a box of its own.
#[repr(C)]
struct TaskLetter {
    mail: Mail,
    entry: Entry,
}

/// Letters are aligned to far more than two bytes, so the lowest bit of their address is free.
const TASK_BIT: usize = 1;

/// The number of messages that are walked before a prefetch hint is recorded: as many misses are under way at once, and one more.
/// Measured; with more steps sending costs what reading gains.
const STEPS_OF_TRAIL: u32 = 2;

/// A prefetch hint: the distance to a message some steps further down in the inbox, in cache lines. It may lead anywhere.
///
/// The atomic is not the model's: no step of the protocol looks at it.
pub(crate) struct Trail(AtomicI32);

impl Trail {
    pub(crate) fn none() -> Trail {
        Trail(AtomicI32::new(0))
    }

    /// To be called for the letter of `strand` when it is about to lie on top of `newest`.
    ///
    /// # Safety
    /// Fibers whose letters were in the inbox since `newest` was read from it are alive.
    #[inline]
    unsafe fn note(strand: &Strand, newest: *const Mail) {
        let mut further = newest;
        for _ in 0..STEPS_OF_TRAIL {
            // A task's letter may be gone by now.
            if further.is_null() || further.addr() & TASK_BIT != 0 {
                break;
            }
            // SAFETY: not a task's, so a fiber's, and alive by contract. Its owner may have taken it meanwhile: then the link
            // is another one, but one of a fiber or a task again.
            further = unsafe { Mail::link(further) }.load(Ordering::Relaxed);
        }
        let distance = further.addr().wrapping_sub(ptr::from_ref(strand).addr()) as isize;
        strand
            .mail_trail
            .0
            .store((distance / LINE) as i32, Ordering::Relaxed);
    }

    /// Has the processor fetch what the trail of `strand` leads to.
    #[inline]
    fn follow(strand: &Strand) {
        let distance = strand.mail_trail.0.load(Ordering::Relaxed) as isize * LINE;
        prefetch(ptr::from_ref(strand).cast::<u8>().wrapping_offset(distance));
    }
}

/// Fibers begin at multiples of this.
const LINE: isize = 64;

/// The content of a message.
#[derive(Clone, Copy)]
pub(crate) enum MailContent {
    /// The event that this parked fiber waited for has happened. The message lies in the fiber itself.
    Resume(*const Strand),
    /// Run this on this worker.
    Run(Entry),
}

impl Mail {
    pub(crate) fn new() -> Mail {
        Mail {
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The letter that says that `strand` may go on.
    pub(crate) fn of_strand(strand: &Strand) -> *const Mail {
        const { assert!(std::mem::offset_of!(Strand, mail) == 0) };
        ptr::from_ref(strand).cast()
    }

    /// A new letter that says that `entry` is to be run. It is freed by the thread that takes it out of an inbox.
    pub(crate) fn with_task(entry: Entry) -> *const Mail {
        let letter = Box::new(TaskLetter {
            mail: Mail::new(),
            entry,
        });
        let letter = Box::into_raw(letter).cast_const().cast::<Mail>();
        letter.map_addr(|address| address | TASK_BIT)
    }

    /// The fiber whose letter it is, if it is a fiber's.
    ///
    /// # Safety
    /// If so, the fiber is alive, and stays so as long as the reference is used.
    #[inline]
    unsafe fn strand<'a>(this: *const Mail) -> Option<&'a Strand> {
        // SAFETY: an unmarked letter is the beginning of a fiber; alive by contract.
        (this.addr() & TASK_BIT == 0).then(|| unsafe { &*this.cast() })
    }

    /// The link in a letter's memory.
    ///
    /// # Safety
    /// The letter is alive, and stays so as long as the reference is used.
    #[inline]
    unsafe fn link<'a>(this: *const Mail) -> &'a AtomicPtr<Mail> {
        // SAFETY: without its mark the address is that of what the letter comes first in; alive by contract.
        unsafe { &(*this.map_addr(|address| address & !TASK_BIT)).next }
    }

    /// Reads a letter for the last time.
    ///
    /// # Safety
    /// It was made by one of the two functions above, and is the caller's.
    #[inline]
    unsafe fn open(this: *const Mail) -> MailContent {
        if this.addr() & TASK_BIT == 0 {
            return MailContent::Resume(this.cast());
        }
        let letter = this.map_addr(|address| address & !TASK_BIT).cast_mut();
        // SAFETY: a marked address is a box's, made by `with_task`, and ours by contract.
        let letter = unsafe { Box::from_raw(letter.cast::<TaskLetter>()) };
        MailContent::Run(letter.entry)
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
    /// `mail` is a letter made by [`Mail::of_strand`] or [`Mail::with_task`]. It is in no inbox, and stays alive until the
    /// owner has taken it.
    pub(crate) unsafe fn push(&self, mail: *const Mail) {
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: alive by contract, and ours alone until the exchange succeeds.
            unsafe { Mail::link(mail) }.store(newest, Ordering::Relaxed);
            if PREFETCHES {
                // SAFETY: alive by contract; and so are other fibers, as long as their pool, which has this inbox.
                unsafe { Mail::strand(mail).inspect(|strand| Trail::note(strand, newest)) };
            }
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
    /// Only the owner.
    pub(crate) unsafe fn take_all(&self, mut deliver: impl FnMut(MailContent)) {
        let mut mail = self.newest.swap(ptr::null_mut(), Ordering::Acquire);
        let mut oldest: *mut Mail = ptr::null_mut();
        while !mail.is_null() {
            // SAFETY: taken out by the swap, so ours; its sender keeps it alive until now.
            let link = unsafe { Mail::link(mail) };
            if PREFETCHES {
                // SAFETY: as above.
                unsafe { Mail::strand(mail) }.inspect(|strand| Trail::follow(strand));
            }
            let next = link.load(Ordering::Relaxed);
            link.store(oldest, Ordering::Relaxed);
            oldest = mail;
            mail = next;
        }
        while !oldest.is_null() {
            // SAFETY: on the reversed list, so still ours; its last use.
            let (next, content) = unsafe {
                let next = Mail::link(oldest).load(Ordering::Relaxed);
                (next, Mail::open(oldest))
            };
            oldest = next;
            deliver(content);
        }
    }
}
