//! Programs under a supervisor: what they get, what is heard of them, and that nothing of them is left behind, however
//! they or their worker end.

mod support;

use std::fs;
use std::process::Command;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jobtree_process::output::Said;
use jobtree_process::{AdviceSignal, Child, Ending, Program, Supervisor};
use support::{Folder, lives, pid_in, until, watch};

fn supervisor() -> Supervisor {
    Supervisor::executable(env!("CARGO_BIN_EXE_jobtree"))
}

fn shell(script: &str) -> Program {
    Program::new(["sh", "-c", script])
}

/// Runs it to its end; with all that was heard.
fn run_under(supervisor: &Supervisor, program: &Program) -> (Ending, Vec<Said>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&heard);
    let listen = move |said| into.lock().unwrap().push(said);
    let child = Child::start(supervisor, program, listen, |_| {}).expect("it starts");
    let ending = child.wait();
    let heard = heard.lock().unwrap().clone();
    (ending, heard)
}

fn run(program: &Program) -> (Ending, Vec<Said>) {
    run_under(&supervisor(), program)
}

fn text_of(heard: &[Said]) -> String {
    let texts = heard.iter().filter_map(|said| match said {
        Said::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[test]
fn a_program_gets_its_input_and_environment_and_says_its_result() {
    let _watchdog = watch();
    let folder = Folder::new();
    let program = Program {
        cwd: Some(folder.0.clone()),
        env: [("COLOUR".to_owned(), "blue".to_owned())].into(),
        // With its newline, so that it is written whole: a line in two writes may have the other stream's in its midst.
        stdin: "{\"n\": 1}\n".into(),
        ..Program::new([
            "/bin/sh",
            "-c",
            "/bin/cat; echo $COLOUR $HOME; pwd; echo ::progress 0.5 half; echo '::result [1]'; echo oops >&2",
        ])
    };
    let (ending, heard) = run(&program);
    assert_eq!(ending.exit_code, Some(0));
    assert_eq!(ending.result.as_deref(), Some("[1]"));
    assert_eq!(ending.last_words, "oops\n");
    let told = text_of(&heard);
    let place = folder.0.canonicalize().unwrap();
    for line in ["{\"n\": 1}\n", "blue\n", place.to_str().unwrap(), "oops\n"] {
        assert!(told.contains(line), "{line:?} is not in {told:?}");
    }
    assert!(heard.contains(&Said::Progress {
        fraction: 0.5,
        message: "half".into()
    }));
}

#[test]
fn exit_codes_and_signals_are_told_apart() {
    let _watchdog = watch();
    let (ending, _) = run(&shell("exit 75"));
    assert_eq!((ending.exit_code, ending.signal), (Some(75), None));
    let (ending, _) = run(&shell("kill -9 $$"));
    assert_eq!((ending.exit_code, ending.signal), (None, Some(9)));
    let (ending, _) = run(&Program::new(["./there/is/no/such/program"]));
    assert_eq!(ending.exit_code, Some(127));
    assert!(ending.last_words.contains("no/such/program"), "{ending}");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let _watchdog = watch();
    let program = Program {
        cwd: Some("/no/such/folder".into()),
        ..shell("true")
    };
    let error = Child::start(&supervisor(), &program, |_| {}, |_| {}).expect_err("no folder");
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
    let empty = Program::new::<String>([]);
    Child::start(&supervisor(), &empty, |_| {}, |_| {}).expect_err("no program");
}

#[test]
fn limits_hold_and_niceness_is_set() {
    let _watchdog = watch();
    let mut program =
        shell("ulimit -n; ulimit -v; ulimit -t; nice; ionice 2>/dev/null || echo idle");
    program.nice = Some(7);
    program.io_idle = true;
    program.rlimits.open_files = Some(20);
    program.rlimits.memory_bytes = Some(1 << 30);
    program.rlimits.cpu_sec = Some(5);
    let (ending, heard) = run(&program);
    assert_eq!(ending.exit_code, Some(0), "{ending}");
    let here = Command::new("nice").output().expect("nice is everywhere");
    let here: i32 = String::from_utf8(here.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let expected = format!("20\n1048576\n5\n{}\nidle\n", (here + 7).min(19));
    assert_eq!(text_of(&heard), expected);
}

#[test]
fn output_beyond_the_limit_is_counted_and_holds_nobody_up() {
    let _watchdog = watch();
    let few = supervisor().log_bytes(1000);
    let (ending, heard) = run_under(&few, &shell("head -c 300000 /dev/zero | tr '\\0' x"));
    assert_eq!(text_of(&heard).len() + ending.tail.len(), 1000);
    assert_eq!(ending.left_out, 299_000);
    // Its end is kept as well as its beginning.
    let (ending, heard) = run_under(&few, &shell("seq 100000"));
    assert!(text_of(&heard).starts_with("1\n2\n"), "{heard:?}");
    assert!(ending.tail.ends_with("\n99999\n100000\n"), "{ending:?}");
    assert_eq!(ending.exit_code, Some(0));
}

#[test]
fn input_that_nobody_reads_holds_nobody_up() {
    let _watchdog = watch();
    let program = Program {
        stdin: "x".repeat(1 << 20),
        ..shell("exit 3")
    };
    assert_eq!(run(&program).0.exit_code, Some(3));
}

/// Ignores TERM, starts one that does so too in the background, and one in a session of its own.
const STUBBORN: &str = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > one; while :; do sleep 1; done' & \
    setsid sh -c 'trap \"\" TERM; echo $$ > two; while :; do sleep 1; done' & \
    echo $$ > zero; while :; do sleep 1; done";

fn family(folder: &Folder) -> [u32; 3] {
    ["zero", "one", "two"].map(|name| pid_in(&folder.join(name)))
}

#[test]
fn whoever_ignores_term_is_killed_after_the_grace_with_all_below() {
    let _watchdog = watch();
    let folder = Folder::new();
    let program = Program {
        cwd: Some(folder.0.clone()),
        grace: Duration::from_millis(50),
        ..shell(STUBBORN)
    };
    let child = Child::start(&supervisor(), &program, |_| {}, |_| {}).expect("it starts");
    let family = family(&folder);
    assert_eq!(family[0], child.pid());
    assert!(family.iter().all(|&pid| lives(pid)));
    child.stop();
    assert_eq!(child.wait().signal, Some(9));
    assert!(!family.iter().any(|&pid| lives(pid)), "{family:?}");
}

#[test]
fn whoever_heeds_term_ends_in_its_own_way() {
    let _watchdog = watch();
    let folder = Folder::new();
    let program = Program {
        cwd: Some(folder.0.clone()),
        grace: Duration::from_secs(3600),
        ..shell("trap 'echo bye; exit 4' TERM; echo $$ > zero; while :; do sleep 0.01; done")
    };
    let (said, heard) = mpsc::channel();
    let listen = move |what| said.send(what).unwrap();
    let child = Child::start(&supervisor(), &program, listen, |_| {}).expect("it starts");
    pid_in(&folder.join("zero"));
    child.stop();
    assert_eq!(child.wait().exit_code, Some(4));
    // The shell may tell that its own child was terminated, too.
    let heard: Vec<Said> = heard.try_iter().collect();
    assert!(text_of(&heard).contains("bye\n"), "{heard:?}");
}

#[test]
fn a_grace_beyond_what_a_clock_can_tell_is_one_without_end() {
    let _watchdog = watch();
    let folder = Folder::new();
    let program = Program {
        cwd: Some(folder.0.clone()),
        grace: Duration::MAX,
        // The first TERM must not be followed by another signal.
        ..shell("trap 'sleep 0.1; exit 4' TERM; echo $$ > zero; while :; do sleep 0.01; done")
    };
    let child = Child::start(&supervisor(), &program, |_| {}, |_| {}).expect("it starts");
    pid_in(&folder.join("zero"));
    child.stop();
    assert_eq!(child.wait().exit_code, Some(4));
}

#[test]
fn what_a_program_left_behind_goes_with_it() {
    let _watchdog = watch();
    let folder = Folder::new();
    let program = Program {
        cwd: Some(folder.0.clone()),
        // The last one holds standard output, whose end would never come.
        ..shell(
            "(setsid sh -c 'echo $$ > one; exec sleep 1000' &) ; until [ -s one ]; do sleep 0.01; done; exit 0",
        )
    };
    let (ending, _) = run(&program);
    assert_eq!(ending.exit_code, Some(0));
    assert!(!lives(pid_in(&folder.join("one"))));
}

#[test]
fn a_pause_stands_still_and_a_stop_wakes_it() {
    let _watchdog = watch();
    let folder = Folder::new();
    let program = Program {
        cwd: Some(folder.0.clone()),
        grace: Duration::from_secs(3600),
        // It starts nobody: a shell that waits for a child that stands still before its first instruction is not
        // shown as standing still itself.
        ..shell("trap 'exit 6' TERM; echo $$ > zero; while :; do :; done")
    };
    let child = Child::start(&supervisor(), &program, |_| {}, |_| {}).expect("it starts");
    let pid = pid_in(&folder.join("zero"));
    let stands = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    child.pause();
    until(stands);
    child.resume();
    until(|| !stands());
    child.pause();
    until(stands);
    child.stop();
    assert_eq!(child.wait().exit_code, Some(6));
}

/// Starts a shell script in a folder of its own; with a way to take what it says.
fn start(script: &str, signal: Option<AdviceSignal>) -> (Folder, Child, mpsc::Receiver<Said>) {
    let folder = Folder::new();
    let program = Program {
        cwd: Some(folder.0.clone()),
        advice_signal: signal,
        ..shell(script)
    };
    let (said, heard) = mpsc::channel();
    // A test that is over listens no more.
    let listen = move |what| drop(said.send(what));
    let child = Child::start(&supervisor(), &program, listen, |_| {}).expect("it starts");
    (folder, child, heard)
}

/// Returns when the supervisor has taken all orders before: it takes them in turn, and this one can be seen.
fn settle(child: &Child) {
    let stands = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.pid())).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    child.pause();
    until(stands);
    child.resume();
    until(|| !stands());
}

#[test]
fn advice_is_read_line_by_line_from_the_descriptor_that_is_named() {
    let _watchdog = watch();
    let script = "while read word <&$JOBTREE_ADVICE_FD; do echo \"heard $word\"; \
        [ $word != yield ] || exit 75; done";
    let (_folder, child, heard) = start(script, None);
    for word in ["slow", "checkpoint", "continue", "yield"] {
        child.advise(word);
        child.advise(word);
        let said = heard.recv().expect("it says what it heard");
        assert_eq!(said, Said::Text(format!("heard {word}\n")));
    }
    assert_eq!(child.wait().exit_code, Some(75));
    assert_eq!(heard.try_iter().count(), 0, "each change is told once");
}

#[test]
fn a_program_that_does_not_read_advice_is_not_disturbed_and_reads_the_newest_later() {
    let _watchdog = watch();
    // It starts no child before it reads, so that it can be seen to stand still.
    let script = "until [ -e go ]; do :; done; read old <&$JOBTREE_ADVICE_FD; read new <&$JOBTREE_ADVICE_FD; \
        echo \"$old $new\"; exec sleep 1000";
    let (folder, child, heard) = start(script, None);
    child.advise("slow");
    // More than a pipe holds.
    for _ in 0..5000 {
        child.advise("checkpoint");
        child.advise("yield");
    }
    child.advise("drain");
    settle(&child);
    folder.write("go", "");
    assert_eq!(heard.recv().unwrap(), Said::Text("slow drain\n".into()));
    child.stop();
    assert_eq!(child.wait().signal, Some(15));
}

#[test]
fn a_program_that_closes_its_descriptor_is_advised_in_vain() {
    let _watchdog = watch();
    let script = "exec 3<&-; until [ -e go ]; do :; done; exit 7";
    let (folder, child, _heard) = start(script, None);
    child.advise("slow");
    child.advise("yield");
    settle(&child);
    folder.write("go", "");
    assert_eq!(child.wait().exit_code, Some(7));
}

/// The program's end of its own pipe, and no descriptor of the supervisor, the launcher, or another program.
#[test]
fn of_all_descriptors_a_program_has_the_end_of_its_own_pipe_alone() {
    let _watchdog = watch();
    let here = Command::new("sh")
        .args(["-c", "echo /proc/$$/fd/*"])
        .output()
        .expect("a shell");
    let count = |text: &str| text.split_whitespace().count();
    let here = count(std::str::from_utf8(&here.stdout).unwrap());
    let script = "set -- /proc/$$/fd/*; echo $#; readlink /proc/$$/fd/$JOBTREE_ADVICE_FD; \
        cat /proc/$$/fdinfo/$JOBTREE_ADVICE_FD; exec sleep 1000";
    let children = [(); 3].map(|()| start(script, None));
    let mut pipes = Vec::new();
    for (_folder, _child, heard) in &children {
        let mut told = String::new();
        while !told.contains("mnt_id") {
            if let Said::Text(text) = heard.recv().expect("it tells") {
                told.push_str(&text);
            }
        }
        let mut lines = told.lines();
        let open: usize = lines.next().unwrap().parse().unwrap();
        assert_eq!(
            open,
            here + 1,
            "a single descriptor beside those of any shell: {told}"
        );
        pipes.push(lines.next().unwrap().to_owned());
        let flags = told.lines().find(|line| line.starts_with("flags:"));
        assert!(flags.unwrap().ends_with('0'), "it is for reading: {told}");
    }
    pipes.sort();
    pipes.dedup();
    assert_eq!(pipes.len(), 3, "each has its own");
}

/// Sent before the program has its handler, the signal would end it.
#[test]
fn a_signal_with_advice_waits_until_the_program_handles_it() {
    let _watchdog = watch();
    let script = "until [ -e go ]; do :; done; \
        trap 'read word <&$JOBTREE_ADVICE_FD; echo \"heard $word\"' USR1; while :; do :; done";
    let (folder, child, heard) = start(script, Some(AdviceSignal::Usr1));
    child.advise("slow");
    settle(&child);
    folder.write("go", "");
    assert_eq!(heard.recv().unwrap(), Said::Text("heard slow\n".into()));
    child.advise("yield");
    assert_eq!(heard.recv().unwrap(), Said::Text("heard yield\n".into()));
    child.kill();
    assert_eq!(child.wait().signal, Some(9));
}

#[test]
fn a_child_that_is_dropped_is_killed() {
    let _watchdog = watch();
    let folder = Folder::new();
    let program = Program {
        cwd: Some(folder.0.clone()),
        ..shell(STUBBORN)
    };
    let (told, ended) = mpsc::channel();
    let tell = move |ending: &Ending| told.send(ending.clone()).unwrap();
    let child = Child::start(&supervisor(), &program, |_| {}, tell).expect("it starts");
    let family = family(&folder);
    drop(child);
    assert_eq!(ended.recv().unwrap().signal, Some(9));
    assert!(!family.iter().any(|&pid| lives(pid)), "{family:?}");
}

/// A supervisor that is killed takes the program with it; its worker hears of it, and takes the group.
#[test]
fn a_supervisor_that_is_killed_leaves_nobody_of_the_group() {
    let _watchdog = watch();
    let folder = Folder::new();
    let program = Program {
        cwd: Some(folder.0.clone()),
        ..shell(
            "trap '' TERM; sh -c 'echo $$ > one; while :; do sleep 1; done' & echo $$ > zero; while :; do sleep 1; done",
        )
    };
    let child = Child::start(&supervisor(), &program, |_| {}, |_| {}).expect("it starts");
    let family = ["zero", "one"].map(|name| pid_in(&folder.join(name)));
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.pid())).unwrap();
    let parent = stat
        .rsplit_once(") ")
        .unwrap()
        .1
        .split(' ')
        .nth(1)
        .unwrap()
        .to_owned();
    let killed = Command::new("kill").args(["-9", &parent]).status().unwrap();
    assert!(killed.success());
    let ending = child.wait();
    assert_eq!((ending.exit_code, ending.signal), (None, None));
    until(|| !family.iter().any(|&pid| lives(pid)));
}

/// The work is done by a child of a child: what the program itself uses is next to nothing.
#[test]
#[cfg(target_os = "linux")]
fn what_a_program_and_all_below_it_use_is_measured() {
    let _watchdog = watch();
    let burn = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
    let (busy, _) = run(&shell(&format!("sh -c '{burn}' & wait; sleep 0.1")));
    let (idle, _) = run(&shell("sleep 0.1"));
    let cpu = |ending: &Ending| ending.used.cpu.expect("Linux tells");
    assert!(cpu(&busy) > 2 * cpu(&idle), "{busy:?} {idle:?}");
    for ending in [busy, idle] {
        let memory = ending.used.peak_memory_bytes.expect("it ran for a while");
        assert!(memory > 64 << 10, "{memory} bytes are no shell");
        assert!(ending.used.io_bytes.is_some());
    }
}
