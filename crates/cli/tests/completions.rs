//! What shells complete: jobs, addons, types and states as the daemon knows them, and enumerations. Each shell is the real one.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use support::screen::Screen;
use support::{Daemon, Ran, watch};

/// A shell with the environment of a user of this daemon.
fn shell(daemon: &Daemon, name: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_jobtree"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let environment = daemon.command();
    let environment = environment
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    let mut shell = Command::new(name);
    shell
        .env_clear()
        .envs(environment)
        .env("PATH", path)
        .env("TERM", "dumb")
        .current_dir(&daemon.folder.0)
        .stdin(Stdio::null());
    shell
}

/// What a shell must offer for a line that ends where the cursor is: exactly these values.
fn lines<'a>(id: &'a str) -> Vec<(String, Vec<&'a str>)> {
    let end = &id[28..];
    let line = |line: &str, values: &[&'a str]| (line.to_owned(), values.to_vec());
    vec![
        line("jobtree show ", &[end, "last"]),
        line(&format!("jobtree show {}", &end[..6]), &[end]),
        line(&format!("jobtree cancel {}", &id[..30]), &[id]),
        line("jobtree edit la", &["last"]),
        line("jobtree submit ph", &["photos"]),
        line("jobtree submit photos ", &["index"]),
        line("jobtree work --addon ", &["photos"]),
        line("jobtree ls state:qu", &["state:queued"]),
        line("jobtree submit --priority h", &["high"]),
        line(
            "jobtree submit --on-dependency-failure ",
            &["cancel", "run"],
        ),
        line(
            "jobtree clean --older-than 1d --state ",
            &["canceled", "done", "failed"],
        ),
        line("jobtree schedule show ", &["nightly"]),
        line("jobtree schedule run-", &["run-now"]),
        line("jobtree redri", &["redrive"]),
    ]
}

/// A daemon that has a job and a schedule to offer.
fn prepared() -> (Daemon, String) {
    let daemon = Daemon::start();
    daemon.run(&["pause", "photos"]).exits(0);
    let id = daemon.run(&["submit", "photos", "index"]).text();
    daemon
        .run(&["schedule", "add", "nightly", "0 3 1 1 *", "photos", "index"])
        .exits(0);
    (daemon, id)
}

/// Without flags, which are offered beside values, and without what a shell says about each.
fn values(text: &str) -> Vec<String> {
    let words = text.lines().filter_map(|line| line.split('\t').next());
    let mut words: Vec<String> = words
        .map(|word| word.trim().to_owned())
        .filter(|word| !word.is_empty() && !word.starts_with('-'))
        .collect();
    words.sort();
    words.dedup();
    words
}

#[test]
fn fish_completes_what_the_daemon_knows() {
    let _watchdog = watch();
    let (daemon, id) = prepared();
    let script = daemon.run(&["completions", "fish"]).text();
    let script = daemon.folder.write("completions.fish", &script);
    for (line, expected) in lines(&id) {
        let mut fish = shell(&daemon, "fish");
        fish.args([
            "--no-config",
            "-c",
            "source $argv[1]; complete -C $argv[2]",
            &script,
            &line,
        ]);
        let output = fish
            .output()
            .expect("fish is there: scripts/test installs it on Debian");
        let mut expected: Vec<String> = expected.iter().map(|value| (*value).to_owned()).collect();
        expected.sort();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(values(&text), expected, "{line}\n{text}");
    }
}

/// zsh lists what it would offer; `compadd` is told to print it instead.
#[test]
fn zsh_completes_what_the_daemon_knows() {
    let _watchdog = watch();
    let (daemon, id) = prepared();
    let script = daemon.run(&["completions", "zsh"]).text();
    let script = daemon.folder.write("completions.zsh", &script);
    // The functions that the script calls belong to zsh's line editor, and work in a completion alone: these print their arguments.
    let ask = r#"
        function compdef { }
        function compadd { while (( $# )); do [[ $1 == -- ]] && { shift; break }; shift; done; print -rl -- "$@" }
        function _describe { local name=${argv[-1]}; print -rl -- "${(@P)name}" }
        function _values { }
        function _message { }
        source $1
        words=("${(@s: :)2}"); CURRENT=$#words; PREFIX=$words[-1]; curcontext=
        _clap_dynamic_completer_jobtree
    "#;
    for (line, expected) in lines(&id) {
        let mut zsh = shell(&daemon, "zsh");
        zsh.args(["-f", "-c", ask, "zsh", &script, &line]);
        let output = zsh
            .output()
            .expect("zsh is there: scripts/test installs it on Debian");
        let mut expected: Vec<String> = expected.iter().map(|value| (*value).to_owned()).collect();
        expected.sort();
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        // What is behind a colon that is not escaped is the description.
        let text: Vec<String> = text
            .lines()
            .map(|line| line.replace("\\:", "\u{1}"))
            .map(|line| {
                line.split(':')
                    .next()
                    .unwrap_or_default()
                    .replace('\u{1}', ":")
            })
            .collect();
        assert_eq!(values(&text.join("\n")), expected, "{line}\n{output:?}");
    }
}

#[test]
fn bash_completes_what_the_daemon_knows() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    daemon.run(&["pause", "photos"]).exits(0);
    let id = daemon.run(&["submit", "photos", "index"]).text();
    let script = daemon.run(&["completions", "bash"]).text();
    let script = daemon.folder.write("completions.bash", &script);
    // What bash does when Tab is pressed behind the last word.
    let complete = |words: &[&str]| {
        let ask = r#"source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9
            _clap_complete_jobtree jobtree "${COMP_WORDS[COMP_CWORD]}"; printf '%s\n' "${COMPREPLY[@]}""#;
        let mut bash = shell(&daemon, "bash");
        bash.args(["-c", ask, "bash", &script]).args(words);
        let output = bash.output().expect("bash is there");
        let text = String::from_utf8(output.stdout).unwrap();
        // Flags are offered, too.
        let values = text.lines().filter(|word| !word.starts_with("--"));
        values.map(str::to_owned).collect::<Vec<_>>()
    };
    let end = &id[28..];
    assert_eq!(complete(&["jobtree", "show", ""]), [end, "last"]);
    assert_eq!(complete(&["jobtree", "show", &end[..6]]), [end]);
    assert_eq!(complete(&["jobtree", "show", &id[..30]]), [id.as_str()]);
    assert_eq!(complete(&["jobtree", "cancel", "la"]), ["last"]);
    assert_eq!(complete(&["jobtree", "submit", "ph"]), ["photos"]);
    assert_eq!(complete(&["jobtree", "submit", "photos", ""]), ["index"]);
    assert_eq!(complete(&["jobtree", "work", "--addon", ""]), ["photos"]);
    assert_eq!(complete(&["jobtree", "ls", "state:qu"]), ["state:queued"]);
    assert_eq!(
        complete(&["jobtree", "submit", "--priority", "h"]),
        ["high"]
    );
    assert_eq!(
        complete(&["jobtree", "submit", "--on-dependency-failure", ""]),
        ["cancel", "run"]
    );
    assert_eq!(complete(&["jobtree", "redri"]), ["redrive"]);
    // Without a daemon there is nothing to offer, and nothing that waits for one.
    let gone = Daemon::start();
    let url = gone.url.clone();
    drop(gone);
    let mut command = daemon.command();
    command
        .env("JOBTREE_URL", url)
        .env("JOBTREE_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", "2");
    let ran = Ran::of(&mut command, &["--", "jobtree", "show", ""]).exits(0);
    assert_eq!(ran.stdout.lines().next(), Some("last"), "{ran:?}");
}

/// Each shell in a terminal, with the completions loaded as the help of `jobtree completions` says.
#[test]
fn tab_completes_the_line_in_each_shell() {
    let _watchdog = watch();
    let (daemon, id) = prepared();
    let end = &id[28..];
    let program = Path::new(env!("CARGO_BIN_EXE_jobtree"));
    let path = format!("PATH={}:$PATH", program.parent().unwrap().display());
    let bash = "source <(jobtree completions bash)\nPS1='ready> '\n";
    let bash = daemon.folder.write("bashrc", bash);
    let zsh =
        "autoload -U compinit; compinit -D -u\nsource <(jobtree completions zsh)\nPS1='ready> '\n";
    daemon.folder.write(".zshrc", zsh);
    let fish = "function fish_prompt; echo 'ready> '; end; jobtree completions fish | source";
    for shell in [
        format!("{path} bash --noprofile --rcfile {bash} -i"),
        format!("{path} zsh -i"),
        format!("{path} fish --no-config -C \"{fish}\""),
    ] {
        let screen = Screen::open(&daemon, 80, 24, &shell);
        screen.shows(&["ready>"]);
        for (typed, completed) in [
            ("jobtree show la", "jobtree show last"),
            ("jobtree submit ph", "jobtree submit photos"),
            (
                "jobtree submit photos --priority h",
                "jobtree submit photos --priority high",
            ),
            ("jobtree ls state:qu", "ready> jobtree ls state:queued"),
            ("jobtree ls addon:p", "ready> jobtree ls addon:photos"),
            (
                "jobtree schedule run-now ni",
                "jobtree schedule run-now nightly",
            ),
            ("jobtree redri", "jobtree redrive"),
        ] {
            screen.press(&["C-l"]);
            screen.press(&["-l", typed]);
            screen.press(&["Tab"]);
            screen.shows(&[completed]);
            screen.press(&["C-u"]);
        }
        // Several fit: they are listed, by a second Tab at the latest.
        screen.press(&["C-l"]);
        screen.press(&["-l", "jobtree explain "]);
        screen.press(&["Tab"]);
        screen.press(&["Tab"]);
        screen.shows(&[end, "last"]);
    }
}
