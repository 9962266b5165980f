//! Terminals for tests: tmux runs a command in a window of a size, and keeps what is on its screen.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Daemon, until};

/// A terminal of a size, in which something runs: tmux keeps its screen.
pub struct Screen {
    socket: String,
}

impl Screen {
    pub fn open(daemon: &Daemon, width: u16, height: u16, line: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let socket = format!("jobtree-{}-{number}", std::process::id());
        let screen = Screen { socket };
        let (width, height) = (width.to_string(), height.to_string());
        let mut command = screen.command();
        command
            .args([
                "-f",
                "/dev/null",
                "new-session",
                "-d",
                "-x",
                &width,
                "-y",
                &height,
                line,
            ])
            .env("JOBTREE_URL", &daemon.url)
            .env("JOBTREE_DATA_DIR", daemon.folder.join("data"))
            .env("HOME", &daemon.folder.0)
            .env("LC_ALL", "C.UTF-8");
        let made = command.status().expect("tmux is there");
        assert!(made.success());
        screen.tmux(&["set-option", "-s", "escape-time", "0"]);
        screen
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.socket]).stderr(Stdio::null());
        command
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = self.command().args(arguments).output().expect("tmux runs");
        String::from_utf8(output.stdout).expect("text")
    }

    pub fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    pub fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits until the screen does not have this.
    pub fn lacks(&self, part: &str) {
        until(|| !self.text().contains(part));
    }

    /// Returns the screen once it has all of these.
    pub fn shows(&self, parts: &[&str]) -> String {
        let mut text = String::new();
        let mut looks = 0;
        until(|| {
            text = self.text();
            looks += 1;
            // For whoever reads of a test that hangs.
            if looks % 400 == 0 {
                eprintln!("{parts:?} are not in\n{text}");
            }
            parts.iter().all(|part| text.contains(part))
        });
        text
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.command().arg("kill-server").status();
    }
}
