//! The checks, one function each. None changes anything that stays.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jobtree_client::{ClientError, Probe};
use jobtree_process::cgroup::Cgroup;
use jobtree_protocol::ErrorCode;
use jobtree_scheduler::sampler::Sampler;
use jobtree_server::ServeError;
use jobtree_store::{Inspected, PostgresOptions, SqliteOptions, Store};

use super::{Check, Finding};
use crate::commands::serve::not_started;
use crate::context::Context;
use crate::when::length;

/// A sync that takes longer than this is felt by whoever submits.
const SLOW_SYNC: Duration = Duration::from_millis(50);
/// Between two readings of the machine's counters.
const READINGS: Duration = Duration::from_millis(300);
/// Clocks that differ by more than this make deadlines and times in lists confusing.
const SKEW: Duration = Duration::from_secs(5);

pub fn all(context: &Context) -> Vec<Check> {
    let data = context.settings.data_dir();
    let mut checks = vec![
        settings(context),
        folder(&data),
        token_file(context, &data.join("admin.token")),
    ];
    let scratch = Scratch::new(&data);
    checks.push(sqlite(&scratch));
    checks.push(sync(&scratch));
    checks.push(pressure());
    checks.push(sampler(&data));
    checks.push(groups());
    checks.push(ionice());
    checks.push(clock());
    checks.extend(daemon(context));
    checks
}

fn settings(context: &Context) -> Check {
    let file = context.settings.file.display();
    match context.settings.file.exists() {
        true => Check::well("settings", format!("{file} is read")),
        false => Check::well(
            "settings",
            format!("there is no {file}; variables and defaults hold"),
        ),
    }
}

fn folder(data: &Path) -> Check {
    let name = "data directory";
    match fs::metadata(data) {
        Ok(about) if about.is_dir() => {
            let mode = about.permissions().mode() & 0o777;
            match mode & 0o022 {
                0 => Check::well(name, format!("{} is there", data.display())),
                _ => Check::broken(
                    name,
                    format!(
                        "{} can be written by others (mode {mode:o})",
                        data.display()
                    ),
                    format!("chmod 700 {}", data.display()),
                ),
            }
        }
        Ok(_) => Check::broken(
            name,
            format!("{} is not a folder", data.display()),
            "name another with --data-dir or JOBTREE_DATA_DIR",
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => Check::well(
            name,
            format!("{} is made at the first start", data.display()),
        ),
        Err(error) => Check::broken(name, format!("{}: {error}", data.display()), OWNER),
    }
}

fn token_file(context: &Context, path: &Path) -> Check {
    let name = "token file";
    // To look at it needs rights on its directory, to read it rights on itself.
    let looked = fs::metadata(path).and_then(|about| File::open(path).map(|_| about));
    match looked {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Check::well(name, "is made at the first start")
        }
        Err(error) => {
            let told = format!("{} cannot be read: {error}", path.display());
            // A caller with a token of its own does not need this one.
            match context.settings.token() {
                Ok(Some(_)) => Check::warning(name, told, "another token is used"),
                _ => Check::broken(
                    name,
                    told,
                    "use the account that owns it, or set JOBTREE_TOKEN",
                ),
            }
        }
        Ok(about) => match about.permissions().mode() & 0o777 {
            0o600 => Check::well(name, format!("{} is its owner's alone", path.display())),
            mode => Check::broken(
                name,
                format!("{} has mode {mode:o}", path.display()),
                format!(
                    "others may have read it: chmod 600 {}, and make a new token",
                    path.display()
                ),
            ),
        },
    }
}

/// A folder on the disk where the data lies, for as long as somebody looks.
struct Scratch {
    folder: Option<PathBuf>,
    /// The directory in which nothing can be written, and the reason.
    missing: String,
}

impl Scratch {
    /// In the data directory, or in the nearest folder above that is there.
    fn new(data: &Path) -> Self {
        let base = data.ancestors().find(|folder| folder.is_dir());
        let base = base.unwrap_or(data);
        let folder = base.join(format!(".jobtree-doctor-{}", std::process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => Scratch {
                folder: Some(folder),
                missing: String::new(),
            },
            Err(error) => Scratch {
                folder: None,
                missing: format!("nothing can be written in {}: {error}", base.display()),
            },
        }
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(name))
    }

