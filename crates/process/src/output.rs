//! What a program says on its standard output: text for the log, and three kinds of lines for the worker.
//!
//! - `::progress 0.4 four of ten` tells how far it is, from 0 to 1, and in words if there are any.
//! - `::result {"pages": 12}` is what the job gives, as JSON; the last one counts.
//! - `::snooze 10m`, before the program exits with 75: the job is not started again before that time has passed.
//!
//! Such a line stands alone: it begins with the two colons, and ends with a newline or the end of the output. It does
//! not come into the log. A line that looks like one and is none stays text.
//!
//! Text is passed on as it comes, also without a newline; bytes that are no UTF-8 become replacement characters.

use std::io::BufRead;
use std::time::Duration;

/// The longest line that can be a directive: a result's limit, and some.
const LONGEST: usize = (1 << 20) + 1024;

/// What was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// For the log.
    Text(String),
    /// How far it is.
    Progress {
        /// 0 to 1.
        fraction: f64,
        /// In words; may be empty.
        message: String,
    },
    /// What it gives: valid JSON.
    Result(String),
    /// How long the job shall wait, if the program exits with [`TEMPORARY`](crate::TEMPORARY).
    Snooze(Duration),
}

/// Takes bytes apart, however they are cut.
#[derive(Debug)]
pub struct Reader {
    pending: Vec<u8>,
    /// What is pending continues a line that was passed on in part.
    mid_line: bool,
    directives: bool,
}

impl Reader {
    /// For a stream with directives in it, or with text alone.
    pub fn new(directives: bool) -> Self {
        Reader {
            pending: Vec::new(),
            mid_line: false,
            directives,
        }
    }

    /// Takes more bytes.
    ///
    /// ```
    /// use jobtree_process::output::{Reader, Said};
    ///
    /// let mut reader = Reader::new(true);
    /// let mut said = Vec::new();
    /// reader.feed(b"hello\n::progress 0.5 half", |what| said.push(what));
    /// assert_eq!(said, [Said::Text("hello\n".into())]);
    /// reader.feed(b" way\n", |what| said.push(what));
    /// assert_eq!(said[1], Said::Progress { fraction: 0.5, message: "half way".into() });
    /// ```
    pub fn feed(&mut self, bytes: &[u8], mut tell: impl FnMut(Said)) {
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        let pending = std::mem::take(&mut self.pending);
        // Lines are taken from the whole and not drained one by one, which would move all behind them each time.
        let mut rest = &pending[..];
        let mut line = Vec::new();
        while rest
            .read_until(b'\n', &mut line)
            .is_ok_and(|count| count > 0)
        {
            if line.last() != Some(&b'\n') {
                break;
            }
            self.line(&line, &mut text, &mut tell);
            self.mid_line = false;
            line.clear();
        }
        self.pending = line;
        if !self.may_be_directive() {
            let whole = self.whole_characters();
            let part: Vec<u8> = self.pending.drain(..whole).collect();
            self.mid_line |= !part.is_empty();
            text.push_str(&String::from_utf8_lossy(&part));
        }
        flush(text, &mut tell);
    }

    /// Takes the end of the stream.
    pub fn finish(&mut self, mut tell: impl FnMut(Said)) {
        let mut text = String::new();
        let line = std::mem::take(&mut self.pending);
        if !line.is_empty() {
            self.line(&line, &mut text, &mut tell);
        }
        flush(text, &mut tell);
    }

    fn line(&self, line: &[u8], text: &mut String, tell: &mut impl FnMut(Said)) {
        let shown = String::from_utf8_lossy(line);
        let directive = match self.directives && !self.mid_line {
            true => directive(shown.trim_end()),
            false => None,
        };
        match directive {
            Some(said) => {
                // In the order in which it came.
                flush(std::mem::take(text), tell);
                tell(said);
            }
            None => text.push_str(&shown),
        }
    }

    /// Whether the line that has begun has to be waited for.
    fn may_be_directive(&self) -> bool {
        let begins = self.pending.len().min(2);
        self.directives
            && !self.mid_line
            && self.pending.len() <= LONGEST
            && self.pending[..begins] == b"::"[..begins]
    }

    /// How many bytes of what is pending do not end within a character.
    fn whole_characters(&self) -> usize {
        match std::str::from_utf8(&self.pending) {
            // Without a length, it is the end that is incomplete.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.pending.len(),
        }
    }
}

