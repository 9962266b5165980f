//! What is wrong with a policy.

use std::fmt;

/// A policy that was refused; the one in force stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// Not TOML, an unknown key or a value of the wrong kind; the message shows the line.
    Text(String),
    /// Values that cannot be, each with its field.
    Values(Vec<Violation>),
}

/// One value that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field, as `section.key`.
    pub field: String,
    /// What it was.
    pub value: String,
    /// What is allowed.
    pub allowed: String,
}

impl PolicyError {
    pub(super) fn text(message: String) -> PolicyError {
        PolicyError::Text(message)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}: {}", self.field, self.value, self.allowed)
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Text(message) => write!(f, "the policy cannot be read: {message}"),
            PolicyError::Values(violations) => {
                f.write_str("the policy is refused; the one in force stays: ")?;
                for (index, violation) in violations.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "; " };
                    write!(f, "{comma}{violation}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for PolicyError {}
