//! The store of a simulation: memory that all share, and a port to it for each scheduler, on which things take time and
//! go wrong.
//!
//! What is asked through a port waits in it until the simulation says what becomes of it: it is done, it fails and has no
//! effect, or it is done and its answer is lost, with the news of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use jiff::Timestamp;
use jobtree_store::{
    Backend, Listen, Listener, Memory, MemoryImage, Query, StoreError, Tables, Work, Written,
};

use super::tables::{Forgets, KeyWriters, Setting, Timed};

/// What becomes of something that was asked of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is done.
    Done,
    /// It is not done, and its caller is told so.
    Fails,
    /// It is done, and nobody hears of it.
    DoneAndLost,
}

/// What all share.
pub(super) struct Disk {
    memory: Memory,
    /// The database's own clock, if it has one.
    wall: Mutex<Option<Timestamp>>,
    /// What the command under way wrote.
    written: Arc<Mutex<Vec<Written>>>,
    /// What a power cut leaves.
    durable: Mutex<Option<MemoryImage>>,
    forgets: Forgets,
    key_writers: KeyWriters,
    _listener: Listener,
}

/// What a command did.
#[derive(Default)]
pub(super) struct Served {
    pub(super) written: Vec<Written>,
    pub(super) settings: Vec<Setting>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    pub(super) fn new(forgets: Forgets) -> Arc<Self> {
        let memory = Memory::default();
        let written = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&written);
        let listener: Listener = Arc::new(move |news: &[Written]| {
            lock(&noted).extend(news.iter().cloned());
        });
        memory.listen(Arc::downgrade(&listener));
        Arc::new(Self {
            memory,
            wall: Mutex::new(None),
            written,
            durable: Mutex::new(None),
            forgets,
            key_writers: KeyWriters::default(),
            _listener: listener,
        })
    }

    pub(super) fn set_wall(&self, wall: Timestamp) {
        *lock(&self.wall) = Some(wall);
    }

    /// What is written up to now survives.
    pub(super) fn sync(&self) {
        *lock(&self.durable) = Some(self.memory.image());
    }

    /// The power is cut: what was not synced is gone.
    pub(super) fn cut(&self) {
        if let Some(image) = &*lock(&self.durable) {
            self.memory.restore(image);
        }
    }
}

enum Asked {
    Work(Box<dyn Work>),
    Query(Box<dyn Query>),
}

/// One scheduler's way to the store.
pub(super) struct Port {
    disk: Arc<Disk>,
    node: usize,
    asked: Mutex<VecDeque<Asked>>,
    listeners: Mutex<Vec<Weak<Listen>>>,
}

impl Port {
    pub(super) fn new(disk: &Arc<Disk>, node: usize) -> Arc<Self> {
        Arc::new(Self {
            disk: Arc::clone(disk),
            node,
            asked: Mutex::default(),
            listeners: Mutex::default(),
        })
    }

    /// How much waits.
    pub(super) fn len(&self) -> usize {
        lock(&self.asked).len()
    }

    /// Does what was asked as the so manieth, and gives what that wrote.
    pub(super) fn serve(&self, place: usize, fate: Fate) -> Served {
        let Some(asked) = lock(&self.asked).remove(place) else {
            return Served::default();
        };
        match asked {
            Asked::Query(query) if fate == Fate::Done => {
                self.disk.memory.snapshot(query);
                Served::default()
            }
            Asked::Query(query) => {
                query.refuse(failure(fate));
                Served::default()
            }
            Asked::Work(work) if fate == Fate::Fails => {
                work.finish(Err(failure(fate)));
                Served::default()
            }
            Asked::Work(work) => {
                lock(&self.disk.written).clear();
                let wall = *lock(&self.disk.wall);
                let telling = Telling {
                    work,
                    wall,
                    fate,
                    port: self,
                };
                telling.transact()
            }
        }
    }

    /// The process is gone: what it asked for and was not served is, too.
    pub(super) fn close(&self) {
        lock(&self.asked).clear();
        lock(&self.listeners).clear();
    }

