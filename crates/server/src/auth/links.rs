//! Sign-in links: codes that begin one session each, within a minute.
//!
//! A code stands in the fragment of an address, which browsers keep to themselves: no proxy and no log sees it. The page takes
//! it out of the address at once and sends it as a body. Codes are kept hashed, and in memory only: a daemon that starts again
//! has forgotten them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jobtree_protocol::SignInLink;
use uuid::Uuid;

use super::secret::{Hash, draw_code};

/// The most codes that wait to be used. The oldest gives way to another.
const MOST: usize = 1000;

/// The codes that were not used yet.
pub(crate) struct Links {
    lifetime: Duration,
    /// By the hash of the code.
    waiting: Mutex<HashMap<String, Waiting>>,
}

struct Waiting {
    /// The token that the link was made with.
    token: Uuid,
    ends: Instant,
}

impl Links {
    pub(crate) fn new(lifetime: Duration) -> Self {
        Self {
            lifetime,
            waiting: Mutex::default(),
        }
    }

    /// Makes a code for the holder of this token.
    pub(crate) fn make(&self, token: Uuid) -> SignInLink {
        let code = draw_code();
        let now = Instant::now();
        let ends = now + self.lifetime;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, link| now < link.ends);
        if waiting.len() >= MOST {
            let oldest = waiting.iter().min_by_key(|(_, link)| link.ends);
            let oldest = oldest.map(|(hash, _)| hash.clone());
            oldest.and_then(|hash| waiting.remove(&hash));
        }
        waiting.insert(Hash::of(&code).text(), Waiting { token, ends });
        SignInLink {
            code,
            expires_at: jobtree_protocol::whole_micros(Timestamp::now() + self.lifetime),
        }
    }

    /// Uses a code up. Returns the token that it was made with, if the code is one and came in time.
    pub(crate) fn take(&self, code: &str) -> Option<Uuid> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let link = waiting.remove(&Hash::of(code).text())?;
        (Instant::now() < link.ends).then_some(link.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_taken_once_and_in_time() {
        let links = Links::new(Duration::from_secs(60));
        let token = Uuid::new_v4();
        let code = links.make(token).code;
        assert_eq!(links.take("another"), None);
        assert_eq!(links.take(&code), Some(token));
        assert_eq!(links.take(&code), None);
        let late = Links::new(Duration::ZERO);
        let code = late.make(token).code;
        assert_eq!(late.take(&code), None);
    }

    #[test]
    fn the_oldest_code_gives_way() {
        let links = Links::new(Duration::from_secs(60));
        let tokens: Vec<_> = (0..=MOST).map(|_| Uuid::new_v4()).collect();
        let codes: Vec<_> = tokens.iter().map(|token| links.make(*token).code).collect();
        assert_eq!(links.take(&codes[0]), None);
        assert_eq!(links.take(&codes[1]), Some(tokens[1]));
        assert_eq!(links.take(&codes[MOST]), Some(tokens[MOST]));
    }
}
