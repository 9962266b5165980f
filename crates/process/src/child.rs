//! The worker's side: starts a program under a supervisor, reads what it says, and says what it shall do.

use std::fmt;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::ending::{Ending, Tail};
use crate::output::{Reader, Said};
use crate::program::Program;
use crate::supervise::SUPERVISE;
use crate::talk::{News, Order, hear, say};
use crate::used::Used;

/// The executable that knows the hidden subcommands.
#[derive(Clone, Debug)]
pub struct Supervisor {
    executable: PathBuf,
    log_bytes: u64,
}

impl Supervisor {
    /// This very executable.
    ///
    /// # Errors
    /// If the system does not tell where it is.
    pub fn this_executable() -> io::Result<Self> {
        Ok(Self::executable(std::env::current_exe()?))
    }

    /// An executable whose subcommands [`SUPERVISE`] and [`LAUNCH`](crate::LAUNCH) call
    /// [`supervise`](crate::supervise()) and [`launch`](crate::launch()).
    pub fn executable(executable: impl Into<PathBuf>) -> Self {
        Supervisor {
            executable: executable.into(),
            log_bytes: 1 << 20,
        }
    }

    /// How many bytes of text are kept: three quarters or more of them are passed on as they come, and the last ones are given
    /// with the [`Ending`]. The rest is read and counted. A mebibyte if nothing is said.
    #[must_use]
    pub fn log_bytes(mut self, most: u64) -> Self {
        self.log_bytes = most;
        self
    }
}

/// Why a program did not start.
#[derive(Debug)]
pub enum StartError {
    /// It has no name.
    Empty,
    /// There is no supervisor for it.
    Supervisor(io::Error),
    /// The supervisor says why.
    Refused(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is no program to run: give its name"),
            Self::Supervisor(error) => write!(f, "no supervisor could be started: {error}"),
            Self::Refused(why) => write!(f, "the program could not be started: {why}"),
        }
    }
}

impl std::error::Error for StartError {}

/// A program that runs. Dropped before it has ended, it is killed.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    orders: Mutex<UnixStream>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    ending: Mutex<Option<Ending>>,
    ended: Condvar,
}

/// What the readers of both streams gather.
struct Gathered {
    passed: u64,
    /// Bytes that came after what was passed on.
    rest: u64,
    tail: Tail,
    last_words: Tail,
    result: Option<String>,
    snooze: Option<Duration>,
}

/// The largest end of a long output that is kept beside its beginning.
const LARGEST_TAIL: u64 = 1 << 20;

impl Gathered {
    fn new(tail: u64) -> Self {
        Self {
            passed: 0,
            rest: 0,
            tail: Tail::new(usize::try_from(tail).unwrap_or(0)),
            last_words: Tail::new(Tail::LAST_WORDS),
            result: None,
            snooze: None,
        }
    }
}

type Listener = dyn Fn(Said) + Send + Sync;

/// A stream of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// Is called with every byte of a stream, in order, by the thread that reads it: while it does not return, the program waits
/// once its pipe is full.
pub type Tap = Arc<dyn Fn(Stream, &[u8]) + Send + Sync>;

impl Child {
    /// Starts it. `listen` is called with what it says, from threads of its own, text up to the limit; `ended` when
    /// nothing of it is left and all that it said was passed on.
    ///
    /// # Errors
    /// If there is no supervisor. A program that is not there ends with 127 as in a shell, since only whoever becomes it
    /// can tell.
    pub fn start(
        supervisor: &Supervisor,
        program: &Program,
        listen: impl Fn(Said) + Send + Sync + 'static,
        ended: impl FnOnce(&Ending) + Send + 'static,
    ) -> Result<Child, StartError> {
        Self::start_tapped(supervisor, program, None, listen, ended)
    }

    /// Starts it as [`start`](Self::start) does. `tap` gets all of its output, as it is.
    ///
    /// # Errors
    /// If there is no supervisor.
    pub fn start_tapped(
        supervisor: &Supervisor,
        program: &Program,
        tap: Option<Tap>,
        listen: impl Fn(Said) + Send + Sync + 'static,
        ended: impl FnOnce(&Ending) + Send + 'static,
    ) -> Result<Child, StartError> {
        if program.argv.first().is_none_or(String::is_empty) {
            return Err(StartError::Empty);
        }
        let (mut ours, theirs) = UnixStream::pair().map_err(StartError::Supervisor)?;
        let mut process = Command::new(&supervisor.executable)
            .arg(SUPERVISE)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .env_remove("JOBTREE_TOKEN")
            .spawn()
            .map_err(StartError::Supervisor)?;
        let streams = (process.stdout.take(), process.stderr.take());
        let news = match begin(&mut ours, program) {
            Ok(news) => news,
            Err(error) => {
                // It has ended, or ends by the end of the socket.
                drop(ours);
                let _ = process.wait();
                return Err(error);
            }
        };
        let (pid, mut heard) = news;

        let tail = (supervisor.log_bytes / 4).min(LARGEST_TAIL);
        let gathered = Arc::new(Mutex::new(Gathered::new(tail)));
        let listen: Arc<Listener> = Arc::new(listen);
        let most = supervisor.log_bytes - tail;
        let readers = [
            streams
                .0
                .map(|from| read(from, Stream::Stdout, tap.clone(), most, &gathered, &listen)),
            streams
                .1
                .map(|from| read(from, Stream::Stderr, tap, most, &gathered, &listen)),
        ];
        let shared = Arc::<Shared>::default();
        let told = Arc::clone(&shared);
        thread::spawn(move || {
            let (exit_code, signal, used) = match hear(&mut heard) {
                Ok(Some(News::Ended {
                    exit_code,
                    signal,
                    used,
                })) => (exit_code, signal, used),
                _ => {
                    kill_orphans(pid);
                    (None, None, Used::default())
                }
            };
            let _ = process.wait();
            for reader in readers.into_iter().flatten() {
                let _ = reader.join();
            }
            let gathered = std::mem::replace(&mut *lock(&gathered), Gathered::new(0));
            let tail = gathered.tail.into_text();
            let ending = Ending {
                exit_code,
                signal,
                last_words: gathered.last_words.into_text(),
                result: gathered.result,
                snooze: gathered.snooze,
                left_out: gathered.rest - tail.len() as u64,
                tail,
                used,
            };
            ended(&ending);
            *lock(&told.ending) = Some(ending);
            told.ended.notify_all();
        });
        Ok(Child {
            pid,
            orders: Mutex::new(ours),
            shared,
        })
    }