    /// The check that needs it.
    fn lacking(&self, name: &'static str) -> Check {
        Check::broken(name, self.missing.as_str(), WRITABLE)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

const WRITABLE: &str = "make it writable, or name another directory with --data-dir";
const OWNER: &str = "use the account that owns it, or name another directory with --data-dir";

fn sqlite(scratch: &Scratch) -> Check {
    let name = "SQLite";
    let Some(path) = scratch.file("check.db") else {
        return scratch.lacking(name);
    };
    match Store::open(&SqliteOptions::new(path)) {
        Ok(_) => Check::well(
            name,
            "is new enough, and its write-ahead log works on this disk",
        ),
        Err(error) => Check::broken(
            name,
            error.to_string(),
            "use another disk, or --store postgres://…",
        ),
    }
}

/// The median of a few.
fn sync(scratch: &Scratch) -> Check {
    let name = "fsync";
    let measured = || -> Option<Duration> {
        let mut file = File::create(scratch.file("check.sync")?).ok()?;
        let mut times = Vec::new();
        for _ in 0..15 {
            file.write_all(&[0; 4096]).ok()?;
            let begun = Instant::now();
            file.sync_data().ok()?;
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        Some(times[times.len() / 2])
    };
    match measured() {
        None if scratch.folder.is_none() => scratch.lacking(name),
        None => Check::broken(name, "a file could not be written", WRITABLE),
        Some(took) => {
            let told = format!("{:.2} ms", took.as_secs_f64() * 1000.0);
            match took <= SLOW_SYNC {
                true => Check::well(name, told),
                false => Check::warning(
                    name,
                    told,
                    "every submission waits for one: use a faster disk",
                ),
            }
        }
    }
}

fn pressure() -> Check {
    match fs::read_to_string("/proc/pressure/cpu") {
        Ok(_) => Check::well("pressure", "the kernel tells what is short (PSI)"),
        Err(_) => Check::warning(
            "pressure",
            "the kernel does not tell what is short (PSI)",
            "load averages are used instead; a kernel started with psi=1 tells",
        ),
    }
}

fn sampler(data: &Path) -> Check {
    let name = "measuring";
    let mut sampler = Sampler::new(data);
    let begun = Instant::now();
    // It tells what happened between two readings; the first of them has nothing to tell.
    let _ = sampler.sample(begun.elapsed());
    std::thread::sleep(READINGS);
    if let Err(error) = sampler.sample(begun.elapsed()) {
        return Check::broken(
            name,
            error.to_string(),
            "nothing is admitted without measurements",
        );
    }
    let missing: Vec<String> = sampler
        .missing()
        .iter()
        .map(|what| format!("{} ({})", what.signal, what.why))
        .collect();
    match missing.is_empty() {
        true => Check::well(name, "all signals are there"),
        false => Check::warning(
            name,
            format!("not to be had: {}", missing.join(", ")),
            "the others are used",
        ),
    }
}

fn groups() -> Check {
    let name = "control groups";
    match Cgroup::create(&format!("jobtree-doctor-{}", std::process::id()), 20) {
        Ok(group) => {
            let _ = fs::remove_dir(group.folder());
            Check::well(name, "commands get a weight, and can be frozen")
        }
        Err(why) => Check::warning(name, why, "everything else works without"),
    }
}

fn ionice() -> Check {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join("ionice").exists())
    });
    match found {
        true => Check::well("ionice", "is here"),
        false => Check::warning(
            "ionice",
            "is not here",
            "`run --io-idle` has no effect; install util-linux",
        ),
    }
}

fn clock() -> Check {
    // No machine is older than this program.
    let earliest = Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::MIN);
    let now = Timestamp::now();
    match now > earliest {
        true => Check::well("clock", format!("it is {}", crate::when::shown(now))),
        false => Check::broken(
            "clock",
            format!("it is said to be {now}"),
            "set the clock: schedules and deadlines go by it",
        ),
    }
}

