//! The processes, seen from outside: started, disturbed, and waited for.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jobtree_protocol::{JobId, LeaseId, Missed, ScheduleId, ScheduleSpec, SubmitRequest};
use jobtree_queue::LeaseEnd;
use jobtree_scheduler::Scheduler;
use jobtree_store::{PostgresOptions, ScheduleRecord, Stamp, Store};

use crate::child::{ADDON, DATABASE, LEDGER, NODE, options};
use crate::postgres::Server;
use crate::support::Folder;

/// Longer than anything takes, however busy the machine is.
const LONG: Duration = Duration::from_secs(100);
/// How often the schedule has fired when a fleet is finished, at least.
pub const FEWEST_FIRINGS: usize = 5;

/// A line of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Submitted(JobId),
    Start(JobId, LeaseId),
    Done(JobId, LeaseId),
    Refused(JobId, LeaseId, String),
}

impl Entry {
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let job = || words[1].parse().expect("a job");
        let lease = || words[2].parse().expect("a lease");
        match words[0] {
            "submitted" => Self::Submitted(job()),
            "start" => Self::Start(job(), lease()),
            "done" => Self::Done(job(), lease()),
            "refused" => Self::Refused(job(), lease(), words[3].to_owned()),
            other => panic!("{other:?} stands in a ledger"),
        }
    }

    fn refused(&self) -> Option<(JobId, LeaseId)> {
        match self {
            Self::Refused(job, lease, _) => Some((*job, *lease)),
            _ => None,
        }
    }
}

struct Process {
    child: Child,
    alive: bool,
}

pub struct Fleet {
    server: Server,
    place: String,
    folder: Folder,
    processes: Vec<Process>,
    /// The test's own eyes: a store that no scheduler works on.
    pub store: Store,
}

impl Fleet {
    pub fn start(count: usize) -> Self {
        let server = Server::start();
        let place = server.new_place();
        let folder = Folder::new("processes");
        let store = Store::connect(&PostgresOptions::new(&place)).expect("the server is there");
        let mut fleet = Self {
            server,
            place,
            folder,
            processes: Vec::new(),
            store,
        };
        for index in 0..count {
            let child = Command::new(std::env::current_exe().expect("this program"))
                .args(["child", "--exact", "--nocapture", "--test-threads=1"])
                .env(DATABASE, &fleet.place)
                .env(NODE, format!("node{index}"))
                .env(LEDGER, fleet.ledger_file(index))
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .expect("this program starts again");
            fleet.processes.push(Process { child, alive: true });
        }
        fleet
    }

    fn ledger_file(&self, index: usize) -> std::path::PathBuf {
        self.folder.file(&format!("ledger{index}"))
    }

    /// What a process has told so far.
    pub fn ledger(&self, index: usize) -> Vec<Entry> {
        let text = std::fs::read_to_string(self.ledger_file(index)).unwrap_or_default();
        // What comes after the last end of a line is not told yet.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(Entry::parse).collect()
    }

    pub fn everybody(&self) -> Vec<usize> {
        let all = self.processes.iter().enumerate();
        all.filter(|(_, process)| process.alive)
            .map(|(index, _)| index)
            .collect()
    }

    pub fn all_but(&self, one: usize) -> Vec<usize> {
        let mut others = self.everybody();
        others.retain(|index| *index != one);
        others
    }

