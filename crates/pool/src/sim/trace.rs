//! The trace of a simulation: a hash over everything that it has decided so far, and the lines for people if they are wanted.
//!
//! Nothing in here may depend on the process: no addresses, no ids that other runs have used up, no real time.

use std::fmt::{self, Write as _};

/// See the module's head.
pub(super) struct Trace {
    hash: u64,
    lines: Option<String>,
}

impl Trace {
    pub(super) fn new(keeps_lines: bool) -> Trace {
        Trace {
            hash: 0xCBF2_9CE4_8422_2325,
            lines: keeps_lines.then(String::new),
        }
    }

    /// Notes something that has a number, without a line.
    #[inline]
    pub(super) fn number(&mut self, number: u64) {
        // The multiplication carries every bit upwards, the rotation brings it back down.
        self.hash = (self.hash.rotate_left(23) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    /// Notes a text and writes it down, after `who`, if lines are kept.
    pub(super) fn text(&mut self, who: Option<usize>, text: &str) {
        self.number(who.map_or(u64::MAX, |who| who as u64));
        for chunk in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
        self.line(who, format_args!("{text}"));
    }

    /// Writes a line if lines are kept. What it says must be in the hash already.
    pub(super) fn line(&mut self, who: Option<usize>, text: fmt::Arguments<'_>) {
        if let Some(lines) = &mut self.lines {
            let _ = match who {
                Some(who) => writeln!(lines, "[{who}] {text}"),
                None => writeln!(lines, "    {text}"),
            };
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn take_lines(&mut self) -> Option<String> {
        self.lines.take()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn hash_of(numbers: &[u64]) -> u64 {
        let mut trace = Trace::new(false);
        numbers.iter().for_each(|number| trace.number(*number));
        trace.hash()
    }

    #[test]
    fn every_number_and_its_place_count() {
        assert_eq!(hash_of(&[1, 2, 3]), hash_of(&[1, 2, 3]));
        assert_ne!(hash_of(&[1, 2, 3]), hash_of(&[1, 3, 2]));
        assert_ne!(hash_of(&[1, 2, 3]), hash_of(&[1, 2]));
        assert_ne!(hash_of(&[0]), hash_of(&[0, 0]));
    }

    #[test]
    fn lines_are_the_same_text_that_is_hashed() {
        let (mut kept, mut unkept) = (Trace::new(true), Trace::new(false));
        for trace in [&mut kept, &mut unkept] {
            trace.text(Some(2), "a text of more than eight bytes");
            trace.text(None, "another");
        }
        assert_eq!(kept.hash(), unkept.hash());
        let lines = kept.take_lines().unwrap();
        assert_eq!(lines, "[2] a text of more than eight bytes\n    another\n");
        assert_eq!(unkept.take_lines(), None);
    }
}
