//! The bodies of the real jobs: each does what it is told, one thing after the other, and reports.
//!
//! A body that waits to be told something parks its stack, and is not disturbed by a cancellation: it is up
//! to the program what a cancelled body does.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jobtree_pool::OnceLatch;
use jobtree_runtime::{
    BoxError, CancelReason, Job, JobError, JobHandle, JobLocal, Nursery, Outcome, Runtime,
    checkpoint, nursery, shield, supervisor, with_local, with_timeout,
};

use crate::ledger::{Kind, Ledger, Token};
use crate::program::{Ending, How, ScopeKind, Why};
use crate::told::{Id, Layered, PANIC_TEXT, Planned};

/// A limit that never comes.
const FAR_AWAY: Duration = Duration::from_secs(3600);

static INHERITED: JobLocal<Token> = JobLocal::new();

/// What a body is told to do.
pub enum Command {
    Detach {
        strand: Strand,
    },
    Spawn {
        strand: Strand,
        how: How,
        then_cancel: Option<Why>,
    },
    Open {
        scope: Id,
        kind: ScopeKind,
    },
    Join {
        target: Id,
        handle: JobHandle<Value>,
        or_return: bool,
    },
    Check,
    Return(Ending),
    Cancel {
        job: Job,
        why: Why,
    },
}

/// What a body tells when it has done it. Leaving a body is not told: its job's end shows it.
pub enum Answer {
    Began(Job),
    Detached(Id, JobHandle<Value>),
    Spawned(Id, Option<JobHandle<Value>>),
    Opened(Id, Job),
    Closed(Id, Result<Id, JobError>),
    Joined(Id, Result<Id, JobError>),
    Cancelled(bool),
    Unharmed,
}

/// The value of a job: who made it.
pub struct Value {
    pub made_by: Id,
    _token: Token,
}

/// A reason as the program calls it.
pub fn reason(why: Why) -> CancelReason {
    match why {
        Why::Said(number) => CancelReason::from(number.to_string()),
        Why::Unsaid | Why::Timeout | Why::Shutdown => why.cause().into(),
    }
}

/// Where a body finds its next command.
#[derive(Default)]
pub struct Mailbox {
    letter: Mutex<Option<Letter>>,
    has_come: OnceLatch,
}

struct Letter {
    command: Command,
    starting_line: Arc<StartingLine>,
    next: Arc<Mailbox>,
}

impl Mailbox {
    /// Tells the body what to do; the next command goes to the mailbox that is returned.
    pub fn send(&self, command: Command, starting_line: Arc<StartingLine>) -> Arc<Mailbox> {
        let next = Arc::new(Mailbox::default());
        let letter = Letter {
            command,
            starting_line,
            next: Arc::clone(&next),
        };
        *self.letter.lock().unwrap_or_else(PoisonError::into_inner) = Some(letter);
        self.has_come.set();
        next
    }
}

/// Lets those who act at the same time begin together, if they are there soon enough: on one worker they never are.
pub struct StartingLine {
    missing: AtomicUsize,
}

/// Looks at the line before one goes without the others.
const PATIENCE: usize = 3000;

impl StartingLine {
    pub fn new(starters: usize) -> Arc<StartingLine> {
        Arc::new(StartingLine {
            missing: AtomicUsize::new(starters),
        })
    }

    pub fn go(&self) {
        self.missing.fetch_sub(1, Ordering::AcqRel);
        for _ in 0..PATIENCE {
            if self.missing.load(Ordering::Acquire) == 0 {
                return;
            }
            std::hint::spin_loop();
        }
    }
}

/// A body's own part of the conversation.
pub struct Strand {
    job: Id,
    mailbox: RefCell<Arc<Mailbox>>,
    answers: Sender<(Id, Answer)>,
    ledger: Arc<Ledger>,
    runtime: Runtime,
    _token: Token,
}

impl Strand {
    pub fn new(
        job: Id,
        answers: Sender<(Id, Answer)>,
        ledger: Arc<Ledger>,
        runtime: Runtime,
    ) -> (Strand, Arc<Mailbox>) {
        let mailbox = Arc::new(Mailbox::default());
        let strand = Strand {
            job,
            mailbox: RefCell::new(Arc::clone(&mailbox)),
            answers,
            _token: ledger.token(Kind::Body),
            ledger,
            runtime,
        };
        (strand, mailbox)
    }

    fn answer(&self, answer: Answer) {
        // Nobody listens any more after a failure.
        let _ = self.answers.send((self.job, answer));
    }

    fn next_command(&self) -> Command {
        let mailbox = Arc::clone(&self.mailbox.borrow());
        mailbox.has_come.wait();
        let letter = mailbox
            .letter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .expect("a letter has come");
        *self.mailbox.borrow_mut() = letter.next;
        letter.starting_line.go();
        letter.command
    }

