//! A token: `jt_`, an id that says which one it is, `_`, and 256 random bits that prove it.
//!
//! Only a hash of the random part is kept. It is drawn, not chosen, so that a plain SHA-256 is as good as a slow hash:
//! there is nothing to guess.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

const MARK: &str = "jt_";
/// The beginning of a session's secret, which is no token.
const SESSION_MARK: &str = "js_";
const ID_LENGTH: usize = 32;
const RANDOM_LENGTH: usize = 64;

/// A token in clear. It is neither shown by `Debug` nor kept longer than needed.
pub(crate) struct Secret {
    pub(crate) id: Uuid,
    random: String,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.id)
    }
}

impl Secret {
    /// A new one.
    pub(crate) fn draw() -> Self {
        Self {
            id: Uuid::new_v4(),
            random: draw_code(),
        }
    }

    /// What its holder is given.
    pub(crate) fn text(&self) -> String {
        format!("{MARK}{}_{}", self.id.simple(), self.random)
    }

    /// Returns the value of a session's cookie.
    pub(crate) fn cookie_text(&self) -> String {
        format!("{SESSION_MARK}{}_{}", self.id.simple(), self.random)
    }

    pub(crate) fn hash(&self) -> Hash {
        Hash::of(&self.random)
    }

    /// Reads one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (id, random) = split(text)?;
        let random = random.to_owned();
        Some(Self { id, random })
    }
}

/// Returns a code that cannot be guessed.
pub(crate) fn draw_code() -> String {
    let mut random = [0_u8; RANDOM_LENGTH / 2];
    getrandom::fill(&mut random).expect("the system gives random numbers");
    hex(&random)
}

/// The id and the random part of a token's text.
pub(crate) fn split(text: &str) -> Option<(Uuid, &str)> {
    split_behind(MARK, text)
}

/// The id and the random part of the value of a session's cookie.
pub(crate) fn split_cookie(text: &str) -> Option<(Uuid, &str)> {
    split_behind(SESSION_MARK, text)
}

fn split_behind<'a>(mark: &str, text: &'a str) -> Option<(Uuid, &'a str)> {
    let (id, random) = text.strip_prefix(mark)?.split_once('_')?;
    let sound = id.len() == ID_LENGTH && random.len() == RANDOM_LENGTH;
    let id = sound.then(|| Uuid::try_parse(id).ok()).flatten()?;
    Some((id, random))
}

/// What is kept of a token.
#[derive(Clone, Copy)]
pub(crate) struct Hash([u8; 32]);

impl Hash {
    pub(crate) fn of(random: &str) -> Self {
        Self(Sha256::digest(random.as_bytes()).into())
    }

    /// Whether they are the same, in a time that does not tell where they differ.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    pub(crate) fn text(&self) -> String {
        hex(&self.0)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let digit = |at: usize| (pair[at] as char).to_digit(16);
            *byte = (digit(0)? * 16 + digit(1)?) as u8;
        }
        Some(Self(bytes))
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| DIGITS[digit as usize] as char).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_again_and_another_does_not_match() {
        let (one, other) = (Secret::draw(), Secret::draw());
        let read = Secret::parse(&one.text()).unwrap();
        assert_eq!(read.id, one.id);
        assert!(read.hash().matches(&one.hash()));
        assert!(!read.hash().matches(&other.hash()));
        let kept = Hash::parse(&one.hash().text()).unwrap();
        assert!(kept.matches(&one.hash()));
        assert!(!format!("{one:?}").contains(&one.random));
    }

    #[test]
    fn what_is_no_token_is_not_read() {
        let whole = Secret::draw().text();
        for wrong in ["", "jt_", &whole[1..], &whole[..whole.len() - 1]] {
            assert!(Secret::parse(wrong).is_none(), "{wrong}");
        }
        assert!(Hash::parse("xy").is_none());
    }
}
