//! `jobtree top`, once without a terminal and once in a real one.

mod support;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use support::{Beside, Daemon, watch};

#[test]
fn one_frame_needs_no_terminal() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    daemon.run(&["pause", "photos"]).exits(0);
    let id = daemon.run(&["submit", "photos", "index"]).text();
    let frame = daemon.run(&["top", "--once"]).text();
    for part in [
        "1 QUEUED",
        "local",
        "Busy, 0 to 10",
        "Running (0)",
        "Waiting (1)",
        &id[id.len() - 8..],
        "photos",
    ] {
        assert!(frame.contains(part), "{part:?} is not in\n{frame}");
    }
    let small = daemon
        .run(&["top", "--once", "--width", "60", "--height", "12"])
        .text();
    assert!(
        small.lines().all(|line| line.chars().count() <= 60),
        "{small}"
    );
    let json = daemon.run(&["top", "--json"]).exits(0).json();
    assert_eq!(json["jobs"]["QUEUED"], 1, "{json}");
    daemon.run(&["top"]).exits(2);
}

/// `script` gives it a terminal of its own.
#[test]
fn in_a_terminal_it_draws_listens_to_keys_and_leaves_the_screen_as_it_was() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    daemon.run(&["pause", "photos"]).exits(0);
    daemon.run(&["submit", "photos", "index"]).exits(0);
    let program = env!("CARGO_BIN_EXE_jobtree");
    let mut command = Command::new("script");
    command
        .args([
            "-qefc",
            &format!("stty cols 100 rows 30; {program} top --every 100ms"),
            "/dev/null",
        ])
        .env("JOBTREE_URL", &daemon.url)
        .env("JOBTREE_DATA_DIR", daemon.folder.join("data"))
        .env("HOME", &daemon.folder.0)
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut terminal = Beside::start(&mut command);
    let mut keys = terminal.0.stdin.take().unwrap();
    let mut screen = terminal.0.stdout.take().unwrap();
    let mut seen = String::new();
    let mut read_until = |part: &str| {
        let mut buffer = [0; 4096];
        while !seen.contains(part) {
            let count = screen.read(&mut buffer).expect("it draws");
            assert!(count > 0, "{part:?} did not come:\n{seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    // The other screen, and the first frame.
    read_until("\x1b[?1049h");
    // Words come one by one, each where it stands.
    read_until("Waiting");
    read_until("photos");
    // The table below, and in it the first row, turned around.
    keys.write_all(b"\t").unwrap();
    read_until("\x1b[7m");
    keys.write_all(b"jjkq").unwrap();
    read_until("\x1b[?1049l");
    drop(keys);
    assert_eq!(terminal.wait(), Some(0));
}
