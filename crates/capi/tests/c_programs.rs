//! Programs in C, compiled by the system's compiler against the header and the static library, and run.
//!
//! Each ends with 0, or says what failed. `JOBTREE_CAPI_UNDER=valgrind` runs them under valgrind.
#![cfg(unix)]

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

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

/// Compiles a program from a file of this crate.
fn compile(source: &str) -> PathBuf {
    let source = Path::new(MANIFEST).join(source);
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source.file_stem().unwrap());
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler)
        .args(["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-g", "-O1"])
        .args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(Path::new(MANIFEST).join("include"))
        .arg("-o")
        .args([&program, &source])
        .arg(library())
        .args(system_libraries())
        .output()
        .expect("a C compiler is there");
    assert_succeeded(&source, &output);
    program
}

fn run(program: &Path) -> Output {
    let mut command = match std::env::var("JOBTREE_CAPI_UNDER").as_deref() {
        Err(_) | Ok("") => Command::new(program),
        Ok("valgrind") => {
            let mut command = Command::new("valgrind");
            // One thread runs at a time there; without fairness one that spins keeps the others from it.
            command.args(["-q", "--error-exitcode=9", "--fair-sched=yes"]);
            command.arg(program);
            command
        }
        Ok(other) => panic!("JOBTREE_CAPI_UNDER can be valgrind, not {other}"),
    };
    command.output().expect("the program starts")
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
fn channels() {
    passes("tests/c/channel.c");
}

#[test]
fn select() {
    passes("tests/c/select.c");
}

#[test]
fn misuse() {
    passes("tests/c/misuse.c");
}

#[test]
fn the_names_of_janus() {
    passes("tests/c/janus.c");
}

#[test]
fn the_names_of_kc() {
    passes("tests/c/kc.c");
}

#[test]
fn the_example() {
    let told = passes("examples/crawler.c");
    assert!(told.starts_with("found page 100 after "), "{told}");
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
