//! `jobtree top` and `jobtree run` in terminals of several sizes, and without one.

mod support;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use support::screen::Screen;
use support::{ALWAYS, Beside, Daemon, Load, until, watch};

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
        "Failed (0)",
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

/// One line that changes, and not one for each reason; it makes way for the output.
#[test]
fn run_shows_why_it_waits_in_one_line() {
    let _watchdog = watch();
    let daemon = Daemon::with(&["--store", "memory", "--policy", ALWAYS, "--runner"]);
    daemon.run(&["pause", "jobtree"]).exits(0);
    let program = env!("CARGO_BIN_EXE_jobtree");
    let line = format!("{program} run -- echo here it is; cat");
    let screen = Screen::open(&daemon, 80, 24, &line);
    let waiting = |text: &str| {
        text.lines()
            .filter(|line| line.contains("waiting: "))
            .count()
    };
    let text = screen.shows(&["waiting: ", "paused", "echo here it is"]);
    assert_eq!(waiting(&text), 1, "{text}");
    daemon.push(Load::Panic);
    until(|| daemon.run(&["status"]).text().contains("PANIC"));
    daemon.run(&["resume", "jobtree"]).exits(0);
    let mut text = String::new();
    until(|| {
        text = screen.text();
        !text.contains("paused") && text.contains("waiting: ")
    });
    assert_eq!(waiting(&text), 1, "{text}");
    daemon.push(Load::Quiet);
    let text = screen.shows(&["\nhere it is\n"]);
    assert_eq!(waiting(&text), 0, "{text}");
}

/// Every key, in windows of three sizes.
#[test]
fn keys_open_cancel_retry_pause_and_filter_in_windows_of_any_size() {
    let _watchdog = watch();
    for (width, height, end) in [(80, 24, "q"), (120, 40, "Escape"), (60, 12, "C-c")] {
        with_every_key(width, height, end);
    }
}

