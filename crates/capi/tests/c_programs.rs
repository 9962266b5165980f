//! Programs in C, compiled by the system's compiler against the header and the static library, and run.
//!
//! Each ends with 0, or says what failed. With `JOBTREE_CAPI_UNDER=valgrind` they run under valgrind, which must find
//! neither an error nor a leak; it follows the switching of stacks by itself, as these lie far apart. With
//! `JOBTREE_CAPI_UNDER=address-sanitizer` they are compiled for that, and it watches the library's heap, too.
#![cfg(unix)]

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use watchdog::Watchdog;

const MANIFEST: &str = env!("CARGO_MANIFEST_DIR");

/// The static library: cargo puts it beside the test programs. A test that is run in some other way builds it.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let program = std::env::current_exe().unwrap();
        let beside = program.with_file_name("libjobtree_capi.a");
        if beside.is_file() {
            return beside;
        }
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("library");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--offline", "-p", "jobtree-capi", "--target-dir"])
            .arg(&target)
            .current_dir(MANIFEST)
            .status()
            .unwrap();
        assert!(built.success(), "the library cannot be built");
        target.join("debug/libjobtree_capi.a")
    })
}

/// What the library needs of the system.
fn system_libraries() -> &'static [&'static str] {
    if cfg!(target_os = "linux") {
        &["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"]
    } else {
        &["-lpthread", "-lm"]
    }
}

/// Who watches the programs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Under {
    Nobody,
    Valgrind,
    AddressSanitizer,
}

impl Under {
    fn wanted() -> Under {
        match std::env::var("JOBTREE_CAPI_UNDER").as_deref() {
            Err(_) | Ok("") => Under::Nobody,
            Ok("valgrind") => Under::Valgrind,
            Ok("address-sanitizer") => Under::AddressSanitizer,
            Ok(other) => {
                panic!("JOBTREE_CAPI_UNDER can be valgrind or address-sanitizer, not {other}")
            }
        }
    }
}

/// Compiles a program from a file of this crate.
fn compile(source: &str) -> PathBuf {
    compile_with(source, "", library())
}

/// Compiles a program; `suffix` tells it from others of the same file.
fn compile_with(source: &str, suffix: &str, library: &Path) -> PathBuf {
    let source = Path::new(MANIFEST).join(source);
    let stem = source.file_stem().unwrap().to_str().unwrap();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{stem}{suffix}"));
    let is_cpp = source
        .extension()
        .is_some_and(|extension| extension == "cpp");
    let (variable, default, standard) = match is_cpp {
        true => ("CXX", "c++", "-std=c++17"),
        false => ("CC", "cc", "-std=c11"),
    };
    let compiler = std::env::var_os(variable).unwrap_or_else(|| default.into());
    let mut command = Command::new(compiler);
    command
        .args([standard, "-D_POSIX_C_SOURCE=200809L", "-g", "-O1"])
        .args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(Path::new(MANIFEST).join("include"))
        .arg("-o")
        .args([&program, &source])
        .arg(library)
        .args(system_libraries());
    match Under::wanted() {
        // Linking the library's debug information would take most of the time.
        Under::Nobody if cfg!(target_os = "linux") => command.arg("-Wl,-S"),
        Under::Nobody | Under::Valgrind => &mut command,
        Under::AddressSanitizer => command.arg("-fsanitize=address"),
    };
    let output = command.output().expect("a C compiler is there");
    assert_succeeded(&source, &output);
    program
}

fn run(program: &Path) -> Output {
    run_with(program, &[])
}

fn run_with(program: &Path, arguments: &[&str]) -> Output {
    let mut command = match Under::wanted() {
        Under::Nobody | Under::AddressSanitizer => Command::new(program),
        Under::Valgrind => {
            let mut command = Command::new("valgrind");
            command.args(["-q", "--error-exitcode=9"]);
            command.args(["--leak-check=full", "--errors-for-leak-kinds=definite"]);
            command.arg("--show-leak-kinds=definite");
            // One thread runs at a time there; without fairness one that spins keeps the others from it.
            command.arg("--fair-sched=yes").arg(program);
            command
        }
    };
    command.args(arguments);
    let limit = match Under::wanted() {
        Under::Nobody => Duration::from_secs(60),
        Under::Valgrind | Under::AddressSanitizer => Duration::from_secs(240),
    };
    output_within(limit, &mut command)
}

