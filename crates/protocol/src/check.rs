//! Collects what is wrong with a request: every field is looked at, and each gets one message.

use crate::{FieldError, Json};

/// The messages so far.
#[derive(Default)]
pub(crate) struct Check {
    wrong: Vec<FieldError>,
}

impl Check {
    /// Notes what is wrong with a field.
    pub(crate) fn refuse(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.wrong.push(FieldError::new(field, message));
    }

    /// A value, or a message and a stand-in that is never used.
    pub(crate) fn or_note<T>(
        &mut self,
        field: &str,
        result: Result<T, impl ToString>,
    ) -> Option<T> {
        result
            .map_err(|wrong| self.refuse(field, wrong.to_string()))
            .ok()
    }

    /// A whole number within bounds.
    pub(crate) fn number(&mut self, field: &str, value: i64, least: u32, most: u32) -> u32 {
        match u32::try_from(value) {
            Ok(value) if (least..=most).contains(&value) => value,
            _ => {
                self.refuse(
                    field,
                    format!("is {value}: write a whole number from {least} to {most}"),
                );
                least
            }
        }
    }

    /// A duration in whole seconds, at least one.
    pub(crate) fn seconds(&mut self, field: &str, value: Option<i64>) -> Option<u32> {
        /// A hundred years: enough for any job, and no arithmetic with it overflows.
        const LONGEST: u32 = 3_155_760_000;
        value.map(|value| self.number(field, value, 1, LONGEST))
    }

    /// A text of 1 to `most` bytes without control characters: it is shown in lists and written into logs.
    pub(crate) fn text(&mut self, field: &str, text: &str, most: usize) {
        if text.is_empty() {
            self.refuse(field, "is empty: write something, or leave it out");
        } else if text.len() > most {
            self.refuse(
                field,
                format!("has {} bytes: shorten it to {most} at most", text.len()),
            );
        } else if let Some(c) = text.chars().find(|c| c.is_control()) {
            self.refuse(
                field,
                format!("holds the control character {c:?}: leave it out"),
            );
        }
    }

    /// A list of texts: not too many; sorted, and each once.
    pub(crate) fn texts(
        &mut self,
        field: &str,
        texts: Vec<String>,
        count: usize,
        bytes: usize,
    ) -> Vec<String> {
        if texts.len() > count {
            self.refuse(
                field,
                format!("has {} entries: write {count} at most", texts.len()),
            );
            return Vec::new();
        }
        for (index, text) in texts.iter().enumerate() {
            self.text(&format!("{field}[{index}]"), text, bytes);
        }
        let mut texts = texts;
        texts.sort_unstable();
        texts.dedup();
        texts
    }

    /// A JSON text that is neither too long nor too deep.
    pub(crate) fn json(&mut self, field: &str, json: &Json, bytes: usize, depth: usize) {
        let (length, deep) = (json.text().len(), json.depth());
        if length > bytes {
            let advice = "put it into a file or bucket, and name that here";
            self.refuse(
                field,
                format!("has {length} bytes, and {bytes} are allowed: {advice}"),
            );
        } else if deep > depth {
            self.refuse(
                field,
                format!("is nested {deep} deep, and {depth} are allowed: make it flatter"),
            );
        }
    }

    /// A share from 0 to 1.
    pub(crate) fn share(&mut self, field: &str, value: f64) {
        if !(0.0..=1.0).contains(&value) {
            self.refuse(field, format!("is {value}: write a number from 0 to 1"));
        }
    }

    pub(crate) fn finish<T>(self, value: T) -> Result<T, Vec<FieldError>> {
        if self.wrong.is_empty() {
            Ok(value)
        } else {
            Err(self.wrong)
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.wrong.is_empty()
    }

    pub(crate) fn into_errors(self) -> Vec<FieldError> {
        self.wrong
    }
}
