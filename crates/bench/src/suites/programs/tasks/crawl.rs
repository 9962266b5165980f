//! A crawler of a site that lies in memory: a job for each page, at most eight of them at the same time. A page takes a turn to
//! arrive, and a little work to read.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use jobtree::{Nursery, yield_now};
use tokio_util::task::TaskTracker;

use crate::suites::programs::inputs::{Graph, SMALL_JOB, graph, work};
use crate::suites::programs::program::{Program, Scale};

const CONNECTIONS: usize = 8;

pub struct Input {
    links: Arc<Graph>,
}

pub fn program(scale: Scale) -> Program<Input> {
    let pages = scale.pick(2000, 50);
    let links = Arc::new(graph(pages, 3));
    Program::new("page", pages, Input { links })
        .sequential(sequential)
        .our_jobs(ours)
        .tokio(by_tokio)
}

fn read(page: u32) -> u64 {
    work(page.into(), SMALL_JOB)
}

fn sequential(input: &mut Input) -> u64 {
    let mut seen = HashSet::from([0]);
    let mut open = vec![0];
    let mut sum = 0_u64;
    while let Some(page) = open.pop() {
        sum = sum.wrapping_add(read(page));
        for link in &input.links[page as usize] {
            if seen.insert(*link) {
                open.push(*link);
            }
        }
    }
    sum
}

struct OurCrawl<'i> {
    links: &'i Graph,
    connections: jobtree::sync::Semaphore,
    seen: Mutex<HashSet<u32>>,
    sum: AtomicU64,
}

impl OurCrawl<'_> {
    fn visit<'scope>(&'scope self, n: &'scope Nursery<'scope, '_>, page: u32) {
        if !self.seen.lock().expect("nobody panics").insert(page) {
            return;
        }
        n.launch(move || {
            let connection = self.connections.acquire(1)?;
            yield_now();
            self.sum.fetch_add(read(page), Ordering::Relaxed);
            drop(connection);
            for link in &self.links[page as usize] {
                self.visit(n, *link);
            }
            Ok(())
        });
    }
}

fn ours(runtime: &jobtree::Runtime, input: &mut Input) -> u64 {
    let crawl = OurCrawl {
        links: &input.links,
        connections: jobtree::sync::Semaphore::new(CONNECTIONS),
        seen: Mutex::default(),
        sum: AtomicU64::new(0),
    };
    let all = runtime.nursery(|n| {
        crawl.visit(n, 0);
        Ok(())
    });
    all.expect("no job fails");
    crawl.sum.into_inner()
}

struct TokioCrawl {
    links: Arc<Graph>,
    connections: tokio::sync::Semaphore,
    seen: Mutex<HashSet<u32>>,
    sum: AtomicU64,
    pages: TaskTracker,
}

impl TokioCrawl {
    fn visit(self: &Arc<Self>, page: u32) {
        if !self.seen.lock().expect("nobody panics").insert(page) {
            return;
        }
        let this = Arc::clone(self);
        self.pages.spawn(async move {
            let connection = this.connections.acquire().await;
            tokio::task::yield_now().await;
            this.sum.fetch_add(read(page), Ordering::Relaxed);
            drop(connection);
            for link in &this.links[page as usize] {
                this.visit(*link);
            }
        });
    }
}

fn by_tokio(runtime: &tokio::runtime::Runtime, input: &mut Input) -> u64 {
    let crawl = Arc::new(TokioCrawl {
        links: Arc::clone(&input.links),
        connections: tokio::sync::Semaphore::new(CONNECTIONS),
        seen: Mutex::default(),
        sum: AtomicU64::new(0),
        pages: TaskTracker::new(),
    });
    runtime.block_on(async {
        crawl.visit(0);
        crawl.pages.close();
        crawl.pages.wait().await;
    });
    crawl.sum.load(Ordering::Relaxed)
}
