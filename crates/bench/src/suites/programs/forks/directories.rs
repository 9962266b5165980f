//! The size of all source files below a directory, on a tree that lies in memory: a task for each directory, and two
//! counters that all of them add to.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::harness::SplitMix64;
use crate::suites::programs::inputs::{digest, rng};
use crate::suites::programs::program::{Program, Scale};

pub enum Entry {
    File { name: String, bytes: u64 },
    Directory(Vec<Entry>),
}

pub struct Input {
    root: Vec<Entry>,
}

pub fn program(scale: Scale) -> Program<Input> {
    let depth = scale.pick(6, 3);
    let mut directories = 0;
    let root = directory(depth, &mut rng(), &mut directories);
    Program::new("directory", directories, Input { root })
        .sequential(|input| {
            let total = Total::default();
            sequential(&input.root, &total);
            total.answer()
        })
        .ours(|input| {
            let total = Total::default();
            jobtree::scope(|scope| ours(scope, &input.root, &total));
            total.answer()
        })
        .rayon(|input| {
            let total = Total::default();
            rayon::scope(|scope| by_rayon(scope, &input.root, &total));
            total.answer()
        })
}

fn directory(depth: usize, rng: &mut SplitMix64, directories: &mut usize) -> Vec<Entry> {
    *directories += 1;
    let files = (0..5 + rng.below(20)).map(|number| {
        let extension = ["rs", "toml", "md", "txt"][rng.below(4)];
        Entry::File {
            name: format!("file-{number}.{extension}"),
            bytes: rng.below(100_000) as u64,
        }
    });
    let mut entries: Vec<Entry> = files.collect();
    if depth > 0 {
        for _ in 0..1 + rng.below(6) {
            entries.push(Entry::Directory(directory(depth - 1, rng, directories)));
        }
    }
    entries
}

#[derive(Default)]
struct Total {
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Total {
    fn add(&self, name: &str, bytes: u64) {
        if name.ends_with(".rs") || name.ends_with(".toml") {
            self.files.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn answer(self) -> u64 {
        digest([self.files.into_inner(), self.bytes.into_inner()])
    }
}

fn sequential(entries: &[Entry], total: &Total) {
    for entry in entries {
        match entry {
            Entry::File { name, bytes } => total.add(name, *bytes),
            Entry::Directory(entries) => sequential(entries, total),
        }
    }
}

fn ours<'i>(scope: &jobtree::Scope<'i>, entries: &'i [Entry], total: &'i Total) {
    for entry in entries {
        match entry {
            Entry::File { name, bytes } => total.add(name, *bytes),
            Entry::Directory(entries) => scope.spawn(move |scope| ours(scope, entries, total)),
        }
    }
}

fn by_rayon<'i>(scope: &rayon::Scope<'i>, entries: &'i [Entry], total: &'i Total) {
    for entry in entries {
        match entry {
            Entry::File { name, bytes } => total.add(name, *bytes),
            Entry::Directory(entries) => scope.spawn(move |scope| by_rayon(scope, entries, total)),
        }
    }
}
