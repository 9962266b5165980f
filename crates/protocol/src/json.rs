//! JSON that is carried and not looked into: payloads and results.
//!
//! It is kept as the text that came, so a large payload is scanned once and never rebuilt, and a worker gets the very
//! bytes that the submitter sent.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A valid JSON text.
// Null is one, too: a field that may be missing is described as `Json` and not as "either `Json` or null", which null would
// fit twice.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Writes a value as JSON.
    ///
    /// # Errors
    /// If the value has no JSON form (a map with keys that are no strings, say).
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// Takes a text that is JSON.
    ///
    /// # Errors
    /// If it is not.
    pub fn from_text(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self)
    }

    /// The text.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Reads it as a value.
    ///
    /// # Errors
    /// If it has another shape.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.text())
    }

    /// How deep lists and objects lie in each other: 0 for a number or a string.
    pub fn depth(&self) -> usize {
        let (mut depth, mut deepest) = (0_usize, 0);
        let mut bytes = self.text().bytes();
        while let Some(byte) = bytes.next() {
            match byte {
                b'[' | b'{' => {
                    depth += 1;
                    deepest = deepest.max(depth);
                }
                b']' | b'}' => depth -= 1,
                b'"' => skip_string(&mut bytes),
                _ => {}
            }
        }
        deepest
    }
}

/// Goes on behind the end of a string whose opening quote was just read.
fn skip_string(bytes: &mut impl Iterator<Item = u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => return,
            _ => {}
        }
    }
}

/// By their texts: `1.0` and `1` differ, and so do texts with other spaces.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
