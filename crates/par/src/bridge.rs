//! Loops over iterators, which cannot be cut: one worker asks for the items, and others handle them.
//!
//! # Protocol
//!
//! The worker that began the loop puts each item into a queue before it asks for the next one, and sees to it that a task takes
//! items out of the queue, up to one for each other worker; a task ends when it finds none. So no item waits for the iterator,
//! which may wait itself, and nothing of ours is locked while code of the program's runs. When the queue is full, that worker
//! handles an item itself.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jobtree_pool::raw::{UserOwned, UserVec};
use jobtree_pool::{Scope, Worker, raw};

/// The items that may wait, for each worker. Picked by feel: enough that a short hold-up of the iterator starves nobody.
const WAITING_ITEMS: usize = 16;

/// A loop over the items of any iterator, made by [`bridge`](bridge()).
#[derive(Clone, Debug)]
#[must_use = "a loop does nothing until it is run, for example by `for_each`"]
pub struct Bridge<I> {
    iterator: I,
}

/// A loop over the items of any iterator: a file's lines, a channel's messages.
///
/// One worker at a time asks the iterator for items, while others handle those that it gave before. So this pays where handling an
/// item takes longer than getting it. What can be cut is better gone over by [`over`](crate::over).
///
/// ```
/// let text = "one\ntwo\nthree";
/// let letters: usize = jobtree_par::bridge(text.lines()).map(|line| line.len()).iter().sum();
/// assert_eq!(letters, 11);
/// ```
pub fn bridge<I>(items: I) -> Bridge<I::IntoIter>
where
    I: IntoIterator,
{
    Bridge {
        iterator: items.into_iter(),
    }
}

impl<I> Bridge<I>
where
    I: Iterator + Send,
    I::Item: Send,
{
    /// Calls `action` with each item.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// let sum = AtomicU32::new(0);
    /// jobtree_par::bridge([1, 2, 3]).for_each(|n| {
    ///     sum.fetch_add(n, Ordering::Relaxed);
    /// });
    /// assert_eq!(sum.into_inner(), 6);
    /// ```
    ///
    /// # Panics
    /// If `action` or the iterator panics, after all workers have ended.
    pub fn for_each<F>(self, action: F)
    where
        F: Fn(I::Item) + Sync,
    {
        let action = UserOwned::captured(action);
        run(self.iterator, &Handling::new(|(_, item)| (*action)(item)));
    }

    /// A vector of what `function` makes of each item, in order.
    ///
    /// ```
    /// let squares = jobtree_par::bridge((1..4).map(|n| n + 1)).map(|n| n * n);
    /// assert_eq!(squares, [4, 9, 16]);
    /// ```
    ///
    /// # Panics
    /// If `function` or the iterator panics, after all workers have ended.
    pub fn map<F, R>(self, function: F) -> Vec<R>
    where
        F: Fn(I::Item) -> R + Sync,
        R: Send,
    {
        let function = UserOwned::captured(function);
        let results = Mutex::new(UserVec::new(Vec::new()));
        run(
            self.iterator,
            &Handling::new(|(place, item)| {
                let result = (*function)(item);
                lock(&results).push((place, result));
            }),
        );
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut results = results.into_inner();
        results.sort_unstable_by_key(|(place, _)| *place);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// An item and its place among all items.
type Placed<T> = (usize, T);

/// The state of a loop.
struct Handling<T, F> {
    queue: Mutex<Queue<T>>,
    handle: F,
}

struct Queue<T> {
    items: VecDeque<UserOwned<Placed<T>>>,
    /// The number of tasks that take items out.
    tasks: usize,
    /// `true` if the loop unwinds: nothing is handled any more.
    is_over: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T, F> Handling<T, F>
where
    T: Send,
    F: Fn(Placed<T>) + Sync,
{
    fn new(handle: F) -> Handling<T, F> {
        Handling {
            queue: Mutex::new(Queue {
                items: VecDeque::new(),
                tasks: 0,
                is_over: false,
            }),
            handle,
        }
    }

    /// Puts `item` into the queue, and has it taken out: by a task, or if there is no room, by the caller. Returns `false` if the
    /// loop is over.
    fn pass_on<'scope>(
        &'scope self,
        scope: &Scope<'scope>,
        worker: &Worker,
        item: Placed<T>,
    ) -> bool
    where
        T: 'scope,
    {
        let most_tasks = worker.workers() - 1;
        let mut queue = lock(&self.queue);
        if queue.is_over {
            drop(queue);
            drop(UserOwned::value(item));
            return false;
        }
        queue.items.push_back(UserOwned::value(item));
        let is_full = queue.items.len() > WAITING_ITEMS * most_tasks;
        let needs_task = queue.tasks < most_tasks;
        queue.tasks += usize::from(needs_task);
        let own = match is_full {
            true => queue.items.pop_front(),
            false => None,
        };
        drop(queue);
        if needs_task {
            scope
                .spawn_part(|| jobtree_pool::with_worker(|worker| self.handle_until_empty(worker)));
        }
        if let Some(own) = own {
            self.handle_one(worker, own);
        }
        true
    }

    /// The work of a task.
    fn handle_until_empty(&self, worker: &Worker) {
        loop {
            let mut queue = lock(&self.queue);
            let item = match queue.is_over {
                true => None,
                false => queue.items.pop_front(),
            };
            let Some(item) = item else {
                queue.tasks -= 1;
                return;
            };
            drop(queue);
            self.handle_one(worker, item);
        }
    }

    fn handle_one(&self, worker: &Worker, item: UserOwned<Placed<T>>) {
        let unless_handled = EndLoop(&self.queue);
        give_way(worker);
        (self.handle)(item.into_inner());
        std::mem::forget(unless_handled);
    }
}

/// Ends a loop when it is dropped.
struct EndLoop<'a, T>(&'a Mutex<Queue<T>>);

impl<T> Drop for EndLoop<'_, T> {
    fn drop(&mut self) {
        lock(self.0).is_over = true;
    }
}

/// Does between two items what forks do: unwinds if the loop was told to stop, and lets fibers run whose wait is over.
fn give_way(worker: &Worker) {
    if worker.wants_work() {
        raw::unwind_if_stopped();
        worker.join(|_| (), |_| ());
    }
}

/// Handles all items of `iterator`.
fn run<I, F>(iterator: I, handling: &Handling<I::Item, F>)
where
    I: Iterator + Send,
    I::Item: Send,
    F: Fn(Placed<I::Item>) + Sync,
{
    let mut iterator = UserOwned::captured(iterator);
    jobtree_pool::scope(|scope| {
        jobtree_pool::with_worker(|worker| {
            let unless_all = EndLoop(&handling.queue);
            for place in 0.. {
                give_way(worker);
                let Some(item) = iterator.next() else { break };
                if !handling.pass_on(scope, worker, (place, item)) {
                    break;
                }
            }
            std::mem::forget(unless_all);
            // What is left; it counts as a task.
            lock(&handling.queue).tasks += 1;
            handling.handle_until_empty(worker);
        });
    });
}
