//! Eight producers that send events to one consumer, which counts them by kind.

use std::thread;

use jobtree::channel;
use tokio::sync::mpsc;

use crate::suites::programs::inputs::{digest, work};
use crate::suites::programs::program::{Program, Scale};

const PRODUCERS: u64 = 8;
const ROOM: usize = 128;
const KINDS: usize = 16;
/// About 50 ns.
const STEPS: u32 = 35;

pub struct Input {
    /// Of each producer.
    events: u64,
}

pub fn program(scale: Scale) -> Program<Input> {
    let events = scale.pick(1000, 40);
    Program::new("event", (PRODUCERS * events) as usize, Input { events })
        .sequential(sequential)
        .our_jobs(ours)
        .tokio(by_tokio)
        .crossbeam(by_crossbeam)
}

struct Event {
    kind: usize,
    bytes: u64,
}

fn event(producer: u64, number: u64) -> Event {
    let random = work(producer * 100_000 + number, STEPS);
    Event {
        kind: (random % KINDS as u64) as usize,
        bytes: random >> 50,
    }
}

#[derive(Default)]
struct Counts {
    bytes: [u64; KINDS],
}

impl Counts {
    fn add(&mut self, event: &Event) {
        self.bytes[event.kind] += event.bytes;
    }

    fn answer(self) -> u64 {
        digest(self.bytes)
    }
}

fn sequential(input: &mut Input) -> u64 {
    let mut counts = Counts::default();
    for producer in 0..PRODUCERS {
        for number in 0..input.events {
            counts.add(&event(producer, number));
        }
    }
    counts.answer()
}

fn ours(runtime: &jobtree::Runtime, input: &mut Input) -> u64 {
    let events = input.events;
    let counts = runtime.nursery(|n| {
        let (sender, receiver) = channel::bounded(ROOM);
        for producer in 0..PRODUCERS {
            let sender = sender.clone();
            n.launch(move || {
                for number in 0..events {
                    sender.send(event(producer, number))?;
                }
                Ok(())
            });
        }
        drop(sender);
        let mut counts = Counts::default();
        for event in &receiver {
            counts.add(&event);
        }
        Ok(counts)
    });
    counts.expect("no job fails").answer()
}

fn by_tokio(runtime: &tokio::runtime::Runtime, input: &mut Input) -> u64 {
    let events = input.events;
    runtime.block_on(async move {
        let (sender, mut receiver) = mpsc::channel(ROOM);
        for producer in 0..PRODUCERS {
            let sender = sender.clone();
            tokio::spawn(async move {
                for number in 0..events {
                    let sent = sender.send(event(producer, number)).await;
                    assert!(sent.is_ok(), "the consumer receives");
                }
            });
        }
        drop(sender);
        let mut counts = Counts::default();
        while let Some(event) = receiver.recv().await {
            counts.add(&event);
        }
        counts.answer()
    })
}

fn by_crossbeam(input: &mut Input) -> u64 {
    let events = input.events;
    let (sender, receiver) = crossbeam_channel::bounded(ROOM);
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let sender = sender.clone();
            scope.spawn(move || {
                for number in 0..events {
                    let sent = sender.send(event(producer, number));
                    assert!(sent.is_ok(), "the consumer receives");
                }
            });
        }
        drop(sender);
        let mut counts = Counts::default();
        for event in &receiver {
            counts.add(&event);
        }
        counts.answer()
    })
}