    fn value(&self, made_by: Id) -> Value {
        Value {
            made_by,
            _token: self.ledger.token(Kind::Value),
        }
    }
}

/// Starts a job under the root.
pub fn detach(strand: Strand, runtime: &Runtime) -> JobHandle<Value> {
    runtime.spawn(move || run(&strand, None))
}

/// The body of a job; `home` is the nursery that it was spawned in.
fn run<'scope>(
    strand: &Strand,
    home: Option<&'scope Nursery<'scope, '_>>,
) -> Result<Value, BoxError> {
    strand.answer(Answer::Began(current()));
    obey(strand, strand.job, home)
}

fn current() -> Job {
    Job::current().expect("a body runs in its job")
}

/// Obeys until it is told to leave the scope `scope`. Jobs are spawned in `home`.
fn obey<'scope>(
    strand: &Strand,
    scope: Id,
    home: Option<&'scope Nursery<'scope, '_>>,
) -> Result<Value, BoxError> {
    let mut held: Option<JobError> = None;
    loop {
        match strand.next_command() {
            Command::Detach { strand: child } => {
                let id = child.job;
                let handle = detach(child, &strand.runtime);
                strand.answer(Answer::Detached(id, handle));
            }
            Command::Spawn {
                strand: child,
                how,
                then_cancel,
            } => {
                let home = home.expect("only spawns in a nursery");
                spawn(strand, home, child, how, then_cancel);
            }
            Command::Open { scope: inner, kind } => {
                let outcome = open(strand, inner, kind, home);
                let summary = match outcome {
                    Ok(value) => Ok(value.made_by),
                    Err(error) => {
                        held = Some(error.clone());
                        Err(error)
                    }
                };
                strand.answer(Answer::Closed(inner, summary));
            }
            Command::Join {
                target,
                handle,
                or_return,
            } => match handle.join() {
                Ok(value) => strand.answer(Answer::Joined(target, Ok(value.made_by))),
                Err(error) => {
                    strand.answer(Answer::Joined(target, Err(error.clone())));
                    if or_return {
                        return Err(error.into());
                    }
                    held = Some(error);
                }
            },
            Command::Check => {
                checkpoint()?;
                strand.answer(Answer::Unharmed);
            }
            Command::Cancel { job, why } => {
                let was_first = job.cancel(reason(why));
                strand.answer(Answer::Cancelled(was_first));
            }
            Command::Return(ending) => return leave(strand, scope, ending, held),
        }
    }
}

fn leave(
    strand: &Strand,
    scope: Id,
    ending: Ending,
    held: Option<JobError>,
) -> Result<Value, BoxError> {
    match (ending, held) {
        (Ending::Value, _) => Ok(strand.value(scope)),
        (Ending::Error(number), _) => Err(Planned(number).into()),
        (Ending::Panic(number), _) => panic!("{PANIC_TEXT}{number}"),
        (Ending::Held { layered: true }, Some(error)) => Err(Layered(error).into()),
        (Ending::Held { layered: false }, Some(error)) => Err(error.into()),
        (Ending::Held { .. }, None) => unreachable!("only passes on what it holds"),
    }
}

fn spawn<'scope>(
    strand: &Strand,
    home: &'scope Nursery<'scope, '_>,
    child: Strand,
    how: How,
    then_cancel: Option<Why>,
) {
    let id = child.job;
    let options = home.job_options().label(format!("job {id}"));
    let handle = match how {
        How::Plain => Some(home.spawn(move || run(&child, Some(home)))),
        How::Supervisor => Some(options.supervisor().spawn(move || run(&child, Some(home)))),
        How::Limited => Some(
            options
                .timeout(FAR_AWAY)
                .spawn(move || run(&child, Some(home))),
        ),
        How::Launched => {
            options.launch(move || run(&child, Some(home)).map(drop));
            None
        }
    };
    if let (Some(why), Some(handle)) = (then_cancel, &handle) {
        handle.cancel(reason(why));
    }
    strand.answer(Answer::Spawned(id, handle));
}

fn open<'scope>(
    strand: &Strand,
    scope: Id,
    kind: ScopeKind,
    home: Option<&'scope Nursery<'scope, '_>>,
) -> Outcome<Value> {
    let opened = || strand.answer(Answer::Opened(scope, current()));
    let inside = || {
        opened();
        obey(strand, scope, home)
    };
    match kind {
        ScopeKind::Nursery => nursery(|n| {
            opened();
            obey(strand, scope, Some(n))
        }),
        ScopeKind::Supervisor => supervisor(|n| {
            opened();
            obey(strand, scope, Some(n))
        }),
        ScopeKind::Shield => shield(FAR_AWAY, inside),
        ScopeKind::Limit => with_timeout(FAR_AWAY, inside),
        ScopeKind::Local => with_local(&INHERITED, strand.ledger.token(Kind::Local), inside),
    }
}