/// Runs a program, and kills it if it has not ended within `limit`: its status then tells of the signal.
fn output_within(limit: Duration, command: &mut Command) -> Output {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = command.spawn().expect("the program starts");
    let (stdout, stderr) = (program.stdout.take(), program.stderr.take());
    let out = std::thread::spawn(move || read_all(stdout));
    let err = std::thread::spawn(move || read_all(stderr));
    let began = Instant::now();
    let status = loop {
        if let Some(status) = program.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > limit {
            eprintln!("killed after {limit:?}: {command:?}");
            program.kill().unwrap();
            break program.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Output {
        status,
        stdout: out.join().unwrap(),
        stderr: err.join().unwrap(),
    }
}

fn read_all(stream: Option<impl Read>) -> Vec<u8> {
    let mut read = Vec::new();
    if let Some(mut stream) = stream {
        stream.read_to_end(&mut read).unwrap();
    }
    read
}

#[track_caller]
fn assert_succeeded(what: &Path, output: &Output) {
    assert!(
        output.status.success(),
        "{}: {}\n{}{}",
        what.display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[track_caller]
fn passes(source: &str) -> String {
    let _watch = Watchdog::watching(source);
    let program = compile(source);
    let output = run(&program);
    assert_succeeded(&program, &output);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn nurseries() {
    passes("tests/c/nursery.c");
}

#[test]
fn scopes_deferreds_and_limits() {
    passes("tests/c/scope.c");
}

#[test]
fn dispatchers() {
    passes("tests/c/dispatcher.c");
}

#[test]
fn channels() {
    passes("tests/c/channel.c");
}

#[test]
fn select() {
    passes("tests/c/select.c");
}

#[test]
fn profiles_budgets_and_capabilities() {
    passes("tests/c/limits.c");
}

#[test]
fn counters_events_dumps_and_reasons() {
    passes("tests/c/monitor.c");
}

#[test]
fn degradations_are_events_and_counted() {
    passes("tests/c/degraded.c");
}

#[test]
fn scopes_under_a_named_parent() {
    passes("tests/c/parent.c");
}

#[test]
fn misuse() {
    passes("tests/c/misuse.c");
}

#[test]
fn callbacks_that_do_what_they_like() {
    passes("tests/c/callbacks.c");
}

/// Rust cannot catch them; the process ends with a message at the border, before anything is left half-done.
#[test]
fn exceptions_of_cpp_end_the_process_at_the_border() {
    use std::os::unix::process::ExitStatusExt as _;

    const SIGABRT: i32 = 6;
    let _watch = Watchdog::watching("exceptions_of_cpp_end_the_process_at_the_border");
    let program = compile("tests/c/throwing.cpp");
    let caught = run(&program);
    assert_succeeded(&program, &caught);
    if Under::wanted() != Under::Nobody {
        // Those that watch report the abort in words of their own.
        return;
    }
    for place in ["task", "scope", "release", "decision"] {
        let output = run_with(&program, &[place]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(SIGABRT), "{place}: {message}");
        assert!(message.contains("foreign exception"), "{place}: {message}");
    }
}

#[test]
fn the_names_of_janus() {
    passes("tests/c/janus.c");
}

#[test]
fn the_names_of_kc() {
    passes("tests/c/kc.c");
}

/// The dynamic library has the same interface.
#[cfg(target_os = "linux")]
#[test]
fn a_program_with_the_dynamic_library() {
    let _watch = Watchdog::watching("a_program_with_the_dynamic_library");
    let library = library().with_extension("so");
    let program = compile_with("tests/c/janus.c", "-dynamic", &library);
    let output = run(&program);
    assert_succeeded(&program, &output);
    let needed = Command::new("ldd").arg(&program).output().unwrap();
    assert!(String::from_utf8_lossy(&needed.stdout).contains("libjobtree_capi.so"));
}

#[test]
fn the_example() {
    let told = passes("examples/crawler.c");
    assert!(told.starts_with("found page 100 after "), "{told}");
}

#[test]
fn the_program_in_the_readme() {
    let readme = std::fs::read_to_string(Path::new(MANIFEST).join("../../README.md")).unwrap();
    let (_, after) = readme.split_once("```c\n").expect("it shows a program");
    let (program, _) = after.split_once("```").unwrap();
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme.c");
    std::fs::write(&source, program).unwrap();
    assert_eq!(passes(source.to_str().unwrap()), "hello, world\n");
}

#[test]
fn a_program_that_fails_is_noticed() {
    let _watch = Watchdog::watching("a_program_that_fails_is_noticed");
    let output = run(&compile("tests/c/failing.c"));
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("1 == 2 does not hold"), "{told}");
    assert!(
        told.contains("returned -4") && told.contains("last error: there is no runtime"),
        "{told}"
    );
}

/// Functions of C programs that the library calls may do what they like there; each cell is a process.
#[test]
fn functions_that_wait_fork_cancel_and_do_not_return() {
    let _watch = Watchdog::watching("functions_that_wait_fork_cancel_and_do_not_return");
    let program = compile("tests/c/callback_matrix.c");
    let listed = run(&program);
    assert_succeeded(&program, &listed);
    let cells = String::from_utf8(listed.stdout).unwrap();
    assert!(cells.lines().count() > 90, "{cells}");
    let failed: Vec<String> = cells
        .lines()
        .filter_map(|cell| failure_of(&program, cell))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Runs a cell of a program that has a time limit of its own; returns how it failed.
fn failure_of(program: &Path, cell: &str) -> Option<String> {
    let arguments: Vec<&str> = cell.split(' ').collect();
    let output = run_with(program, &arguments);
    let told = String::from_utf8_lossy(&output.stderr);
    (!output.status.success()).then(|| format!("{cell}: {}\n{told}", output.status))
}
