//! Names of things: ids that are drawn, and names that people choose.
//!
//! A drawn id is a UUID. Job ids are version 7, so that they sort by the time of their submission and new rows lie side
//! by side; lease and instance ids are random, since they are fences: nobody may guess one or meet an old one again.
//! A chosen name is 1 to 128 characters of letters, digits, `.`, `_`, `:` and `-`: it stands in URLs, metrics and
//! file names as it is.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

macro_rules! drawn {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// An id of given random bytes, for whoever must be able to repeat a run.
            pub fn from_random(random: [u8; 16]) -> Self {
                Self(uuid::Builder::from_random_bytes(random).into_uuid())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                text.parse().map(Self)
            }
        }
    };
}

drawn! {
    /// One job, from its submission until its history is pruned.
    JobId
}
drawn! {
    /// One grant. Every grant has a new one, which makes it the fence: a call with an older one is refused.
    LeaseId
}
drawn! {
    /// One schedule.
    ScheduleId
}
drawn! {
    /// One start of a process. A worker that starts again under its old name is another one.
    InstanceId
}

impl JobId {
    /// A new id, of this machine's clock and randomness. It is greater than all that this process has drawn before.
    pub fn generate() -> Self {
        Self(crate::draw::version_7())
    }

    /// The id that a given time and given random bytes make.
    pub fn from_parts(at: Timestamp, random: [u8; 10]) -> Self {
        let millis = u64::try_from(at.as_millisecond()).unwrap_or(0);
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }
}

impl LeaseId {
    /// A new id, of this machine's randomness.
    pub fn generate() -> Self {
        Self(Uuid::new_v4())
    }
}

impl ScheduleId {
    /// A new id, of this machine's clock and randomness.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }
}

impl InstanceId {
    /// A new id, of this machine's randomness: one a process start.
    pub fn generate() -> Self {
        Self(Uuid::new_v4())
    }
}

/// A text that is no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName(String);

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidName {}

/// The longest name.
const LONGEST: usize = 128;

fn check(text: &str) -> Result<(), InvalidName> {
    if text.is_empty() {
        return Err(InvalidName(format!(
            "is missing: write 1 to {LONGEST} letters, digits, '.', '_', ':' or '-'"
        )));
    }
    if text.len() > LONGEST {
        let length = text.len();
        return Err(InvalidName(format!(
            "has {length} bytes: shorten it to {LONGEST} at most"
        )));
    }
    match text
        .chars()
        .find(|c| !c.is_ascii_alphanumeric() && !"._:-".contains(*c))
    {
        Some(c) => Err(InvalidName(format!(
            "holds {c:?}: write letters, digits, '.', '_', ':' or '-' only"
        ))),
        None => Ok(()),
    }
}

macro_rules! chosen {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[cfg_attr(feature = "openapi", schema(value_type = String, min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9._:-]+$"))]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a name.
            ///
            /// # Errors
            /// What is wrong with it, and what to write instead.
            pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidName> {
                let text = text.as_ref();
                check(text).map(|()| Self(text.into()))
            }

            /// The name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::new(&text).map_err(|wrong| serde::de::Error::custom(format!("{} {wrong}", stringify!($name))))
            }
        }
    };
}

chosen! {
    /// Who submits and runs jobs: the tenant among whom capacity is shared.
    AddonId
}
chosen! {
    /// What kind of job it is, within its addon.
    JobType
}
chosen! {
    /// A machine that runs jobs. Also used for the labels that a machine carries.
    NodeId
}
