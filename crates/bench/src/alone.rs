//! What a clock cannot tell, measured in a process that does one thing and nothing else: instructions and bytes.
//!
//! The program runs itself with a hidden subcommand, once with few repetitions and once with many; the difference,
//! divided by how many more there were, is free of whatever the process does besides. Instructions and bytes on the heap
//! are counted by valgrind, where that is installed; resident memory comes from Linux's `/proc`.

use std::env;
use std::fs;
use std::io;
use std::process::{self, Command as Process, ExitCode};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command, value_parser};

/// The subcommand's name.
pub const COMMAND: &str = "alone";

/// Something to do a number of times. What it leaves on the heap counts as alive.
pub struct Probe {
    pub name: &'static str,
    pub run: fn(u64),
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Instructions executed, on all threads.
    Instructions,
    /// Bytes asked of the allocator and not given back, without what the allocator adds.
    HeapBytes,
    /// Bytes of memory in use, in whole pages.
    ResidentBytes,
}

/// How much of `quantity` one repetition of `probe` takes, over `count` of them.
///
/// # Errors
///
/// If it cannot be counted here; the message says why.
pub fn each(quantity: Quantity, probe: &Probe, count: u64) -> io::Result<f64> {
    // Not from nothing: what the first repetitions make is kept for the others.
    let few = count / 10;
    let difference =
        measure(quantity, probe, few + count)? as f64 - measure(quantity, probe, few)? as f64;
    Ok(difference / count as f64)
}

fn measure(quantity: Quantity, probe: &Probe, count: u64) -> io::Result<u64> {
    let program = env::current_exe()?;
    let mut process = match quantity {
        Quantity::ResidentBytes => Process::new(&program),
        Quantity::Instructions => {
            let mut valgrind = Process::new("valgrind");
            // The sum is all that is wanted, and that is printed.
            valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
            valgrind.arg(&program);
            valgrind
        }
        Quantity::HeapBytes => {
            let mut valgrind = Process::new("valgrind");
            // Stacks of our own look like errors to it; they are none, and only the heap's sum is wanted.
            valgrind.args(["--leak-check=no", "--undef-value-errors=no"]);
            valgrind.arg(&program);
            valgrind
        }
    };
    // As many digits each time: arguments are on the heap, too.
    process.args([COMMAND, probe.name, &format!("{count:020}")]);
    let output = process.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("valgrind is not installed"),
        _ => error,
    })?;
    let (printed, said) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if !output.status.success() {
        let message = format!("{}: {}: {said}", probe.name, output.status);
        return Err(io::Error::other(message));
    }
    let found = match quantity {
        Quantity::Instructions => number_after(&said, "Collected :"),
        Quantity::HeapBytes => number_after(&said, "in use at exit:"),
        Quantity::ResidentBytes => number_after(&printed, RESIDENT),
    };
    found.ok_or_else(|| {
        io::Error::other(format!(
            "no figure in what it printed: {}{}",
            printed.trim(),
            said.trim()
        ))
    })
}

/// What the process prints its resident bytes after.
const RESIDENT: &str = "resident bytes:";

/// The first number after `label`, which may have commas between its digits.
fn number_after(text: &str, label: &str) -> Option<u64> {
    let (_, after) = text.split_once(label)?;
    let number = after.split_whitespace().next()?;
    number.replace(',', "").parse().ok()
}

/// The subcommand, which `--help` does not show: only this program calls it.
pub fn command(probes: &'static [&'static [Probe]]) -> Command {
    let names: Vec<&str> = probes
        .iter()
        .copied()
        .flatten()
        .map(|probe| probe.name)
        .collect();
    Command::new(COMMAND)
        .hide(true)
        .arg(
            Arg::new("probe")
                .required(true)
                .value_parser(PossibleValuesParser::new(names)),
        )
        .arg(
            Arg::new("count")
                .required(true)
                .value_parser(value_parser!(u64)),
        )
}

/// Does what the subcommand says. The process ends at once: what is alive stays so to the end.
pub fn run_in_this_process(probes: &[&[Probe]], arguments: &ArgMatches) -> ExitCode {
    let name = arguments.get_one::<String>("probe");
    let probe = probes
        .iter()
        .copied()
        .flatten()
        .find(|probe| name.is_some_and(|name| name == probe.name));
    let (Some(probe), Some(&count)) = (probe, arguments.get_one::<u64>("count")) else {
        unreachable!("clap knows the probes from the same list");
    };
    (probe.run)(count);
    match resident_bytes() {
        Ok(bytes) => println!("{RESIDENT} {bytes}"),
        Err(error) => eprintln!("resident bytes are not known: {error}"),
    }
    process::exit(0)
}

fn resident_bytes() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let kibibytes = number_after(&status, "VmRSS:");
    kibibytes
        .map(|kibibytes| kibibytes * 1024)
        .ok_or_else(|| io::Error::other("no VmRSS in /proc/self/status"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_what_valgrind_says() {
        let callgrind = "==7== Events    : Ir\n==7== Collected : 1234567\n==7== \n";
        assert_eq!(number_after(callgrind, "Collected :"), Some(1_234_567));
        let memcheck =
            "==7== HEAP SUMMARY:\n==7==     in use at exit: 12,801,544 bytes in 9 blocks\n";
        assert_eq!(number_after(memcheck, "in use at exit:"), Some(12_801_544));
        assert_eq!(number_after(memcheck, "Collected :"), None);
        assert_eq!(number_after("Collected : many", "Collected :"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn resident_memory_grows_with_what_is_touched() {
        let before = resident_bytes().unwrap();
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = resident_bytes().unwrap();
        drop(touched);
        // Other tests give memory back meanwhile, but not as much.
        assert!(after > before + (16 << 20), "{before} -> {after}");
    }
}