fn flush(text: String, tell: &mut impl FnMut(Said)) {
    if !text.is_empty() {
        tell(Said::Text(text));
    }
}

fn directive(line: &str) -> Option<Said> {
    let (word, rest) = line.strip_prefix("::")?.split_once(' ')?;
    match word {
        "progress" => {
            let (number, message) = rest.split_once(' ').unwrap_or((rest, ""));
            let fraction: f64 = number.parse().ok()?;
            (0.0..=1.0).contains(&fraction).then(|| Said::Progress {
                fraction,
                message: message.trim().into(),
            })
        }
        "result" => {
            serde_json::from_str::<serde::de::IgnoredAny>(rest).ok()?;
            Some(Said::Result(rest.trim().into()))
        }
        "snooze" => snooze(rest.trim()).map(Said::Snooze),
        _ => None,
    }
}

/// A length of time: a whole number of seconds, or of what its unit says (`s`, `m`, `h` or `d`).
fn snooze(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(seconds).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: &[&[u8]]) -> Vec<Said> {
        let (mut reader, mut said) = (Reader::new(true), Vec::new());
        for piece in pieces {
            reader.feed(piece, |what| said.push(what));
        }
        reader.finish(|what| said.push(what));
        said
    }

    fn text(of: &str) -> Said {
        Said::Text(of.into())
    }

    #[test]
    fn however_it_is_cut_the_same_is_read() {
        let whole = "a\n::progress 0.25 ö\nb ::result 1\n::result {\"x\": [1]}\nlast".as_bytes();
        let expected = all(&[whole]);
        assert_eq!(
            expected,
            [
                text("a\n"),
                Said::Progress {
                    fraction: 0.25,
                    message: "ö".into()
                },
                text("b ::result 1\n"),
                Said::Result("{\"x\": [1]}".into()),
                text("last"),
            ]
        );
        let merged = |said: Vec<Said>| {
            let mut merged: Vec<Said> = Vec::new();
            for what in said {
                match (merged.last_mut(), what) {
                    (Some(Said::Text(before)), Said::Text(more)) => before.push_str(&more),
                    (_, what) => merged.push(what),
                }
            }
            merged
        };
        for cut in 0..whole.len() {
            let pieces = [&whole[..cut], &whole[cut..]];
            assert_eq!(merged(all(&pieces)), expected, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(merged(all(&bytes)), expected);
    }

    #[test]
    fn what_looks_like_a_directive_and_is_none_stays_text() {
        for line in [
            "::progress much\n",
            "::progress 1.5\n",
            "::progress NaN\n",
            "::result {\n",
            "::else 1\n",
            "::\n",
            ": :progress 0.1\n",
        ] {
            assert_eq!(all(&[line.as_bytes()]), [text(line)]);
        }
    }

    #[test]
    fn a_part_of_a_line_does_not_wait_for_the_rest_and_is_not_read_anew() {
        let (mut reader, mut said) = (Reader::new(true), Vec::new());
        reader.feed(b"50%", |what| said.push(what));
        reader.feed(b"::result 1\n", |what| said.push(what));
        assert_eq!(said, [text("50%"), text("::result 1\n")]);
    }

    #[test]
    fn a_directive_without_end_does_not_fill_the_memory() {
        let (mut reader, mut read) = (Reader::new(true), 0);
        reader.feed(b"::result ", |_| {});
        for _ in 0..40 {
            reader.feed(&[b' '; 1 << 16], |what| match what {
                Said::Text(text) => read += text.len(),
                other => panic!("{other:?}"),
            });
        }
        assert!(reader.pending.len() <= LONGEST && read > LONGEST, "{read}");
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(all(&[b"a\xffb\n"]), [text("a\u{fffd}b\n")]);
        assert_eq!(all(&[b"a\xc3"]), [text("a"), text("\u{fffd}")]);
    }

    #[test]
    fn a_snooze_is_a_number_with_or_without_a_unit() {
        for (line, seconds) in [
            ("90", 90),
            ("90s", 90),
            ("10m", 600),
            ("2h", 7200),
            ("1d", 86_400),
        ] {
            let said = directive(&format!("::snooze {line}"));
            assert_eq!(
                said,
                Some(Said::Snooze(Duration::from_secs(seconds))),
                "{line}"
            );
        }
        for line in ["", "m", "-1", "1w", "1.5h", "99999999999999999999d"] {
            assert_eq!(directive(&format!("::snooze {line}")), None, "{line}");
        }
    }
}
