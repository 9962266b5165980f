//! Closures, comparators, keys and items of parallel loops and sorts.

use std::cmp::Ordering;
use std::sync::Arc;

use jobtree::{Job, JobError, par};

use crate::behaviour::Behaviour;
use crate::place::Place;
use crate::stage::{OnDrop, Stage};

pub const PLACES: &[Place] = &[
    Place::new("loop/for-each", |stage| {
        run(stage, |stage| par::for_each(0..COUNT, |_| stage.act()));
    }),
    Place::new("loop/map", |stage| {
        run(stage, |stage| drop(par::map(0..COUNT, |_| stage.act())));
    }),
    Place::new("loop/map-in-place", |stage| {
        run(stage, |stage| {
            let mut items = numbers();
            par::map_in_place(&mut items, |item| {
                stage.act();
                *item + 1
            });
        });
    }),
    Place::new("loop/filter", |stage| {
        run(stage, |stage| {
            let kept = par::over(0..COUNT).filter(|_| {
                stage.act();
                true
            });
            assert_eq!(kept.count(), COUNT);
        });
    }),
    Place::new("loop/flat-map", |stage| {
        run(stage, |stage| {
            let items = par::over(0..COUNT).flat_map(|item| {
                stage.act();
                [item, item]
            });
            drop(items.collect());
        });
    }),
    Place::new("loop/fold-identity", |stage| {
        run(stage, |stage| {
            let identity = || {
                stage.act();
                0
            };
            par::over(0..COUNT).fold(identity, |sum, item| sum + item, |a, b| a + b);
        });
    }),
    Place::new("loop/fold", |stage| {
        run(stage, |stage| {
            let fold = |sum, item| {
                stage.act();
                sum + item
            };
            par::over(0..COUNT).fold(|| 0, fold, |a, b| a + b);
        });
    }),
    Place::new("loop/fold-combine", |stage| {
        run(stage, |stage| {
            let combine = |a, b| {
                stage.act();
                a + b
            };
            let few = par::Grain::of(1);
            par::over(0..COUNT)
                .grain(few)
                .fold(|| 0, |sum, item| sum + item, combine);
        });
    }),
    Place::new("loop/fold-state", |stage| {
        run(stage, |stage| {
            let identity = || vec![stage.on_drop()];
            let combined = par::over(0..COUNT).fold(
                identity,
                |state, _| state,
                |mut a, b| {
                    a.extend(b);
                    a
                },
            );
            drop(combined);
        });
    }),
    Place::new("loop/reduce", |stage| {
        run(stage, |stage| {
            par::over(0..COUNT).reduce(|a, b| {
                stage.act();
                a.max(b)
            });
        });
    }),
    Place::new("loop/find-first", |stage| {
        run(stage, |stage| {
            par::over(0..COUNT).find_first(|_| {
                stage.act();
                false
            });
        });
    }),
    Place::new("loop/find-any", |stage| {
        run(stage, |stage| {
            par::over(0..COUNT).find_any(|item| {
                stage.act();
                *item == COUNT / 2
            });
        });
    }),
    Place::new("loop/try-for-each", |stage| {
        run(stage, |stage| {
            par::over(0..COUNT)
                .try_for_each(|_| Ok::<_, ()>(stage.act()))
                .unwrap();
        });
    }),
    Place::new("loop/partition", |stage| {
        run(stage, |stage| {
            let (all, none) = par::over(0..COUNT).partition(|_| {
                stage.act();
                true
            });
            assert_eq!((all.len(), none.len()), (COUNT, 0));
        });
    }),
    Place::new("loop/min-by", |stage| {
        run(stage, |stage| {
            par::over(0..COUNT).min_by(|a, b| compare(stage, a, b));
        });
    }),
    Place::new("loop/max-by-key", |stage| {
        run(stage, |stage| {
            par::over(0..COUNT).max_by_key(|item| key(stage, item));
        });
    }),
    Place::new("loop/sort-by", |stage| {
        sorted(stage, |stage, items| {
            par::sort_by(items, |a, b| compare(stage, a, b))
        });
    }),
    Place::new("loop/sort-by-key", |stage| {
        sorted(stage, |stage, items| {
            par::sort_by_key(items, |item| key(stage, item))
        });
    }),
    Place::new("loop/sort-by-cached-key", |stage| {
        sorted(stage, |stage, items| {
            par::sort_by_cached_key(items, |item| key(stage, item))
        });
    }),
    Place::new("loop/sort-unstable-by", |stage| {
        sorted(stage, |stage, items| {
            par::sort_unstable_by(items, |a, b| compare(stage, a, b))
        });
    }),
    Place::new("loop/sort-unstable-by-key", |stage| {
        sorted(stage, |stage, items| {
            par::sort_unstable_by_key(items, |item| key(stage, item))
        });
    }),
    Place::new("loop/sort-ord", |stage| {
        run(stage, |stage| {
            let make = |item| Compared(item, stage.clone());
            let mut items: Vec<Compared> = numbers().into_iter().map(make).collect();
            par::sort(&mut items);
        });
    }),
    Place::new("loop/dropped-cached-key", |stage| {
        run(stage, |stage| {
            let mut items = numbers();
            par::sort_by_cached_key(&mut items, |item| (*item, Unordered(stage.on_drop())));
        });
    }),
    Place::new("loop/cloned", |stage| {
        run(stage, |stage| {
            let items: Vec<Cloned> = (0..COUNT).map(|_| Cloned(stage.clone())).collect();
            drop(par::over(&items).cloned().collect());
        });
    }),
    Place::new("loop/dropped-item-of-drain", |stage| {
        run(stage, |stage| {
            let mut items: Vec<OnDrop> = (0..COUNT).map(|_| stage.on_drop()).collect();
            par::drain(&mut items).for_each(drop);
        });
    }),
    Place::new("loop/dropped-item-of-stopped-drain", |stage| {
        run(stage, |stage| {
            let mut items: Vec<OnDrop> = (0..COUNT).map(|_| stage.on_drop()).collect();
            let found = par::drain(&mut items).find_any(|_| true);
            // This one is the caller's.
            std::mem::forget(found);
        });
    }),
    Place::new("loop/dropped-filtered-item", |stage| {
        run(stage, |stage| {
            let mut items: Vec<OnDrop> = (0..COUNT).map(|_| stage.on_drop()).collect();
            assert_eq!(par::drain(&mut items).filter(|_| false).count(), 0);
        });
    }),
    Place::new("loop/dropped-overwritten-result", |stage| {
        run(stage, |stage| {
            let mut target: Vec<Option<OnDrop>> =
                (0..COUNT).map(|_| Some(stage.on_drop())).collect();
            par::over(0..COUNT).map(|_| None).write_to(&mut target);
        });
    }),
    Place::new("loop/dropped-results-of-failed-collect", |stage| {
        let user = stage.clone();
        let handle = stage.in_job(move || {
            let results = par::over(0..COUNT).map(|item| match item {
                700 => Err(()),
                _ => Ok(user.on_drop()),
            });
            Ok(assert!(results.try_collect::<OnDrop, ()>().is_err()))
        });
        stage.check_bystander(handle.join());
        stage.until_acted();
    }),
    Place::new("loop/dropped-results-of-panicking-map", |stage| {
        panics(stage, |stage| {
            drop(par::over(0..COUNT).map(|item| made(stage, item)).collect());
        });
    }),
    Place::new("loop/dropped-results-of-cancelled-map", |stage| {
        let user = stage.clone();
        let handle = stage.in_job(move || {
            let job = Job::current().ok_or("no job")?;
            let results = par::over(0..COUNT).map(|item| {
                if item == FAILS {
                    job.cancel("enough");
                }
                user.on_guarded_drop()
            });
            // Only if the last block was on its way.
            Ok(std::mem::forget(results.collect()))
        });
        if handle.join().is_ok() {
            stage.act();
        }
        stage.until_acted();
    }),
    Place::new("loop/dropped-results-of-panicking-flat-map", |stage| {
        panics(stage, |stage| {
            let made = par::over(0..COUNT).flat_map(|item| Some(made(stage, item)));
            drop(made.collect());
        });
    }),
    Place::new("loop/dropped-partial-result-of-reduce", |stage| {
        panics(stage, |stage| {
            let reduced = par::over(0..COUNT).map(|item| (item, stage.on_guarded_drop()));
            reduced.reduce(|left, right| {
                if right.0 == FAILS {
                    // These are in a frame of the program's.
                    std::mem::forget((left, right));
                    panic!("the loop");
                }
                std::mem::forget(right);
                left
            });
        });
    }),
    Place::new("loop/dropped-items-of-panicking-drain", |stage| {
        panics(stage, |stage| {
            let mut items: Vec<_> = (0..COUNT)
                .map(|item| (item, stage.on_guarded_drop()))
                .collect();
            par::drain(&mut items).for_each(|(item, value)| {
                std::mem::forget(value);
                assert!(item != FAILS, "the loop");
            });
        });
    }),
    Place::new("loop/captured-by-panicking-loop", |stage| {
        panics(stage, |stage| {
            let captured = stage.on_guarded_drop();
            par::over(0..COUNT)
                .map(move |item| (item, std::ptr::from_ref(&captured) as usize))
                .for_each(|(item, _)| assert!(item != FAILS, "the loop"));
        });
    }),
    Place::new("loop/dropped-losers-of-comparison", |stage| {
        quietly_drops(stage, |stage| {
            let least = par::over(0..COUNT)
                .map(|_| stage.on_guarded_drop())
                .min_by(|_, _| Ordering::Equal);
            std::mem::forget(least);
        });
    }),
    Place::new("loop/dropped-losers-of-search", |stage| {
        let user = stage.clone();
        let handle = stage.in_job(move || {
            // Both halves end with an error, if they run at the same time.
            let failed = par::over(0..2)
                .grain(par::Grain::of(1))
                .try_for_each(|_| Err(user.on_guarded_drop()));
            Ok(std::mem::forget(failed))
        });
        stage.check_bystander(handle.join());
        act_at_least_once(stage);
    }),
    Place::new("loop/map-init", |stage| {
        run(stage, |stage| {
            par::over(0..COUNT)
                .map_init(|| stage.act(), |(), item| item)
                .for_each(drop);
        });
    }),
    Place::new("loop/map-init-function", |stage| {
        run(stage, |stage| {
            let function = |state: &mut usize, _| {
                stage.act();
                *state += 1;
            };
            par::over(0..COUNT).map_init(|| 0, function).for_each(drop);
        });
    }),
    Place::new("loop/dropped-state-of-map-init", |stage| {
        quietly_drops(stage, |stage| {
            let mapped = par::over(0..COUNT).map_init(|| stage.on_guarded_drop(), |_, item| item);
            assert_eq!(mapped.count(), COUNT);
        });
    }),
    Place::new("loop/dropped-state-of-panicking-map-init", |stage| {
        panics(stage, |stage| {
            par::over(0..COUNT)
                .map_init(
                    || stage.on_guarded_drop(),
                    |_, item| assert!(item != FAILS, "the loop"),
                )
                .for_each(drop);
        });
    }),
    Place::new("loop/collect-as", |stage| {
        run(stage, |stage| {
            let collected: Collected = par::over(0..COUNT).map(|_| stage.clone()).collect_as();
            assert_eq!(collected.0, COUNT);
        });
    }),
    Place::new("loop/dropped-items-of-panicking-collect-as", |stage| {
        panics(stage, |stage| {
            let _: PanicsAfterOne = par::over(0..COUNT)
                .map(|_| stage.on_guarded_drop())
                .collect_as();
        });
    }),
    Place::new("loop/dropped-results-of-panicking-unzip", |stage| {
        panics(stage, |stage| {
            let made = par::over(0..COUNT).map(|item| (made(stage, item), made(stage, item)));
            drop(made.unzip::<OnDrop, OnDrop>());
        });
    }),
    Place::new("loop/dropped-item-of-vector", |stage| {
        run(stage, |stage| {
            let items: Vec<OnDrop> = (0..COUNT).map(|_| stage.on_drop()).collect();
            par::over(items).for_each(drop);
        });
    }),
    Place::new("loop/dropped-items-of-panicking-vector", |stage| {
        panics(stage, |stage| {
            let items: Vec<_> = (0..COUNT)
                .map(|item| (item, stage.on_guarded_drop()))
                .collect();
            par::over(items).for_each(|(item, value)| {
                std::mem::forget(value);
                assert!(item != FAILS, "the loop");
            });
        });
    }),
    Place::new("loop/dropped-skipped-items", |stage| {
        // Dropped one by one: the first panic comes out, as that of a vector's, and the others are recorded.
        acts_each_time(stage);
        run(stage, |stage| {
            let items: Vec<OnDrop> = (0..COUNT).map(|_| stage.on_guarded_drop()).collect();
            par::over(items)
                .skip(10)
                .take(10)
                .for_each(std::mem::forget);
        });
    }),
    Place::new("loop/bridge-next", |stage| {
        run(stage, |stage| {
            let items = (0..FEW).inspect(|_| stage.act());
            par::bridge(items).for_each(drop);
        });
    }),
    Place::new("loop/bridge-for-each", |stage| {
        run(stage, |stage| {
            par::bridge(0..FEW).for_each(|_| stage.act());
        });
    }),
    Place::new("loop/bridge-map", |stage| {
        run(stage, |stage| {
            let mapped = par::bridge(0..FEW).map(|item| {
                stage.act();
                item
            });
            assert!(mapped.into_iter().eq(0..FEW));
        });
    }),
    Place::new("loop/dropped-iterator-of-bridge", |stage| {
        quietly_drops(stage, |stage| {
            let value = stage.on_guarded_drop();
            let items = (0..FEW).filter(move |_| std::ptr::from_ref(&value).is_aligned());
            par::bridge(items).for_each(drop);
        });
    }),
    Place::new("loop/dropped-items-of-panicking-bridge", |stage| {
        // Those that wait in the queue: how many there are is a matter of timing, and with one worker there are none.
        acts_each_time(stage);
        let user = stage.clone();
        let handle = stage.in_job(move || {
            let items = (0..FEW).map(|item| (item, user.on_guarded_drop()));
            par::bridge(items).for_each(|(item, value)| {
                std::mem::forget(value);
                assert!(item != FEW / 2, "the loop");
            });
            Ok(())
        });
        check_panicking_loop(stage, handle.join());
        act_at_least_once(stage);
    }),
    Place::new("loop/dropped-results-of-panicking-bridge", |stage| {
        panics(stage, |stage| {
            let results = par::bridge(0..FEW).map(|item| {
                assert!(item != FEW / 2, "the loop");
                stage.on_guarded_drop()
            });
            drop(results);
        });
    }),
    Place::new("loop/outside-for-each", |stage| {
        stage.propagates(|| par::for_each(0..COUNT, |_| stage.act()));
    }),
];

