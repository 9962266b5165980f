//! A crawler looks for a word in a site, some pages at a time, and stops at the first page that has it: what is still on
//! its way is cancelled.
//!
//! `cargo run -p jobtree-runtime --example crawler`

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jobtree_runtime::channel::{Sender, rendezvous};
use jobtree_runtime::sync::Semaphore;
use jobtree_runtime::{BoxError, Nursery, nursery, select, sleep};

/// A page: its text, and the numbers of those that it links to.
struct Page {
    text: String,
    links: Vec<usize>,
}

/// A site of so many pages, none of which is on any network. Page 0 is the entrance.
fn site(pages: usize) -> HashMap<usize, Page> {
    let page = |number: usize| {
        let text = match number {
            700 => "Here be dragons.".to_owned(),
            _ => format!("This is page {number}."),
        };
        let links = [2 * number + 1, 2 * number + 2, number / 2];
        Page {
            text,
            links: links.into_iter().filter(|link| *link < pages).collect(),
        }
    };
    (0..pages).map(|number| (number, page(number))).collect()
}

/// One search. Everything that its jobs share.
struct Search<'a> {
    site: &'a HashMap<usize, Page>,
    word: &'a str,
    /// How many pages may be fetched at once.
    connections: Semaphore,
    seen: Mutex<HashSet<usize>>,
    fetching: AtomicUsize,
    most_at_once: AtomicUsize,
    fetched: AtomicUsize,
}

impl<'a> Search<'a> {
    fn new(site: &'a HashMap<usize, Page>, word: &'a str, connections: usize) -> Search<'a> {
        Search {
            site,
            word,
            connections: Semaphore::new(connections),
            seen: Mutex::default(),
            fetching: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
            fetched: AtomicUsize::new(0),
        }
    }

    /// The first page that has the word, if any has.
    fn run(&self) -> Result<Option<usize>, BoxError> {
        let (hit, hits) = rendezvous();
        let mut found = None;
        let outcome = nursery(|n| {
            let mut crawling = n.spawn(|| {
                // A scope of its own, so that it ends when all pages are done.
                Ok(nursery(|pages| {
                    self.visit(pages, 0, &hit);
                    Ok(())
                })?)
            });
            found = select! {
                recv(hits) -> page => page.ok(),
                join(crawling) -> done => { done?; None }
            }?;
            if found.is_some() {
                // Whatever else is on its way is of no use any more.
                n.cancel("found");
            }
            Ok(())
        });
        match outcome {
            // By us.
            Err(error) if error.is_cancelled() && found.is_some() => Ok(found),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(found),
        }
    }

    /// Has a page looked at, unless it was before, and after it all that it links to.
    fn visit<'scope>(
        &'scope self,
        n: &'scope Nursery<'scope, '_>,
        number: usize,
        hit: &'scope Sender<usize>,
    ) {
        if !self.seen.lock().unwrap().insert(number) {
            return;
        }
        n.launch(move || {
            let page = self.fetch(number)?;
            if page.text.contains(self.word) {
                hit.send(number)?;
            }
            for link in &page.links {
                self.visit(n, *link, hit);
            }
            Ok(())
        });
    }

    fn fetch(&self, number: usize) -> Result<&'a Page, BoxError> {
        let _connection = self.connections.acquire(1)?;
        let now = self.fetching.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        // The network.
        let arrived = sleep(Duration::from_micros(200));
        self.fetching.fetch_sub(1, Ordering::SeqCst);
        arrived?;
        self.fetched.fetch_add(1, Ordering::SeqCst);
        Ok(&self.site[&number])
    }
}

fn main() -> Result<(), BoxError> {
    let site = site(10_000);

    let search = Search::new(&site, "dragons", 8);
    let found = search.run()?;
    let (fetched, most) = (
        search.fetched.into_inner(),
        search.most_at_once.into_inner(),
    );
    println!("found on page {found:?}; {fetched} pages fetched, {most} at once at most");
    assert_eq!(found, Some(700));
    assert!(most <= 8, "{most} at once");
    assert!(fetched < site.len(), "the rest was cancelled");
    // Nothing goes on behind our back.
    assert_eq!(search.fetching.into_inner(), 0);

    let search = Search::new(&site, "unicorns", 64);
    assert_eq!(search.run()?, None);
    assert_eq!(search.fetched.into_inner(), site.len());
    println!("no unicorns on {} pages", site.len());
    Ok(())
}
