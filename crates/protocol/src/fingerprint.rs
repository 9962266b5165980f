//! Whether two submissions say the same.
//!
//! A repeated submission with one idempotency key must be the same one. What is compared is the *checked* intent, so
//! that a default written out equals one left out, and `normal` equals `NORMAL`; all of its fields count except the key
//! itself, which is what the comparison is asked for, the schedule, and the trace: a request that is sent again is another
//! step of one. The intent is brought into one form (fields in a
//! fixed order, keys of objects sorted, strings with one way to escape, no spaces, numbers as they were written: `1`,
//! `1.0` and `1e0` differ) and that form is hashed with FNV-1a of 128 bits.
//!
//! The hash is not a secret-keeping one, and need not be: keys belong to one addon, so whoever searched for two bodies
//! with one hash would get its own first answer for its own second body. It is written down here and not taken from the
//! standard library because it is kept on disk for longer than a compiler's version.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Intent, Json};

/// What a submission says, in 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(pub [u8; 16]);

impl Fingerprint {
    pub(crate) fn of(intent: &Intent) -> Self {
        let mut counted = intent.clone();
        counted.idempotency_key = None;
        counted.schedule_id = None;
        counted.traceparent = None;
        let payload = counted.payload.take();
        let mut form = serde_json::to_vec(&counted).expect("an intent has string keys only");
        if let Some(payload) = payload {
            form.push(b'\n');
            form.extend_from_slice(&canonical(&payload));
        }
        Self(fnv1a(&form).to_be_bytes())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({:032x})", u128::from_be_bytes(self.0))
    }
}

fn fnv1a(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = (1 << 88) + 0x13b;
    bytes.iter().fold(OFFSET, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
    })
}

/// The one form of a JSON text. Its depth must have been checked: this recurses.
fn canonical(json: &Json) -> Vec<u8> {
    let mut reader = Reader { rest: json.text() };
    let mut out = Vec::with_capacity(json.text().len());
    reader.value(&mut out);
    out
}

/// Reads a text that is known to be valid JSON, so it has no errors to tell.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn value(&mut self, out: &mut Vec<u8>) {
        match self.peek() {
            b'{' => self.object(out),
            b'[' => self.list(out),
            b'"' => out.extend_from_slice(one_escape(self.string()).as_bytes()),
            _ => out.extend_from_slice(self.word().as_bytes()),
        }
    }

    fn object(&mut self, out: &mut Vec<u8>) {
        self.take(1);
        let mut members = Vec::new();
        while self.peek() != b'}' {
            let key = one_escape(self.string());
            self.expect(b':');
            let mut value = Vec::new();
            self.value(&mut value);
            members.push((key, value));
            self.skip_comma();
        }
        self.take(1);
        // Stable: of keys that stand there twice, the last one counts for readers, and it stays the last.
        members.sort_by(|a, b| a.0.cmp(&b.0));
        out.push(b'{');
        for (key, value) in members {
            out.extend_from_slice(key.as_bytes());
            out.push(b':');
            out.extend_from_slice(&value);
            out.push(b',');
        }
        out.push(b'}');
    }

    fn list(&mut self, out: &mut Vec<u8>) {
        self.take(1);
        out.push(b'[');
        while self.peek() != b']' {
            self.value(out);
            out.push(b',');
            self.skip_comma();
        }
        self.take(1);
        out.push(b']');
    }

    /// A string with its quotes and escapes.
    fn string(&mut self) -> &'a str {
        self.peek();
        let mut escaped = false;
        let inside = &self.rest[1..];
        let closing = inside.bytes().position(|byte| {
            let closes = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            closes
        });
        self.take(closing.map_or(self.rest.len(), |at| at + 2))
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> &'a str {
        let end = self
            .rest
            .find(|c: char| ",]}".contains(c) || c.is_ascii_whitespace());
        self.take(end.unwrap_or(self.rest.len()))
    }

    fn expect(&mut self, byte: u8) {
        debug_assert_eq!(self.peek(), byte);
        self.take(1);
    }

    fn skip_comma(&mut self) {
        if self.peek() == b',' {
            self.take(1);
        }
    }

    /// The next byte that is no space.
    fn peek(&mut self) -> u8 {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        self.rest.as_bytes()[0]
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }
}

/// A string with the fewest escapes. Half a surrogate pair is no text that Rust could hold; it stays as it was written.
fn one_escape(quoted: &str) -> String {
    match serde_json::from_str::<String>(quoted) {
        Ok(text) => serde_json::to_string(&text).expect("a string has a JSON form"),
        Err(_) => quoted.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> String {
        String::from_utf8(canonical(&Json::from_text(text.to_owned()).unwrap())).unwrap()
    }

    #[test]
    fn fnv_of_published_vectors() {
        assert_eq!(fnv1a(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[test]
    fn order_of_keys_spaces_and_escapes_do_not_count() {
        assert_eq!(
            form(r#" {"b": [1, 2 ], "a" : {"y":null,"x":"\u0041\/"} } "#),
            form(r#"{"a":{"x":"A/","y":null},"b":[1,2]}"#)
        );
        assert_eq!(
            form(r#"{"a":"x\\","b":"\"}"}"#),
            r#"{"a":"x\\","b":"\"}",}"#
        );
    }

    #[test]
    fn numbers_count_as_they_are_written() {
        assert_ne!(form("18446744073709551616"), form("18446744073709551617"));
        assert_ne!(form("1"), form("1.0"));
        assert_eq!(form(" -1.5e3\n"), "-1.5e3");
    }

    #[test]
    fn lists_keep_their_order_and_shape() {
        assert_ne!(form("[1,2]"), form("[2,1]"));
        assert_ne!(form("[[1],2]"), form("[[1,2]]"));
        assert_eq!(form("[]"), "[]");
        assert_eq!(form("{}"), "{}");
    }

    #[test]
    fn half_a_surrogate_pair_is_kept() {
        assert_eq!(form(r#""\ud800""#), r#""\ud800""#);
        assert_ne!(form(r#""\ud800""#), form(r#""\ud801""#));
    }
}
