//! What did not stop when it was asked to.

use std::fmt;

/// Jobs that went on although they were asked to stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stragglers(Vec<String>);

impl Stragglers {
    pub(crate) fn at(paths: Vec<String>) -> Self {
        Stragglers(paths)
    }

    /// Where they are in the tree.
    pub fn paths(&self) -> &[String] {
        &self.0
    }

    /// Adds others.
    pub fn extend(&mut self, more: Stragglers) {
        self.0.extend(more.0);
    }

    /// An error if there are any.
    ///
    /// # Errors
    /// With these.
    pub fn into_result(self) -> Result<(), Stragglers> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Stragglers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        write!(
            f,
            "{count} jobs did not stop; let them look whether they are cancelled: "
        )?;
        f.write_str(&self.0.join(", "))
    }
}

impl std::error::Error for Stragglers {}