    /// Its process, which leads its process group.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Tells it to end (TERM), and kills it and all below when its grace is over.
    pub fn stop(&self) {
        self.order(&Order::Stop);
    }

    /// Kills it and all below.
    pub fn kill(&self) {
        self.order(&Order::Kill);
    }

    /// Makes it stand still.
    pub fn pause(&self) {
        self.order(&Order::Pause);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.order(&Order::Resume);
    }

    /// Tells it a word of advice, if that is another one than before. The program may read it on the descriptor that
    /// [`ADVICE_FD`](crate::ADVICE_FD) names. A program that does not read is not
    /// disturbed; when it reads again, it gets the newest.
    pub fn advise(&self, word: &str) {
        self.order(&Order::Advise(word.to_owned()));
    }

    /// If this cannot be said, the supervisor is gone, and so is what it watched over.
    fn order(&self, order: &Order) {
        let _ = say(&mut *lock(&self.orders), order);
    }

    /// Waits until nothing of it is left.
    pub fn wait(&self) -> Ending {
        loop {
            if let Some(ending) = self.wait_for(Duration::from_secs(3600)) {
                return ending;
            }
        }
    }

    /// Waits until nothing of it is left, or the time is over.
    pub fn wait_for(&self, limit: Duration) -> Option<Ending> {
        let ending = lock(&self.shared.ending);
        let (ending, _) = self
            .shared
            .ended
            .wait_timeout_while(ending, limit, |ending| ending.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        ending.clone()
    }
}

/// The socket has a second handle in the thread that listens, so dropping this one would not end it.
impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Says what to start, and hears what came of it.
fn begin(
    ours: &mut UnixStream,
    program: &Program,
) -> Result<(u32, BufReader<UnixStream>), StartError> {
    let mut heard = BufReader::new(ours.try_clone().map_err(StartError::Supervisor)?);
    say(ours, &Order::Start(Box::new(program.clone()))).map_err(StartError::Supervisor)?;
    match hear(&mut heard).map_err(StartError::Supervisor)? {
        Some(News::Started(pid)) => Ok((pid, heard)),
        Some(News::Refused(why)) => Err(StartError::Refused(why)),
        Some(News::Ended { .. }) | None => Err(StartError::Supervisor(io::Error::other(
            "it ended before it had started anything",
        ))),
    }
}

/// The supervisor was killed. The program went with it; those in its process group are found by its number, which
/// nobody else has as long as one of them is there.
fn kill_orphans(pid: u32) {
    if let Some(group) = Pid::from_raw(pid.cast_signed()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

fn read(
    mut from: impl Read + Send + 'static,
    stream: Stream,
    tap: Option<Tap>,
    most: u64,
    gathered: &Arc<Mutex<Gathered>>,
    listen: &Arc<Listener>,
) -> JoinHandle<()> {
    let (gathered, listen) = (Arc::clone(gathered), Arc::clone(listen));
    let directives = stream == Stream::Stdout;
    thread::spawn(move || {
        let mut take = |said: Said| {
            let passed = lock(&gathered).take(said, !directives, most);
            if let Some(said) = passed {
                listen(said);
            }
        };
        let mut reader = Reader::new(directives);
        let mut buffer = vec![0; 16 << 10];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    if let Some(tap) = &tap {
                        tap(stream, &buffer[..count]);
                    }
                    reader.feed(&buffer[..count], &mut take);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        reader.finish(&mut take);
    })
}

impl Gathered {
    /// What is to be passed on of it.
    fn take(&mut self, said: Said, is_error: bool, most: u64) -> Option<Said> {
        match said {
            Said::Text(mut text) => {
                if is_error {
                    self.last_words.push(&text);
                }
                let room = usize::try_from(most - self.passed).unwrap_or(usize::MAX);
                // Nothing is passed on behind a gap.
                let room = if self.rest > 0 { 0 } else { room };
                let fits = text.floor_char_boundary(room.min(text.len()));
                self.rest += (text.len() - fits) as u64;
                self.tail.push(&text[fits..]);
                text.truncate(fits);
                self.passed += fits as u64;
                (fits > 0).then_some(Said::Text(text))
            }
            Said::Result(result) => {
                self.result = Some(result);
                None
            }
            Said::Snooze(delay) => {
                self.snooze = Some(delay);
                None
            }
            progress @ Said::Progress { .. } => Some(progress),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