/// The items of an iterator that is bridged: each costs more than one of a source that can be cut.
const FEW: usize = 500;

/// Enough for several blocks and for a sort that forks.
const COUNT: usize = 20_000;

fn numbers() -> Vec<usize> {
    (0..COUNT).map(|index| index * 7919 % COUNT).collect()
}

fn compare(stage: &Arc<Stage>, a: &usize, b: &usize) -> Ordering {
    stage.act();
    a.cmp(b)
}

fn key(stage: &Arc<Stage>, item: &usize) -> usize {
    stage.act();
    *item
}

/// The item at which loops panic that have made values before.
const FAILS: usize = COUNT * 3 / 4;

fn made(stage: &Arc<Stage>, item: usize) -> OnDrop {
    assert!(item != FAILS, "the loop");
    stage.on_guarded_drop()
}

/// Runs a loop in a job that panics, and drops values because of that.
fn panics(stage: &Arc<Stage>, body: fn(&Arc<Stage>)) {
    let user = stage.clone();
    let handle = stage.in_job(move || Ok(body(&user)));
    check_panicking_loop(stage, handle.join());
    stage.until_acted();
}

fn check_panicking_loop(stage: &Arc<Stage>, outcome: Result<(), JobError>) {
    match outcome {
        Err(JobError::Panicked(panic)) => assert_eq!(panic.message(), "the loop"),
        Err(_) if stage.behaviour.cancels() => (),
        Err(error) => panic!("the job ended by: {}", error.report()),
        Ok(()) => panic!("the loop does not panic"),
    }
}

