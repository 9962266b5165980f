//! Server-sent events as they stand in the text: blocks of `field: value` lines, each ended by an empty line.
//!
//! What is read here is what the standard says of it: lines end in LF, CR or both, a colon at the beginning makes a comment,
//! several `data` lines are one text, and an `id` with a NUL in it is none.

use std::io::{self, BufRead};

/// A message is no longer than this; a daemon's are much shorter.
const LONGEST: usize = 16 * 1024 * 1024;

/// One message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) id: Option<String>,
    pub(super) kind: String,
    pub(super) data: String,
}

pub(super) struct Messages<R>(R);

impl<R: BufRead> Messages<R> {
    pub(super) fn of(reader: R) -> Self {
        Messages(reader)
    }

    /// The next message; none at the end of the stream. A message that the end cuts short is none.
    pub(super) fn next(&mut self) -> io::Result<Option<Message>> {
        let mut message = Message::default();
        let mut said = false;
        let mut line = Vec::new();
        loop {
            line.clear();
            if self.0.read_until(b'\n', &mut line)? == 0 {
                return Ok(None);
            }
            while line
                .last()
                .is_some_and(|byte| matches!(byte, b'\n' | b'\r'))
            {
                line.pop();
            }
            if message.data.len() + line.len() > LONGEST {
                return Err(io::Error::other("a message without an end"));
            }
            let Ok(text) = std::str::from_utf8(&line) else {
                return Err(io::Error::other("a message that is not UTF-8"));
            };
            if text.is_empty() {
                if said {
                    return Ok(Some(message));
                }
                // An id alone is no message, but it is a place.
                if message.id.is_some() {
                    return Ok(Some(message));
                }
                continue;
            }
            let (field, value) = text.split_once(':').unwrap_or((text, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "data" => {
                    if said {
                        message.data.push('\n');
                    }
                    message.data.push_str(value);
                    said = true;
                }
                "event" => value.clone_into(&mut message.kind),
                "id" if !value.contains('\0') => message.id = Some(value.to_owned()),
                // A comment, or something newer than this.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<Message> {
        let mut messages = Messages::of(text.as_bytes());
        std::iter::from_fn(|| messages.next().unwrap()).collect()
    }

    fn message(id: Option<&str>, kind: &str, data: &str) -> Message {
        Message {
            id: id.map(str::to_owned),
            kind: kind.to_owned(),
            data: data.to_owned(),
        }
    }

    #[test]
    fn messages_are_read_and_comments_passed_over() {
        let text =
            ": here\n\nid: 7\nevent: DONE\ndata: {}\n\ndata:a\r\ndata: b\r\n\r\nretry: 5\n\n";
        assert_eq!(
            all(text),
            [message(Some("7"), "DONE", "{}"), message(None, "", "a\nb")]
        );
    }

    #[test]
    fn what_the_end_cuts_short_is_no_message() {
        assert_eq!(
            all("data: whole\n\ndata: half\n"),
            [message(None, "", "whole")]
        );
    }

    #[test]
    fn what_is_not_text_is_an_error() {
        assert!(Messages::of(&b"data: \xff\n\n"[..]).next().is_err());
    }
}
