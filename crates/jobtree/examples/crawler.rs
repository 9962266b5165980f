//! A crawler looks for a word in a site, some pages at a time, and stops at the first page that has it: what is still on
//! its way is cancelled. The site is a server on this machine, with real sockets.
//!
//! A job that reads a socket blocks its thread, so the fetches run on a [`Dispatcher`], which has threads for that. All else, the waits
//! for a free connection among it, parks stacks on the pool's workers.
//!
//! `cargo run -p jobtree --example crawler`

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use jobtree::channel::{Sender, rendezvous};
use jobtree::sync::Semaphore;
use jobtree::{BoxError, Dispatcher, Nursery, Outcome, nursery, select};

/// The pages of the site. Page 0 is the entrance.
const PAGES: usize = 300;

/// No server takes longer than that for a page.
const PATIENCE: Duration = Duration::from_secs(10);

/// One search. Everything that its jobs share.
struct Search<'a> {
    server: SocketAddr,
    word: &'a str,
    dispatcher: Dispatcher,
    /// How many pages may be fetched at once.
    connections: Semaphore,
    seen: Mutex<HashSet<usize>>,
    fetching: AtomicUsize,
    most_at_once: AtomicUsize,
    fetched: AtomicUsize,
}

impl<'a> Search<'a> {
    fn new(server: SocketAddr, word: &'a str, connections: usize) -> Search<'a> {
        Search {
            server,
            word,
            dispatcher: Dispatcher::io(),
            connections: Semaphore::new(connections),
            seen: Mutex::default(),
            fetching: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
            fetched: AtomicUsize::new(0),
        }
    }

    /// The first page that has the word, if any has.
    fn run(&self) -> Outcome<Option<usize>> {
        let (hit, hits) = rendezvous();
        nursery(|n| {
            let mut crawling = n.spawn(|| {
                // A scope of its own, so that it ends when all pages are done.
                Ok(nursery(|pages| {
                    self.visit(pages, 0, &hit);
                    Ok(())
                })?)
            });
            let found = select! {
                recv(hits) -> page => page.ok(),
                join(crawling) -> done => { done?; None }
            }?;
            // Whatever else is on its way is of no use any more.
            n.finish(found)
        })
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
            if page.contains(self.word) {
                hit.send(number)?;
            }
            for link in page.lines().filter_map(|line| line.strip_prefix("link ")) {
                self.visit(n, link.parse()?, hit);
            }
            Ok(())
        });
    }

    fn fetch(&self, number: usize) -> Result<String, BoxError> {
        let _connection = self.connections.acquire(1)?;
        let now = self.fetching.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        let page = self.dispatcher.run(|| Ok(get(self.server, number)?));
        self.fetching.fetch_sub(1, Ordering::SeqCst);
        let page = page?;
        self.fetched.fetch_add(1, Ordering::SeqCst);
        Ok(page)
    }
}

/// Gets a page over a connection of its own. Blocks.
fn get(server: SocketAddr, number: usize) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "GET {number}")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

/// A server on this machine, with a thread for each connection; it ends with the program.
fn start_server() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that has gone is no concern of the server's.
            thread::spawn(move || drop(serve(stream)));
        }
    });
    Ok(address)
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut request = String::new();
    BufReader::new(&stream).read_line(&mut request)?;
    let number = request.trim_end().strip_prefix("GET ");
    let number: usize = number.and_then(|n| n.parse().ok()).unwrap_or_default();
    match number {
        70 => writeln!(stream, "Here be dragons.")?,
        _ => writeln!(stream, "This is page {number}.")?,
    }
    let links = [2 * number + 1, 2 * number + 2, number / 2];
    for link in links.into_iter().filter(|link| *link < PAGES) {
        writeln!(stream, "link {link}")?;
    }
    Ok(())
}

fn main() -> Result<(), BoxError> {
    let server = start_server()?;

    let search = Search::new(server, "dragons", 8);
    let found = search.run()?;
    let (fetched, most) = (
        search.fetched.into_inner(),
        search.most_at_once.into_inner(),
    );
    println!("found on page {found:?}; {fetched} pages fetched, {most} at once at most");
    assert_eq!(found, Some(70));
    assert!(most <= 8, "{most} at once");
    // Nothing goes on behind our back.
    assert_eq!(search.fetching.into_inner(), 0);

    let search = Search::new(server, "unicorns", 32);
    assert_eq!(search.run()?, None);
    assert_eq!(search.fetched.into_inner(), PAGES);
    println!("no unicorns on {PAGES} pages");
    Ok(())
}
