//! Who won an operation that waits: one word, which only one counterpart can take.
//!
//! ```text
//!   OPEN --try_take(i)--> TAKEN(i) --finish--> DONE(i)
//!     \-----withdraw----> WITHDRAWN
//! ```
//!
//! An operation that waits has an entry in the list of each channel that it waits for (a `select!` has several, all
//! others one), and all its entries point to its one claim. A counterpart finds an entry under the lock of its channel,
//! takes the claim for that entry's clause, puts the value into the entry or takes it out, moves the waker out, and
//! finishes the claim, all under this lock. Whoever does not get the claim leaves the entry alone: the operation was won
//! elsewhere, or is given up.
//!
//! `DONE` is the counterpart's last access to the entry and to the claim: the owner may see it without any lock, and free
//! both. An owner that sees `TAKEN` waits for the counterpart by taking the channel's lock once.

use crate::atomics::{AtomicU32, Ordering};
use crate::step::{Step, left_out};

/// See the module's head.
pub struct Claim(AtomicU32);

const OPEN: u32 = 0;
const WITHDRAWN: u32 = 1;
/// With the clause above it: [`CLAUSE_SHIFT`].
const TAKEN: u32 = 2;
const DONE: u32 = 3;
const STATE_MASK: u32 = 3;
const CLAUSE_SHIFT: u32 = 2;

/// Where a claim stands, as its owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody has taken it.
    Open,
    /// A counterpart took it for this clause, and is about to finish under that clause's lock.
    Taken(u32),
    /// A counterpart has finished; its effect on this clause is visible.
    Done(u32),
}

impl Claim {
    pub(crate) fn new() -> Claim {
        Claim(AtomicU32::new(OPEN))
    }

    /// Makes the operation the caller's for this clause; `false` if somebody else has it.
    #[inline]
    pub(crate) fn try_take(&self, clause: u32) -> bool {
        let taken = TAKEN | (clause << CLAUSE_SHIFT);
        if left_out(Step::ClaimFirst) {
            self.0.store(taken, Ordering::Release);
            return true;
        }
        self.0
            .compare_exchange(OPEN, taken, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// What the caller of a successful [`try_take`](Claim::try_take) did becomes visible to the owner. The claim may be
    /// gone afterwards.
    #[inline]
    pub(crate) fn finish(&self, clause: u32) {
        self.0
            .store(DONE | (clause << CLAUSE_SHIFT), Ordering::Release);
    }

    #[inline]
    pub(crate) fn standing(&self) -> Standing {
        let word = self.0.load(Ordering::Acquire);
        match word & STATE_MASK {
            TAKEN => Standing::Taken(word >> CLAUSE_SHIFT),
            DONE => Standing::Done(word >> CLAUSE_SHIFT),
            _ => Standing::Open,
        }
    }

    /// For the owner: nobody shall take it any more; `false` if somebody has.
    pub(crate) fn withdraw(&self) -> bool {
        if left_out(Step::WithdrawFirst) {
            return self.standing() == Standing::Open;
        }
        let result = self
            .0
            .compare_exchange(OPEN, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire);
        matches!(result, Ok(_) | Err(WITHDRAWN))
    }

    /// For the owner, when no entry points here: it can be taken from the next entry on.
    pub(crate) fn reopen(&self) {
        self.0.store(OPEN, Ordering::Release);
    }
}
