//! Being asked to end, by a terminal or a service manager.

use std::io;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::CliError;

const SAME_WISH: Duration = Duration::from_millis(500);

/// Asks to be told of INT and TERM from now on, instead of ending by them.
pub struct Asked(Signals);

impl Asked {
    /// # Errors
    /// If the system does not tell.
    pub fn listen() -> Result<Self, CliError> {
        let listening = Signals::new([SIGINT, SIGTERM]);
        listening.map(Asked).map_err(|error: io::Error| {
            CliError::failed(format!("signals cannot be listened for: {error}"))
        })
    }

    /// Waits until somebody asks. Asked once more, the process ends at once: whoever repeats it does not want to wait.
    /// What comes right behind the first is the same wish: some send it to a process and again to its group.
    pub fn wait(mut self) -> &'static str {
        let name = match self.0.forever().next() {
            Some(SIGINT) => "INT",
            _ => "TERM",
        };
        let asked = Instant::now();
        std::thread::spawn(move || {
            let again = |_: &i32| asked.elapsed() > SAME_WISH;
            if let Some(signal) = self.0.forever().find(again) {
                eprintln!("asked twice: ending at once");
                std::process::exit(128 + signal);
            }
        });
        name
    }
}
