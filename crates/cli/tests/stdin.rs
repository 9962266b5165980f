//! Standard input that is piped into `jobtree run`.

mod support;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;

use support::{ALWAYS, Beside, Daemon, until, watch};

const TEN_MB: usize = 10 << 20;

fn with_runner() -> Daemon {
    Daemon::with(&["--store", "memory", "--policy", ALWAYS, "--runner"])
}

/// `jobtree run` with these arguments and a pipe for its standard input.
fn run(daemon: &Daemon, arguments: &[&str]) -> Beside {
    let mut command: Command = daemon.command();
    command
        .args(["run", "-q"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    Beside::start(&mut command)
}

/// Bytes that are not text and do not repeat soon.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..count).map(next).collect()
}

fn output(running: &mut Beside) -> Vec<u8> {
    let mut read = Vec::new();
    let mut stdout = running.0.stdout.take().unwrap();
    stdout.read_to_end(&mut read).unwrap();
    read
}

fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().unwrap() << 10
}

#[test]
fn ten_megabytes_are_passed_whole_and_the_daemon_holds_little_of_them() {
    let _watchdog = watch();
    let daemon = with_runner();
    daemon.run(&["run", "-q", "--", "seq", "1000"]).exits(0);
    let before = peak_memory(daemon.pid());
    let sent = noise(TEN_MB);
    let mut running = run(&daemon, &["--", "cat"]);
    let mut stdin = running.0.stdin.take().unwrap();
    let expected = sent.clone();
    let writer = thread::spawn(move || stdin.write_all(&sent));
    let read = output(&mut running);
    assert!(read == expected, "{} bytes came back", read.len());
    assert_eq!(running.wait(), Some(0));
    writer.join().unwrap().unwrap();
    let more = peak_memory(daemon.pid()) - before;
    assert!(more < 20 << 20, "{more} bytes more than before");
}

#[test]
fn a_file_an_empty_pipe_and_nothing_at_all() {
    let _watchdog = watch();
    let daemon = with_runner();
    let file = daemon.folder.write("list", "one\ntwo\n");
    let read = |arguments: &[&str], from: Stdio| {
        let mut command = daemon.command();
        command.args(["run", "-q"]).args(arguments).stdin(from);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let open = || Stdio::from(std::fs::File::open(&file).unwrap());
    assert_eq!(read(&["--", "cat"], open()), "one\ntwo\n");
    // As `ssh -n`: what stands behind it in a loop keeps its list.
    assert_eq!(read(&["--no-stdin", "--", "cat"], open()), "");
    assert_eq!(read(&["-n", "--", "cat"], open()), "");
    assert_eq!(read(&["--", "cat"], Stdio::null()), "");
    let mut empty = run(&daemon, &["--", "cat"]);
    drop(empty.0.stdin.take());
    assert_eq!((output(&mut empty), empty.wait()), (Vec::new(), Some(0)));
}

#[test]
fn a_command_that_does_not_read_ends_as_it_likes() {
    let _watchdog = watch();
    let daemon = with_runner();
    let mut running = run(&daemon, &["--", "sh", "-c", "exit 3"]);
    let mut stdin = running.0.stdin.take().unwrap();
    // Whoever writes finds out when `jobtree run` has ended.
    let writer = thread::spawn(move || stdin.write_all(&noise(TEN_MB)));
    assert_eq!(running.wait(), Some(3));
    assert!(writer.join().unwrap().is_err());
    // A part of it is enough for some.
    let mut running = run(&daemon, &["--", "head", "-c", "5"]);
    let mut stdin = running.0.stdin.take().unwrap();
    let writer = thread::spawn(move || stdin.write_all(&vec![b'x'; TEN_MB]));
    assert_eq!(output(&mut running), b"xxxxx");
    assert_eq!(running.wait(), Some(0));
    drop(writer.join());
}

/// What a run has read is gone, so another run would begin in the middle: the job fails instead.
#[test]
fn a_command_that_has_read_input_is_not_run_again() {
    let _watchdog = watch();
    let mut daemon = Daemon::with(&["--policy", ALWAYS, "--runner"]);
    let script = "echo run >> runs; read line; echo $line >> runs; sleep 1000";
    let mut running = run(&daemon, &["--", "sh", "-c", script]);
    let mut stdin = running.0.stdin.take().unwrap();
    stdin.write_all(b"first\nsecond\n").unwrap();
    let runs = daemon.folder.join("runs");
    let text = || std::fs::read_to_string(&runs).unwrap_or_default();
    until(|| text() == "run\nfirst\n");
    daemon.ends_and_returns("KILL");
    assert_eq!(running.wait(), Some(10));
    assert_eq!(text(), "run\nfirst\n");
    let job = daemon.job("last");
    let error = job["last_error"].as_str().unwrap();
    assert!(error.contains("standard input"), "{error}");
    drop(stdin);
}
