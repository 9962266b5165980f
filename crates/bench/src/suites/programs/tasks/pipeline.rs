//! Four stages with a channel between each two: read, parse, compute, add up.

use std::thread;

use jobtree::channel;
use tokio::sync::mpsc;

use crate::suites::programs::inputs::{SMALL_JOB, work};
use crate::suites::programs::program::{Program, Scale};

const ROOM: usize = 64;

pub struct Input {
    items: u64,
}

pub fn program(scale: Scale) -> Program<Input> {
    let items = scale.pick(3000, 50);
    Program::new("item", items as usize, Input { items })
        .sequential(sequential)
        .our_jobs(ours)
        .tokio(by_tokio)
        .crossbeam(by_crossbeam)
}

fn read(number: u64) -> String {
    format!("{number}")
}

fn parse(line: &str) -> u64 {
    line.parse().expect("a number was written")
}

fn compute(number: u64) -> u64 {
    work(number, SMALL_JOB)
}

fn sequential(input: &mut Input) -> u64 {
    let values = (0..input.items).map(|number| compute(parse(&read(number))));
    values.fold(0, u64::wrapping_add)
}

fn ours(runtime: &jobtree::Runtime, input: &mut Input) -> u64 {
    let items = input.items;
    let sum = runtime.nursery(|n| {
        let (to_parse, lines) = channel::bounded(ROOM);
        let (to_compute, numbers) = channel::bounded(ROOM);
        let (to_sum, values) = channel::bounded(ROOM);
        n.launch(move || {
            for number in 0..items {
                to_parse.send(read(number))?;
            }
            Ok(())
        });
        n.launch(move || {
            for line in &lines {
                to_compute.send(parse(&line))?;
            }
            Ok(())
        });
        n.launch(move || {
            for number in &numbers {
                to_sum.send(compute(number))?;
            }
            Ok(())
        });
        Ok(values.iter().fold(0, u64::wrapping_add))
    });
    sum.expect("no job fails")
}

fn by_tokio(runtime: &tokio::runtime::Runtime, input: &mut Input) -> u64 {
    let items = input.items;
    runtime.block_on(async move {
        let (to_parse, mut lines) = mpsc::channel(ROOM);
        let (to_compute, mut numbers) = mpsc::channel(ROOM);
        let (to_sum, mut values) = mpsc::channel(ROOM);
        tokio::spawn(async move {
            for number in 0..items {
                to_parse.send(read(number)).await.expect("it is received");
            }
        });
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                let line: String = line;
                to_compute.send(parse(&line)).await.expect("it is received");
            }
        });
        tokio::spawn(async move {
            while let Some(number) = numbers.recv().await {
                to_sum.send(compute(number)).await.expect("it is received");
            }
        });
        let mut sum = 0_u64;
        while let Some(value) = values.recv().await {
            sum = sum.wrapping_add(value);
        }
        sum
    })
}

fn by_crossbeam(input: &mut Input) -> u64 {
    let items = input.items;
    let (to_parse, lines) = crossbeam_channel::bounded::<String>(ROOM);
    let (to_compute, numbers) = crossbeam_channel::bounded(ROOM);
    let (to_sum, values) = crossbeam_channel::bounded(ROOM);
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..items {
                to_parse.send(read(number)).expect("it is received");
            }
        });
        scope.spawn(move || {
            for line in lines {
                to_compute.send(parse(&line)).expect("it is received");
            }
        });
        scope.spawn(move || {
            for number in numbers {
                to_sum.send(compute(number)).expect("it is received");
            }
        });
        values.iter().fold(0, u64::wrapping_add)
    })
}
