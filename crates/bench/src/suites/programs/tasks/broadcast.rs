//! A state that changes many times, and sixteen subscribers that see every change.
//!
//! jobtree had no broadcast channel when this was written, and crossbeam has none: their users give each subscriber a channel
//! of its own.

use std::thread;

use jobtree::channel;
use tokio::sync::broadcast;

use crate::suites::programs::inputs::work;
use crate::suites::programs::program::{Program, Scale};

const SUBSCRIBERS: u64 = 16;
/// The work of a subscriber for each state: about 50 ns.
const STEPS: u32 = 35;

pub struct Input {
    states: u64,
}

pub fn program(scale: Scale) -> Program<Input> {
    let states = scale.pick(500, 20);
    let seen = (SUBSCRIBERS * states) as usize;
    Program::new("state seen", seen, Input { states })
        .sequential(sequential)
        .our_jobs(ours)
        .tokio(by_tokio)
        .crossbeam(by_crossbeam)
}

fn see(sum: u64, state: u64) -> u64 {
    sum.wrapping_add(work(state, STEPS))
}

fn sequential(input: &mut Input) -> u64 {
    let mut sums = [0; SUBSCRIBERS as usize];
    for state in 0..input.states {
        for sum in &mut sums {
            *sum = see(*sum, state);
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}

fn ours(runtime: &jobtree::Runtime, input: &mut Input) -> u64 {
    let sum = runtime.nursery(|n| {
        let mut senders = Vec::new();
        let mut subscribers = Vec::new();
        for _ in 0..SUBSCRIBERS {
            let (sender, receiver) = channel::unbounded();
            senders.push(sender);
            subscribers.push(n.spawn(move || Ok(receiver.iter().fold(0, see))));
        }
        for state in 0..input.states {
            for sender in &senders {
                sender.send(state)?;
            }
        }
        drop(senders);
        let mut sum = 0_u64;
        for subscriber in subscribers {
            sum = sum.wrapping_add(subscriber.join()?);
        }
        Ok(sum)
    });
    sum.expect("no job fails")
}

fn by_tokio(runtime: &tokio::runtime::Runtime, input: &mut Input) -> u64 {
    let states = input.states;
    runtime.block_on(async move {
        // With room for all of them: no subscriber may miss one.
        let (sender, _) = broadcast::channel(states as usize);
        let subscribers: Vec<_> = (0..SUBSCRIBERS)
            .map(|_| {
                let mut receiver = sender.subscribe();
                tokio::spawn(async move {
                    let mut sum = 0;
                    while let Ok(state) = receiver.recv().await {
                        sum = see(sum, state);
                    }
                    sum
                })
            })
            .collect();
        for state in 0..states {
            sender.send(state).expect("there are subscribers");
        }
        drop(sender);
        let mut sum = 0_u64;
        for subscriber in subscribers {
            sum = sum.wrapping_add(subscriber.await.expect("no task fails"));
        }
        sum
    })
}

fn by_crossbeam(input: &mut Input) -> u64 {
    thread::scope(|scope| {
        let mut senders = Vec::new();
        let mut subscribers = Vec::new();
        for _ in 0..SUBSCRIBERS {
            let (sender, receiver) = crossbeam_channel::unbounded();
            senders.push(sender);
            subscribers.push(scope.spawn(move || receiver.iter().fold(0, see)));
        }
        for state in 0..input.states {
            for sender in &senders {
                sender.send(state).expect("there is a subscriber");
            }
        }
        drop(senders);
        let sums = subscribers.into_iter().map(|subscriber| subscriber.join());
        sums.map(|sum| sum.expect("no thread panics"))
            .fold(0, u64::wrapping_add)
    })
}