fn daemon(context: &Context) -> Vec<Check> {
    let name = "daemon";
    let client = match context.client() {
        Ok(client) => client,
        Err(error) => {
            let told = error.to_string();
            let told = told.strip_prefix("error: ").unwrap_or(&told);
            let told = told.split("\nhint: ").next().unwrap_or(told);
            let advice = error
                .advice()
                .unwrap_or("see `jobtree config show --origin`");
            let asked = Check::broken(name, format!("cannot be asked: {told}"), advice);
            return [asked].into_iter().chain(store(context)).collect();
        }
    };
    let url = client.url();
    match client.ready() {
        Err(ClientError::Unreachable { .. }) => {
            return vec![
                Check::warning(
                    name,
                    format!("none answers at {url}"),
                    "start one with `jobtree serve`",
                ),
                port(context),
            ]
            .into_iter()
            .chain(store(context))
            .collect();
        }
        Err(ClientError::Untrusted { source, .. }) => {
            return vec![Check::broken(
                name,
                format!("what answers at {url} is not to be trusted ({source})"),
                "name the certificates that its own is signed by with --ca-file, or check the address",
            )];
        }
        Err(error) => {
            return vec![Check::broken(
                name,
                error.to_string(),
                "is it a jobtree daemon?",
            )];
        }
        Ok(Probe::Unwell(why)) => return vec![Check::broken(name, why, "see its standard error")],
        Ok(Probe::Well) => {}
    }
    let mut checks = vec![Check::well(name, format!("{url} is ready"))];
    match client.status() {
        Ok(status) => {
            checks.push(Check::well("token", "is taken"));
            let skew = Timestamp::now().duration_since(status.at).unsigned_abs();
            checks.push(match skew <= SKEW {
                true => Check::well("clocks", "this one and the daemon's agree"),
                false => Check::warning(
                    "clocks",
                    format!("the daemon's differs by {}", length(skew)),
                    "let both follow a time server",
                ),
            });
            for node in status.nodes.iter().filter(|node| node.silent) {
                let told = format!("{} has not been heard of for a while", node.node_id);
                checks.push(Check::warning(
                    "machines",
                    told,
                    "start its daemon, or leave it: it is forgotten after a day",
                ));
            }
            let measuring = status.nodes.iter().filter(|node| !node.silent);
            for node in measuring.filter(|node| node.stale) {
                let told = format!("{} has no fresh measurements", node.node_id);
                checks.push(Check::broken(
                    "load",
                    told,
                    "nothing is admitted there until it has",
                ));
            }
        }
        Err(error) if error.code() == Some(ErrorCode::Unauthorized) => checks.push(Check::broken(
            "token",
            "is missing or wrong",
            "set JOBTREE_TOKEN, or --token-file to the daemon's admin.token",
        )),
        // One that may not read is a token all the same.
        Err(error) => checks.push(Check::warning(
            "token",
            error.to_string(),
            "it may do other things",
        )),
    }
    checks
}

/// Looks at the store that a daemon of this machine would open: why none runs may be told by that. None for one in memory.
fn store(context: &Context) -> Option<Check> {
    let name = "store";
    let (place, looked) = match context.settings.get("store") {
        None | Some("file") => {
            let path = context.settings.data_dir().join("jobs.db");
            let looked = Store::inspect(&path);
            let place = path.display().to_string();
            (
                place,
                looked.map_err(|error| ServeError::OpenFile { path, error }),
            )
        }
        Some("memory") => return None,
        Some(url) => {
            let looked = Store::inspect_postgres(&PostgresOptions::new(url));
            // Not its address, which may have a password.
            ("the database".to_owned(), looked.map_err(ServeError::Open))
        }
    };
    Some(match looked {
        Ok(Inspected::Missing) => {
            Check::well(name, format!("{place} gets its tables at the first start"))
        }
        Ok(Inspected::Sound {
            version,
            newest,
            whole,
        }) => {
            let read = match whole {
                true => "can be read",
                false => "can be opened (it is too large to read all of it)",
            };
            let version = match version < newest {
                true => format!("; the daemon brings it from version {version} to {newest}"),
                false => String::new(),
            };
            Check::well(name, format!("{place} {read}{version}"))
        }
        Err(error) => {
            // Some errors say themselves what to do.
            let advice = not_started(&error).advice().map(str::to_owned);
            Check {
                finding: Finding::Broken,
                advice,
                ..Check::well(name, error.to_string())
            }
        }
    })
}

fn port(context: &Context) -> Check {
    let listen = context.settings.value("listen");
    let bound = listen.parse::<SocketAddr>().map(TcpListener::bind);
    match bound {
        Ok(Ok(_)) => Check::well("address", format!("{listen} is free")),
        Ok(Err(error)) => Check::broken(
            "address",
            format!("{listen}: {error}"),
            "name another with --listen",
        ),
        Err(_) => Check::broken(
            "address",
            format!("{listen:?} is none"),
            "write it like 127.0.0.1:7717",
        ),
    }
}
