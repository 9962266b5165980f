//! How a program ended, and what that says about its job.

use std::fmt;
use std::time::Duration;

use crate::used::Used;

/// `EX_TEMPFAIL` of `sysexits.h`: not now. The job waits again, and nothing is counted.
pub const TEMPORARY: i32 = 75;
/// `EX_DATAERR`: the input is wrong, and no further attempt will mend it.
pub const DATA_ERROR: i32 = 65;

/// How it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// What it exited with, if it exited.
    pub exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// The end of what it wrote to its standard error.
    pub last_words: String,
    /// The last result it told, as JSON.
    pub result: Option<String>,
    /// How long the job shall wait, as the program told last.
    pub snooze: Option<Duration>,
    /// Bytes of output between what was passed on and `tail` that were not kept.
    pub left_out: u64,
    /// The end of the output, as far as it was not passed on.
    pub tail: String,
    /// The resources that the program used, with all that it started.
    pub used: Used,
}

/// What becomes of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is DONE, with a result as JSON.
    Done(Option<String>),
    /// It waits again, and nothing is counted.
    GiveBack {
        /// Why.
        reason: String,
        /// How long it waits at least, if the program told.
        snooze: Option<Duration>,
    },
    /// A failed attempt; others may follow.
    Failed(String),
    /// FAILED, whatever attempts are left.
    Permanent(String),
}

impl Ending {
    /// What that says about the job: 0 is DONE, [`TEMPORARY`] gives it back, [`DATA_ERROR`] fails it for good, and everything
    /// else is a failed attempt.
    ///
    /// ```
    /// use jobtree_process::{Ending, Verdict};
    ///
    /// let ending = Ending { exit_code: Some(3), last_words: "no disk\n".into(), ..Ending::default() };
    /// assert_eq!(ending.verdict(), Verdict::Failed("exit code 3: no disk".into()));
    /// ```
    pub fn verdict(&self) -> Verdict {
        match self.exit_code {
            Some(0) => Verdict::Done(self.result.clone()),
            Some(TEMPORARY) => Verdict::GiveBack {
                reason: self.to_string(),
                snooze: self.snooze,
            },
            Some(DATA_ERROR) => Verdict::Permanent(self.to_string()),
            _ => Verdict::Failed(self.to_string()),
        }
    }
}

/// One line for the ending, and the program's last words.
impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.exit_code, self.signal) {
            (Some(code), _) => write!(f, "exit code {code}")?,
            (None, Some(signal)) => write!(f, "ended by signal {signal}")?,
            (None, None) => f.write_str("lost: its supervisor ended before it")?,
        }
        match self.last_words.trim() {
            "" => Ok(()),
            words => write!(f, ": {words}"),
        }
    }
}

/// The end of a text, within a limit.
#[derive(Debug)]
pub(crate) struct Tail {
    text: String,
    most: usize,
}

impl Tail {
    /// The bytes of a program's last words.
    pub(crate) const LAST_WORDS: usize = 4096;

    pub(crate) fn new(most: usize) -> Self {
        let text = String::new();
        Self { text, most }
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() > 2 * self.most {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let from = self.text.len().saturating_sub(self.most);
        self.text.drain(..self.text.ceil_char_boundary(from));
    }

    pub(crate) fn into_text(mut self) -> String {
        self.cut();
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ending_has_its_verdict() {
        let exit = |code| Ending {
            exit_code: Some(code),
            result: Some("1".into()),
            ..Ending::default()
        };
        assert_eq!(exit(0).verdict(), Verdict::Done(Some("1".into())));
        assert_eq!(
            exit(75).verdict(),
            Verdict::GiveBack {
                reason: "exit code 75".into(),
                snooze: None,
            }
        );
        assert_eq!(
            exit(65).verdict(),
            Verdict::Permanent("exit code 65".into())
        );
        assert_eq!(exit(1).verdict(), Verdict::Failed("exit code 1".into()));
        let killed = Ending {
            signal: Some(9),
            ..Ending::default()
        };
        assert_eq!(
            killed.verdict(),
            Verdict::Failed("ended by signal 9".into())
        );
    }

    #[test]
    fn the_end_is_kept_and_not_the_beginning() {
        let mut tail = Tail::new(Tail::LAST_WORDS);
        for number in 0..10_000 {
            tail.push(&format!("ö {number}\n"));
        }
        let text = tail.into_text();
        assert!(
            text.len() <= Tail::LAST_WORDS && text.ends_with("ö 9999\n"),
            "{text}"
        );
    }
}
