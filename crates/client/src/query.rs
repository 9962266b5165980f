//! The part of an address behind the question mark.

use std::fmt::{Display, Write};

/// Parameters, each of which may be given several times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(String);

impl Query {
    pub(crate) fn with(mut self, name: &str, value: impl Display) -> Self {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(name);
        self.0.push('=');
        for byte in value.to_string().bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                self.0.push(char::from(byte));
            } else {
                let _ = write!(self.0, "%{byte:02X}");
            }
        }
        self
    }

    pub(crate) fn with_some(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub(crate) fn with_each(
        self,
        name: &str,
        values: impl IntoIterator<Item = impl Display>,
    ) -> Self {
        let each = values.into_iter();
        each.fold(self, |query, value| query.with(name, value))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_special_is_written_as_bytes() {
        let query = Query::default()
            .with("tag", "a&b=ü ")
            .with_some("none", None::<u8>)
            .with_each("state", ["DONE", "FAILED"]);
        let expected = "?tag=a%26b%3D%C3%BC%20&state=DONE&state=FAILED";
        assert_eq!(query.as_str(), expected);
        assert_eq!(Query::default().as_str(), "");
    }
}