fn with_every_key(width: u16, height: u16, end_by: &str) {
    let daemon = Daemon::always();
    let submit = |addon: &str, kind: &str| daemon.run(&["submit", addon, kind]).text();
    let work = |kind: &str, script: &str| {
        let mut command = daemon.command();
        command.args(["work", "-q", "--addon", "videos", "--type", kind, "--"]);
        Beside::start(command.args(["sh", "-c", script]))
    };
    let _cuts = work("cut", "echo cutting; sleep 1000");
    let failing = work("scale", "echo no disk >&2; exit 3");
    daemon.run(&["pause", "photos"]).exits(0);
    let failed = submit("videos", "scale");
    daemon.run(&["wait", &failed]).exits(3);
    drop(failing);
    let running = submit("videos", "cut");
    until(|| daemon.job(&running)["state"] == "RUNNING");
    let waiting = [submit("photos", "index"), submit("photos", "index")];
    let end = |id: &str| id[28..].to_owned();

    let program = env!("CARGO_BIN_EXE_jobtree");
    let code = daemon.folder.join("code");
    let line = format!("{program} top --every 100ms; echo $? > {}", code.display());
    let screen = Screen::open(&daemon, width, height, &line);
    let tables = ["Running (1)", "Waiting (2)", "Failed (1)"];
    // What is on the screen may be a part of a frame: all of it is waited for.
    screen.shows(&tables);
    screen.shows(&[
        "JOB",
        "ADDON",
        "TYPE",
        "COST",
        "FOR",
        "AGO",
        "WHAT",
        "WHY",
        "Enter open",
        "no disk",
        "The addon",
        "1 RUNNING",
        "local",
        &end(&running),
        &end(&waiting[0]),
        &end(&failed),
    ]);
    screen.press(&["?"]);
    screen.shows(&["Keys", "Enter  open", "q      quit"]);
    screen.press(&["x"]);
    screen.press(&["h"]);
    screen.shows(&["Keys"]);
    screen.press(&["Escape"]);
    screen.lacks("Keys");
    screen.shows(&tables);

    // The second job that waits: why it does, and back.
    screen.press(&["Tab", "Down", "Up", "j", "k", "j", "Enter"]);
    screen.shows(&[&format!("Job {}", waiting[1]), "Why", "paused"]);
    screen.press(&["Escape"]);
    screen.shows(&tables);
    // The one that runs, with what it printed; in a small window behind some keys.
    screen.press(&["Left", "Enter"]);
    screen.shows(&[&format!("Job {running}"), "RUNNING"]);
    screen.press(&["Enter"]);
    screen.shows(&tables);
    screen.press(&["Right", "BTab", "Enter"]);
    screen.shows(&[&format!("Job {running}"), "RUNNING"]);
    screen.press(&["BSpace"]);
    screen.shows(&tables);
    screen.press(&["Enter"]);
    screen.shows(&[&format!("Job {running}"), "RUNNING"]);
    screen.press(&["NPage", "j", "k", "j", "Down", "Down"]);
    screen.shows(&["Log", "cutting"]);
    screen.press(&["PPage", "Up", "q"]);
    screen.shows(&tables);

    screen.press(&["/"]);
    screen.press(&["-l", "addon:photosx"]);
    screen.press(&["BSpace", "Enter"]);
    screen.shows(&[
        "filter addon:photos",
        "Running (0)",
        "Waiting (2)",
        "Failed (0)",
    ]);
    // One that makes no sense is told, and what was seen stays.
    screen.press(&["/"]);
    screen.press(&["-l", " colour:red"]);
    screen.press(&["Enter"]);
    screen.shows(&["no filter \"colour\""]);
    screen.press(&["/"]);
    screen.press(&["BSpace"; 24]);
    screen.press(&["Enter"]);
    screen.shows(&tables);

    screen.press(&["c"]);
    screen.shows(&["? y or n"]);
    screen.press(&["n"]);
    screen.shows(&["nothing was done"]);
    let is_waiting = |id: &str| daemon.job(id)["state"] == "QUEUED";
    assert!(is_waiting(&waiting[0]) && is_waiting(&waiting[1]));
    // The cursor is where the filter left it: on the first that waits.
    screen.press(&["c"]);
    let asked = screen.shows(&["? y or n"]);
    let chosen = waiting
        .iter()
        .find(|id| asked.contains(&format!("cancel {}?", end(id))));
    let chosen = chosen.unwrap_or_else(|| panic!("no waiting job is asked for:\n{asked}"));
    screen.press(&["y"]);
    screen.shows(&["is CANCELED", "Waiting (1)"]);
    assert_eq!(daemon.job(chosen)["state"], "CANCELED");
    assert_eq!(daemon.job(chosen)["last_error"], "cancelled in jobtree top");

    screen.press(&["p"]);
    screen.shows(&["resumed photos"]);
    screen.press(&["p"]);
    screen.shows(&["paused photos"]);
    screen.press(&["Tab", "r"]);
    screen.shows(&["Failed (0)"]);
    // It may be reserved for its worker again, which has gone a moment ago.
    let state = &daemon.job(&failed)["state"];
    assert!(state == "QUEUED" || state == "DISPATCHING", "{state}");

    // A filter that is being typed is given up, and the one before stays.
    screen.press(&["/"]);
    screen.press(&["-l", "nothing"]);
    // Else it might be looked for below before it is drawn.
    screen.shows(&["filter: nothing"]);
    screen.press(&["Escape"]);
    // A key that comes with Escape is another key.
    screen.lacks("filter: nothing");
    screen.shows(&["Running (1)", "Waiting (2)"]);
    screen.press(&["c"]);
    screen.shows(&["? y or n"]);
    screen.press(&["Y"]);
    // Nothing is left in the table of failures, so the cursor is on what runs.
    screen.shows(&["is asked to stop"]);
    until(|| daemon.job(&running)["state"] == "CANCELED");

    screen.press(&[end_by]);
    until(|| std::fs::read_to_string(&code).is_ok_and(|text| text.ends_with('\n')));
    assert_eq!(std::fs::read_to_string(&code).unwrap(), "0\n");
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
    // The first row, turned around.
    read_until("\x1b[7m");
    keys.write_all(b"jjkq").unwrap();
    read_until("\x1b[?1049l");
    drop(keys);
    assert_eq!(terminal.wait(), Some(0));
}