    /// Waits for something that has to come about.
    pub fn wait_until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            for (index, process) in self.processes.iter_mut().enumerate() {
                if process.alive
                    && let Some(status) = process.child.try_wait().expect("it can be asked")
                {
                    panic!("process {index} ended with {status} before {what}");
                }
            }
            assert!(
                begun.elapsed() < LONG,
                "{what}: not after {LONG:?}. {}",
                self.state()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn state(&self) -> String {
        let mut text = String::new();
        for index in 0..self.processes.len() {
            let ledger = self.ledger(index);
            let last: Vec<_> = ledger.iter().rev().take(5).collect();
            let _ = writeln!(text, "process {index}: {} entries, {last:?}", ledger.len());
        }
        let counts = self.store.counts(true).wait();
        let leases = self.store.live_leases().wait();
        let _ = writeln!(text, "jobs: {counts:?}; live: {leases:?}");
        text
    }

    /// Each of these does more jobs from now on.
    pub fn goes_on(&mut self, when: &str, these: &[usize]) {
        let done = |fleet: &Self, index: &usize| {
            let ledger = fleet.ledger(*index);
            let done = ledger.iter().filter(|it| matches!(it, Entry::Done(..)));
            done.count()
        };
        let before: HashMap<usize, usize> = these.iter().map(|it| (*it, done(self, it))).collect();
        self.wait_until(&format!("work goes on {when}"), |fleet| {
            before
                .iter()
                .all(|(it, count)| done(fleet, it) >= count + 8)
        });
    }

    pub fn signal(&self, index: usize, signal: &str) {
        let pid = self.processes[index].child.id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status();
        assert!(status.expect("there is a kill").success());
    }

    /// Stops a process at a moment in which it runs something; gives what it runs.
    pub fn stop_while_it_works(&mut self, index: usize) -> Vec<(JobId, LeaseId)> {
        for _ in 0..1000 {
            self.signal(index, "-STOP");
            let held = self.running(index);
            if !held.is_empty() {
                return held;
            }
            self.signal(index, "-CONT");
            std::thread::sleep(Duration::from_millis(7));
        }
        panic!("process {index} never works. {}", self.state());
    }

    /// Stops a process at a moment in which it holds locks that are taken one after the other by all.
    pub fn stop_with_locks(&mut self, index: usize) {
        for _ in 0..1000 {
            self.signal(index, "-STOP");
            // Those of the others are idle for a moment at most.
            std::thread::sleep(Duration::from_millis(120));
            let held = self.sql(
                "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted \
                 AND state = 'idle in transaction' AND state_change < clock_timestamp() - interval '100 ms'",
            );
            if held != "0" {
                return;
            }
            self.signal(index, "-CONT");
            std::thread::sleep(Duration::from_millis(3));
        }
        panic!("process {index} never holds locks. {}", self.state());
    }

    pub fn kill_while_it_works(&mut self, index: usize) -> Vec<(JobId, LeaseId)> {
        let held = self.stop_while_it_works(index);
        let process = &mut self.processes[index];
        process.alive = false;
        process.child.kill().expect("it lives");
        process.child.wait().expect("it is dead");
        held
    }

    /// What a process that stands still has begun under leases that hold, and has not asked to end.
    fn running(&self, index: usize) -> Vec<(JobId, LeaseId)> {
        let mut held: Vec<(JobId, LeaseId)> = Vec::new();
        for entry in self.ledger(index) {
            match entry {
                Entry::Submitted(_) => {}
                Entry::Start(job, lease) => held.push((job, lease)),
                Entry::Done(job, lease) | Entry::Refused(job, lease, _) => {
                    held.retain(|it| *it != (job, lease));
                }
            }
        }
        let live = self.store.live_leases().wait().expect("the leases");
        let begun = Instant::now();
        // Something may be on its way to the database: that it stays so for a while is what is looked for.
        while begun.elapsed() < Duration::from_millis(100) {
            let now = self.store.live_leases().wait().expect("the leases");
            held.retain(|(_, lease)| {
                let of = |leases: &[jobtree_queue::LeaseRecord]| {
                    leases
                        .iter()
                        .find(|it| it.id == *lease)
                        .map(|it| it.revision)
                };
                of(&now).is_some() && of(&now) == of(&live)
            });
        }
        held
    }

    pub fn have_expired(&self, held: &[(JobId, LeaseId)]) -> bool {
        held.iter().all(|(_, lease)| {
            let lease = *lease;
            let record = self.store.read(move |tables| tables.lease(lease)).wait();
            let end = record.expect("it can be read").expect("it is kept").end;
            assert!(
                end.is_none_or(|end| end == LeaseEnd::Expired),
                "{lease} of a process that stands still: {end:?}"
            );
            end.is_some()
        })
    }

    /// What it held is another's, or done, and it was told so.
    pub fn are_refused(&self, index: usize, held: &[(JobId, LeaseId)]) -> bool {
        let ledger = self.ledger(index);
        held.iter().all(|held| {
            let done = Entry::Done(held.0, held.1);
            assert!(!ledger.contains(&done), "{done:?} after its lease expired");
            let mut refusals = ledger.iter().filter_map(Entry::refused);
            refusals.any(|refused| refused == *held)
        })
    }

    pub fn restart_database(&mut self) {
        self.server.crash();
        self.server.run();
        // The test's own connections have to be made anew, too.
        self.wait_until("the database is back", |fleet| {
            fleet.store.live_leases().wait().is_ok() && fleet.put_note().is_ok()
        });
    }

    fn put_note(&self) -> Result<(), jobtree_store::StoreError> {
        let name = "test.awake".to_owned();
        self.store.put_note(stamp(), name, None).wait()
    }

    /// A schedule that fires each second, and leaves none out.
    pub fn schedule_each_second(&self) -> ScheduleId {
        let record = ScheduleRecord {
            id: ScheduleId::generate(),
            revision: 1,
            spec: ScheduleSpec {
                name: "ticks".to_owned(),
                cron: "* * * * * *".to_owned(),
                time_zone: "UTC".to_owned(),
                jitter_sec: 0,
                missed: Missed::All,
                overlap: jobtree_protocol::Overlap::default(),
                paused: false,
                job: SubmitRequest::new(ADDON, "tick", 5),
            },
            next_at: Some(Timestamp::from_second(Timestamp::now().as_second()).expect("a second")),
            last_at: None,
            last_job: None,
        };
        let written = self.store.put_schedule(stamp(), record).wait();
        written.expect("it is new").id
    }

    /// Lets all of it come to an end. Gives the ledgers.
    pub fn finish(&mut self, schedule: ScheduleId) -> Vec<Vec<Entry>> {
        self.wait_until("the schedule has fired often enough", |fleet| {
            let fired = fleet.sql("SELECT count(*) FROM scheduler_firings");
            fired.trim().parse::<usize>().expect("a number") >= FEWEST_FIRINGS
        });
        for process in self.processes.iter_mut().filter(|it| it.alive) {
            let stdin = process.child.stdin.as_mut().expect("it is piped");
            stdin.write_all(b"enough\n").expect("it listens");
        }
        // Through a scheduler, as a user does. It gets no jobs: its machine was never measured.
        let scheduler = Scheduler::start(self.store.clone(), options("elsewhere"));
        let paused = scheduler.pause_schedule(schedule, true).wait();
        assert!(paused.expect("it is there").spec.paused);
        self.wait_until("all jobs have ended", |fleet| {
            let counts = fleet.store.counts(false).wait().expect("they are counted");
            counts.is_empty()
        });
        scheduler.stop();
        for process in self.processes.iter_mut().filter(|it| it.alive) {
            drop(process.child.stdin.take());
            let status = process.child.wait().expect("it ends");
            assert!(status.success(), "{status}");
            process.alive = false;
        }
        (0..self.processes.len())
            .map(|it| self.ledger(it))
            .collect()
    }

    pub fn sql(&self, sql: &str) -> String {
        let path = self.place.split("search_path=").nth(1).expect("a place");
        let path = path.trim_end_matches('\'');
        self.server.sql(&format!("SET search_path = {path}; {sql}"))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // Those that have ended have; a stopped one dies of this as well.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

fn stamp() -> Stamp {
    Stamp {
        now: jobtree_scheduler::Clock::system().now(),
        roll: 0,
        rules: std::sync::Arc::default(),
    }
}