/// Has three calls of the user code do what the cell is about: two destructors that panic at once end a process whose library does
/// not look after each.
fn acts_each_time(stage: &Arc<Stage>) {
    if stage.behaviour != Behaviour::Hold {
        stage.act_often(3);
    }
}

/// For cells in which it is a matter of timing whether the library calls the user code at all.
fn act_at_least_once(stage: &Arc<Stage>) {
    if stage.runs() == 0 {
        stage.contain(|| stage.act());
    }
    stage.until_acted();
}

/// Runs a loop in a job. It drops values of which the caller knows nothing, so their panics are not the job's.
fn quietly_drops(stage: &Arc<Stage>, body: fn(&Arc<Stage>)) {
    acts_each_time(stage);
    let user = stage.clone();
    let handle = stage.in_job(move || Ok(body(&user)));
    stage.check_bystander(handle.join());
    stage.until_acted();
}

/// Runs a loop in a job; its panic is that of the job.
fn run(stage: &Arc<Stage>, body: fn(&Arc<Stage>)) {
    let user = stage.clone();
    let handle = stage.in_job(move || Ok(body(&user)));
    stage.check_body(handle.join());
}

/// Sorts in a job. Whatever the comparison does, no item is lost or there twice.
fn sorted(stage: &Arc<Stage>, sort: fn(&Arc<Stage>, &mut [usize])) {
    let user = stage.clone();
    let items = Arc::new(std::sync::Mutex::new(numbers()));
    let same = items.clone();
    let handle = stage.in_job(move || {
        let mut items = same.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        sort(&user, &mut items);
        Ok(())
    });
    let is_sorted = stage.check_body(handle.join()).is_some();
    let mut items = items
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
        .clone();
    assert!(!is_sorted || items.is_sorted());
    items.sort();
    assert!(items.into_iter().eq(0..COUNT));
}

