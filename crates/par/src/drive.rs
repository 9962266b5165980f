//! The one engine behind all loops: cut, go through, share on request, combine.
//!
//! A loop first forks a few times, so that every worker can get a piece: a fork costs next to nothing, and the
//! outermost one wakes the thread that sleeps. Then each worker goes through its piece in blocks ([`Grain`]), with nothing
//! between the items of a block, so that the compiler can do with it what it does with any loop. After each block it
//! checks whether a thief has requested work ([`Worker::wants_work`], one load), and if so halves what is left. So
//! the number of pieces depends on what the workers need and not on the number of items. The check also tells that a fiber
//! of this worker was woken, which then runs first; so one worker alone goes through its items in blocks, too.
//!
//! Who stops what runs in a context (`jobtree_pool::with_user_context`) makes himself noticed by the same question. A
//! loop that is asked therefore looks first whether it shall end; then it unwinds as a fork does, and each worker
//! handles at most one block more.

use jobtree_pool::raw::UserOwned;
use jobtree_pool::{Worker, raw};

use crate::grain::Grain;

/// A value that can be cut in two.
pub(crate) trait Splittable: Sized + Send {
    /// Returns the number of items.
    fn item_count(&self) -> usize;

    /// The first `index` items, and the others. `index` is at most the length.
    fn cut_at(self, index: usize) -> (Self, Self);
}

/// The work on the items of a loop, and the combination of its results.
pub(crate) trait Body<P>: Sync {
    /// The result of a piece.
    type State: Send;

    /// A block is no longer than this. Shorter for loops that may end early.
    const LONGEST_BLOCK: usize = 4096;

    /// `true` if the loop may well end after a few items. Then it goes through some before it is shared at all, so that no worker
    /// is woken for nothing.
    const MAY_END_SOON: bool = false;

    /// Returns the result of no items.
    fn start(&self) -> Self::State;

    /// Goes through the items of `block`, which follow those that `state` comes from. `position` is that of the
    /// first one in the whole.
    fn feed(&self, state: Self::State, position: usize, block: P) -> Self::State;

    /// Combines the results of two neighbouring pieces.
    fn combine(&self, left: Self::State, right: Self::State) -> Self::State;

    /// Returns `true` if the items from `position` on can be skipped.
    #[inline(always)]
    fn can_skip(&self, position: usize) -> bool {
        let _ = position;
        false
    }
}

/// Runs a loop on the current pool.
pub(crate) fn drive<P, B>(items: P, grain: Grain, body: &B) -> B::State
where
    P: Splittable,
    B: Body<P>,
{
    jobtree_pool::with_worker(move |worker| drive_on(worker, items, grain, body))
}

/// Runs a loop on the pool of `worker`.
pub(crate) fn drive_on<P, B>(worker: &Worker, items: P, grain: Grain, body: &B) -> B::State
where
    P: Splittable,
    B: Body<P>,
{
    let workers = worker.workers();
    let drive = Drive { body, grain };
    if workers == 1 {
        return drive.go_through(worker, items, 0);
    }
    // One piece for each worker. The thread that is first to end asks for more.
    let halvings = workers.next_power_of_two().ilog2();
    if B::MAY_END_SOON {
        drive.look_ahead(worker, items, halvings)
    } else {
        drive.cut(worker, items, 0, halvings)
    }
}

struct Drive<'a, B> {
    body: &'a B,
    grain: Grain,
}

impl<B> Drive<'_, B> {
    /// Goes through a small part of the items before it shares the rest.
    fn look_ahead<P>(&self, worker: &Worker, items: P, halvings: u32) -> B::State
    where
        P: Splittable,
        B: Body<P>,
    {
        // A sixteenth of what one worker has to do: so little that it does not matter how long an item takes.
        let ahead_len = (items.item_count() >> (halvings + 4)).min(1024);
        let (ahead, rest) = items.cut_at(ahead_len);
        let ahead = self.go_through(worker, ahead, 0);
        if self.body.can_skip(ahead_len) {
            return ahead;
        }
        let ahead = UserOwned::value(ahead);
        let rest = self.cut(worker, rest, ahead_len, halvings);
        self.body.combine(ahead.into_inner(), rest)
    }

    /// Forks until there are enough pieces.
    fn cut<P>(&self, worker: &Worker, items: P, position: usize, halvings: u32) -> B::State
    where
        P: Splittable,
        B: Body<P>,
    {
        let half = items.item_count() / 2;
        if halvings == 0 || half < self.grain.least() || self.body.can_skip(position) {
            return self.go_through(worker, items, position);
        }
        let (left, right) = items.cut_at(half);
        let (left, right) = worker.join(
            |worker| self.cut(worker, left, position, halvings - 1),
            |worker| self.cut(worker, right, position + half, halvings - 1),
        );
        self.body.combine(left, right)
    }

    /// Goes through a piece block by block, and shares what is left of it if a thief requests it.
    fn go_through<P>(&self, worker: &Worker, items: P, position: usize) -> B::State
    where
        P: Splittable,
        B: Body<P>,
    {
        let mut pace = self.grain.pace(items.item_count(), B::LONGEST_BLOCK);
        // What has come out so far is the program's, and may be dropped because a closure or a fork panics.
        let mut state = UserOwned::value(self.body.start());
        let mut position = position;
        let mut rest = items;
        while rest.item_count() > 0 && !self.body.can_skip(position) {
            let half = rest.item_count() / 2;
            if worker.wants_work() {
                // A fork would look too, but what is left may be too short for one.
                raw::unwind_if_stopped();
                if half >= self.grain.least() {
                    let (left, right) = rest.cut_at(half);
                    let (left, right) = worker.join(
                        |worker| self.go_through(worker, left, position),
                        |worker| self.go_through(worker, right, position + half),
                    );
                    let right = UserOwned::value(right);
                    let left = self.body.combine(state.into_inner(), left);
                    return self.body.combine(left, right.into_inner());
                }
                raw::let_woken_run();
            }
            let mut len = pace.begin();
            if len > rest.item_count() {
                pace = self.grain.last_pace(rest.item_count());
                len = pace.begin().min(rest.item_count());
            }
            let (block, later) = rest.cut_at(len);
            state = UserOwned::value(self.body.feed(state.into_inner(), position, block));
            pace.end();
            position += len;
            rest = later;
        }
        state.into_inner()
    }
}
