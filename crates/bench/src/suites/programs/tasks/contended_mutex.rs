//! Eight jobs that update one ledger. Now and then one waits while it holds the lock, so the lock has to be one that parks: a
//! lock of the standard library would block the worker.

use std::sync::Arc;

use jobtree::yield_now;

use crate::suites::programs::inputs::work;
use crate::suites::programs::program::{Program, Scale};

const JOBS: u64 = 8;
/// Every so many updates the job lets others run while it holds the lock.
const WAITS: u64 = 32;
/// About 50 ns within the lock, and as much outside.
const STEPS: u32 = 35;

pub struct Input {
    /// Of each job.
    updates: u64,
}

pub fn program(scale: Scale) -> Program<Input> {
    let updates = scale.pick(500, 40);
    Program::new("update", (JOBS * updates) as usize, Input { updates })
        .sequential(sequential)
        .our_jobs(ours)
        .tokio(by_tokio)
}

#[derive(Default)]
struct Ledger {
    total: u64,
    entries: u64,
}

impl Ledger {
    fn book(&mut self, amount: u64) {
        self.total = self.total.wrapping_add(work(amount, STEPS));
        self.entries += 1;
    }

    fn answer(&self) -> u64 {
        self.total ^ self.entries
    }
}

fn amount(job: u64, update: u64) -> u64 {
    work(job * 1000 + update, STEPS)
}

fn sequential(input: &mut Input) -> u64 {
    let mut ledger = Ledger::default();
    for job in 0..JOBS {
        for update in 0..input.updates {
            ledger.book(amount(job, update));
        }
    }
    ledger.answer()
}

fn ours(runtime: &jobtree::Runtime, input: &mut Input) -> u64 {
    let ledger = jobtree::sync::Mutex::new(Ledger::default());
    let all = runtime.nursery(|n| {
        for job in 0..JOBS {
            let (ledger, updates) = (&ledger, input.updates);
            n.launch(move || {
                for update in 0..updates {
                    let amount = amount(job, update);
                    let mut ledger = ledger.lock()?;
                    ledger.book(amount);
                    if update % WAITS == 0 {
                        yield_now();
                    }
                }
                Ok(())
            });
        }
        Ok(())
    });
    all.expect("no job fails");
    ledger.into_inner().answer()
}

fn by_tokio(runtime: &tokio::runtime::Runtime, input: &mut Input) -> u64 {
    let updates = input.updates;
    runtime.block_on(async move {
        let ledger = Arc::new(tokio::sync::Mutex::new(Ledger::default()));
        let tasks: Vec<_> = (0..JOBS)
            .map(|job| {
                let ledger = Arc::clone(&ledger);
                tokio::spawn(async move {
                    for update in 0..updates {
                        let amount = amount(job, update);
                        let mut ledger = ledger.lock().await;
                        ledger.book(amount);
                        if update % WAITS == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no task fails");
        }
        ledger.lock().await.answer()
    })
}