/// An item whose comparison is user code.
struct Compared(usize, Arc<Stage>);

impl Ord for Compared {
    fn cmp(&self, other: &Compared) -> Ordering {
        compare(&self.1, &self.0, &other.0)
    }
}

impl PartialOrd for Compared {
    fn partial_cmp(&self, other: &Compared) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Compared {
    fn eq(&self, other: &Compared) -> bool {
        self.0 == other.0
    }
}

impl Eq for Compared {}

/// A part of a key that is dropped and never compared.
struct Unordered(#[expect(dead_code, reason = "it is dropped")] OnDrop);

impl Ord for Unordered {
    fn cmp(&self, _: &Unordered) -> Ordering {
        Ordering::Equal
    }
}

impl PartialOrd for Unordered {
    fn partial_cmp(&self, other: &Unordered) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Unordered {
    fn eq(&self, _: &Unordered) -> bool {
        true
    }
}

impl Eq for Unordered {}

/// An item whose clone is user code.
struct Cloned(Arc<Stage>);

impl Clone for Cloned {
    fn clone(&self) -> Cloned {
        self.0.act();
        Cloned(self.0.clone())
    }
}

/// A collection whose making is user code.
struct Collected(usize);

impl FromIterator<Arc<Stage>> for Collected {
    fn from_iter<I: IntoIterator<Item = Arc<Stage>>>(items: I) -> Collected {
        let act = |count, stage: Arc<Stage>| {
            stage.act();
            count + 1
        };
        Collected(items.into_iter().fold(0, act))
    }
}

/// A collection that panics when it has taken one item.
struct PanicsAfterOne;

impl FromIterator<OnDrop> for PanicsAfterOne {
    fn from_iter<I: IntoIterator<Item = OnDrop>>(items: I) -> PanicsAfterOne {
        // The rest is dropped because of the panic.
        let mut items = items.into_iter();
        std::mem::forget(items.next());
        panic!("the loop");
    }
}