    fn tell(&self, written: &[Written]) {
        for listener in lock(&self.listeners).iter().filter_map(Weak::upgrade) {
            listener(written);
        }
    }
}

fn failure(fate: Fate) -> StoreError {
    match fate {
        Fate::DoneAndLost => StoreError::Disconnected {
            why: "simulated".into(),
        },
        Fate::Done | Fate::Fails => StoreError::CommitFailed {
            why: "simulated".into(),
        },
    }
}

struct Telling<'a> {
    work: Box<dyn Work>,
    wall: Option<Timestamp>,
    fate: Fate,
    port: &'a Port,
}

impl Telling<'_> {
    fn transact(self) -> Served {
        let Self {
            work,
            wall,
            fate,
            port,
        } = self;
        let kept = Arc::new(Mutex::new(None));
        let wrapped = Wrapped {
            work: Some(work),
            wall,
            forgets: port.disk.forgets,
            node: port.node,
            key_writers: port.disk.key_writers.clone(),
            settings: Vec::new(),
            kept: Arc::clone(&kept),
        };
        port.disk.memory.transact(Box::new(wrapped));
        let mut served = Served {
            written: std::mem::take(&mut *lock(&port.disk.written)),
            settings: Vec::new(),
        };
        let Some((work, committed, settings)) = lock(&kept).take() else {
            return served;
        };
        served.settings = settings;
        if fate == Fate::DoneAndLost {
            work.finish(Err(failure(fate)));
            return served;
        }
        // As a store does: listeners first.
        port.tell(&served.written);
        work.finish(committed);
        served
    }
}

type Finished = (Box<dyn Work>, Result<(), StoreError>, Vec<Setting>);
type Kept = Arc<Mutex<Option<Finished>>>;

/// Work that is finished later, by whoever knows what becomes of it.
struct Wrapped {
    work: Option<Box<dyn Work>>,
    wall: Option<Timestamp>,
    forgets: Forgets,
    node: usize,
    key_writers: KeyWriters,
    settings: Vec<Setting>,
    kept: Kept,
}

impl Work for Wrapped {
    fn run(&mut self, tables: &mut dyn Tables) -> Result<(), StoreError> {
        let work = self.work.as_mut().expect("it is finished once");
        let mut timed = Timed {
            tables,
            wall: self.wall,
            forgets: self.forgets,
            node: self.node,
            key_writers: &self.key_writers,
            settings: &mut self.settings,
        };
        let result = work.run(&mut timed);
        if result.is_err() {
            // It is undone.
            self.settings.clear();
        }
        result
    }

    fn finish(mut self: Box<Self>, committed: Result<(), StoreError>) {
        let work = self.work.take().expect("it is finished once");
        let settings = std::mem::take(&mut self.settings);
        *lock(&self.kept) = Some((work, committed, settings));
    }
}

/// The port, as a backend.
pub(super) struct Plug(pub(super) Arc<Port>);

impl Backend for Plug {
    fn transact(&self, work: Box<dyn Work>) {
        lock(&self.0.asked).push_back(Asked::Work(work));
    }

    fn snapshot(&self, query: Box<dyn Query>) {
        lock(&self.0.asked).push_back(Asked::Query(query));
    }

    fn listen(&self, listener: Weak<Listen>) {
        lock(&self.0.listeners).push(listener);
    }

    fn stopped(&self) -> Option<StoreError> {
        None
    }
}

/// Looks at the store as it is, at once.
pub(super) struct Peek(pub(super) Arc<Disk>);

impl Backend for Peek {
    fn transact(&self, work: Box<dyn Work>) {
        self.0.memory.transact(work);
    }

    fn snapshot(&self, query: Box<dyn Query>) {
        self.0.memory.snapshot(query);
    }

    fn listen(&self, _: Weak<Listen>) {}

    fn stopped(&self) -> Option<StoreError> {
        None
    }
}
