//! Queries: the part of an address behind the question mark, written by clients and read strictly by the server.

use std::borrow::Cow;
use std::fmt::{Display, Write};
use std::str::FromStr;

use serde_json::{Value, json};

use super::{MAX_ROWS, MAX_WAIT_SEC};
use crate::{ApiError, ErrorCode, JobState};

/// A type that is sent as a query.
pub trait QueryString: Sized {
    /// The parameters that it can have.
    const PARAMETERS: &'static [Parameter];
    /// Whether other parameters are refused: a misspelt one is never mistaken for one that was left out.
    const STRICT: bool = true;

    /// Reads it.
    ///
    /// # Errors
    /// If a parameter is not of its kind, or is given too often.
    fn read(reader: &mut Reader<'_>) -> Result<Self, ApiError>;

    /// Writes it.
    fn write(&self, writer: &mut Writer);
}

impl QueryString for () {
    const PARAMETERS: &'static [Parameter] = &[];

    fn read(_: &mut Reader<'_>) -> Result<Self, ApiError> {
        Ok(())
    }

    fn write(&self, _: &mut Writer) {}
}

/// A parameter of a query.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// The description of what the parameter selects.
    pub description: &'static str,
    /// Which values it can have.
    pub kind: Kind,
}

/// The values that a parameter can have.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// The name of an addon or job type.
    Name,
    /// An id.
    Uuid,
    /// The beginning or end of an id: hexadecimal digits, with or without hyphens.
    IdPart,
    /// Any text.
    Text,
    /// Any texts: repeated, or with commas between them.
    Texts,
    /// States of jobs: repeated, or with commas between them.
    States,
    /// A time (RFC 3339).
    Time,
    /// `true` or `false`.
    Flag,
    /// A place in a sequence: any whole number from 0.
    Cursor,
    /// A whole number between these, inclusive.
    Number(u32, u32),
    /// One of these words.
    OneOf(&'static [&'static str]),
}

impl Kind {
    /// The number of rows of a page.
    pub const ROWS: Self = Self::Number(1, MAX_ROWS);
    /// The seconds to wait.
    pub const WAIT: Self = Self::Number(0, MAX_WAIT_SEC);

    /// Returns the JSON schema of a value.
    pub fn schema(self) -> Value {
        match self {
            Self::Name => {
                json!({"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9._:-]+$"})
            }
            Self::Uuid => json!({"type": "string", "format": "uuid"}),
            Self::IdPart => {
                json!({"type": "string", "minLength": 1, "maxLength": 36, "pattern": "^[0-9A-Fa-f][0-9A-Fa-f-]*$"})
            }
            Self::Text => json!({"type": "string"}),
            Self::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Self::States => {
                let states = JobState::ALL.map(JobState::as_str);
                json!({"type": "array", "items": {"type": "string", "enum": states}})
            }
            Self::Time => json!({"type": "string", "format": "date-time"}),
            Self::Flag => json!({"type": "boolean"}),
            Self::Cursor => {
                json!({"type": "integer", "format": "uint64", "minimum": 0, "maximum": u64::MAX})
            }
            Self::Number(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
            Self::OneOf(words) => json!({"type": "string", "enum": words}),
        }
    }

    /// Returns what to write instead, if the text is not of this kind. Names, ids and times are judged by their types.
    fn refuse(self, text: &str) -> Option<String> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match self {
            Self::Number(min, max) => {
                let number = text.parse().ok().filter(|_| digits);
                let fits = number.is_some_and(|number: u32| (min..=max).contains(&number));
                (!fits).then(|| format!("write a whole number from {min} to {max}"))
            }
            Self::IdPart => {
                let begins = text.starts_with(|c: char| c.is_ascii_hexdigit());
                let rest = text
                    .bytes()
                    .all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
                let fits = begins && rest && text.len() <= 36;
                (!fits).then(|| "write the first or last hexadecimal digits of an id".to_owned())
            }
            Self::Cursor => (!digits).then(|| "write a whole number".to_owned()),
            Self::OneOf(words) if !words.contains(&text) => {
                Some(format!("write {}", words.join(" or ")))
            }
            _ => None,
        }
    }
}

/// Reads a query.
///
/// # Errors
/// If it has a parameter that is not known or not of its kind, a broken percent sign, or is not UTF-8.
pub fn read<Q: QueryString>(query: Option<&str>) -> Result<Q, ApiError> {
    let mut reader = Reader::new(query)?;
    let known = |name: &str| Q::PARAMETERS.iter().any(|known| known.name == name);
    let unknown = reader.pairs.iter().find(|(name, _)| !known(name));
    if let Some((name, _)) = unknown.filter(|_| Q::STRICT) {
        let name: String = name.chars().take(64).collect();
        return Err(malformed(format!(
            "there is no parameter {name:?} here: leave it out"
        )));
    }
    Q::read(&mut reader)
}

/// The parameters of a query that were not read yet.
#[derive(Debug)]
pub struct Reader<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Reader<'a> {
    /// Splits and decodes a query.
    fn new(query: Option<&'a str>) -> Result<Self, ApiError> {
        let mut pairs = Vec::new();
        for pair in query.unwrap_or_default().split('&') {
            if !pair.is_empty() {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                pairs.push((decoded(name)?, decoded(value)?));
            }
        }
        Ok(Self { pairs })
    }

    /// Takes the value of a parameter.
    ///
    /// # Errors
    /// If it is not of the parameter's kind.
    pub fn take<T: ParameterValue>(&mut self, parameter: &Parameter) -> Result<T, ApiError> {
        let mut values = Vec::new();
        self.pairs.retain_mut(|(name, value)| {
            let found = *name == parameter.name;
            if found {
                values.push(std::mem::take(value));
            }
            !found
        });
        T::read(parameter, values)
    }
}

/// A type that a parameter can have.
pub trait ParameterValue: Sized {
    /// Reads the value from the texts that were given.
    ///
    /// # Errors
    /// If they are not of the parameter's kind.
    fn read(parameter: &Parameter, given: Vec<Cow<'_, str>>) -> Result<Self, ApiError>;

    /// Writes the value.
    fn write(&self, name: &str, writer: &mut Writer);
}

impl<T: FromStr + Display> ParameterValue for Option<T>
where
    T::Err: Display,
{
    fn read(parameter: &Parameter, given: Vec<Cow<'_, str>>) -> Result<Self, ApiError> {
        let Some(text) = at_most_once(parameter, given)? else {
            return Ok(None);
        };
        if let Some(wanted) = parameter.kind.refuse(&text) {
            return Err(wrong(parameter.name, &text, &wanted));
        }
        let value = text.parse();
        value
            .map(Some)
            .map_err(|error| wrong(parameter.name, &text, &error))
    }

    fn write(&self, name: &str, writer: &mut Writer) {
        if let Some(value) = self {
            writer.pair(name, value);
        }
    }
}

impl ParameterValue for bool {
    /// Is `false` if absent.
    fn read(parameter: &Parameter, given: Vec<Cow<'_, str>>) -> Result<Self, ApiError> {
        match at_most_once(parameter, given)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(wrong(parameter.name, other, &"write true or false")),
        }
    }

    fn write(&self, name: &str, writer: &mut Writer) {
        if *self {
            writer.pair(name, true);
        }
    }
}

impl<T: FromStr + Display> ParameterValue for Vec<T>
where
    T::Err: Display,
{
    fn read(_: &Parameter, given: Vec<Cow<'_, str>>) -> Result<Self, ApiError> {
        let each = given.iter().flat_map(|text| text.split(','));
        each.map(|text| {
            text.parse()
                .map_err(|error: T::Err| malformed(error.to_string()))
        })
        .collect()
    }

    fn write(&self, name: &str, writer: &mut Writer) {
        self.iter().for_each(|value| writer.pair(name, value));
    }
}

fn at_most_once<'a>(
    parameter: &Parameter,
    mut given: Vec<Cow<'a, str>>,
) -> Result<Option<Cow<'a, str>>, ApiError> {
    if given.len() > 1 {
        let (name, times) = (parameter.name, given.len());
        return Err(malformed(format!(
            "{name} is given {times} times: give it once"
        )));
    }
    Ok(given.pop())
}

fn malformed(message: String) -> ApiError {
    ApiError::new(ErrorCode::Malformed, message)
}

fn wrong(name: &str, value: &str, wanted: &dyn Display) -> ApiError {
    let value: String = value.chars().take(64).collect();
    malformed(format!("{name} is {value:?}: {wanted}"))
}

/// Decodes percent signs and pluses.
fn decoded(text: &str) -> Result<Cow<'_, str>, ApiError> {
    if !text.contains(['%', '+']) {
        return Ok(Cow::Borrowed(text));
    }
    let broken = || malformed("the query has a broken percent sign, or is not UTF-8".to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| (byte? as char).to_digit(16);
                match (digit(rest.next()), digit(rest.next())) {
                    (Some(high), Some(low)) => (high * 16 + low) as u8,
                    _ => return Err(broken()),
                }
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes)
        .map(Cow::Owned)
        .map_err(|_| broken())
}

/// Writes a query.
#[derive(Clone, Debug, Default)]
pub struct Writer(String);

impl Writer {
    /// Returns what a query is written as: with its question mark, or empty.
    pub fn text(query: &impl QueryString) -> String {
        let mut writer = Self::default();
        query.write(&mut writer);
        writer.0
    }

    /// Adds a parameter.
    pub fn add(&mut self, name: &str, value: &impl ParameterValue) {
        value.write(name, self);
    }

    fn pair(&mut self, name: &str, value: impl Display) {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobQuery;
    use crate::operations::{JobWait, LogQuery, RecentQuery};

    fn read<T: QueryString>(query: &str) -> Result<T, ApiError> {
        super::read(Some(query))
    }

    #[test]
    fn special_characters_survive_writing_and_reading() {
        let query = JobQuery {
            state: vec![JobState::Done, JobState::Failed],
            tag: Some("a&b=ü ".to_owned()),
            quarantined: true,
            ..JobQuery::default()
        };
        let text = Writer::text(&query);
        let expected = "?state=DONE&state=FAILED&tag=a%26b%3D%C3%BC%20&quarantined=true";
        assert_eq!(text, expected);
        assert_eq!(read::<JobQuery>(&text[1..]).unwrap(), query);
        assert_eq!(Writer::text(&()), "");
        assert_eq!(read::<JobQuery>("tag=a+b").unwrap().tag.unwrap(), "a b");
        let listed: JobQuery = read("state=done,FAILED").unwrap();
        assert_eq!(listed.state, query.state);
    }

    #[test]
    fn numbers_have_bounds_and_no_signs() {
        let wait = |text: &str| read::<JobWait>(text).map(|query| query.wait_sec);
        assert_eq!(wait("wait_sec=600").unwrap(), Some(600));
        assert_eq!(wait("").unwrap(), None);
        let refused = [
            "wait_sec=601",
            "wait_sec=%2B5",
            "wait_sec=",
            "wait_sec=1.0",
            "wait_sec=1&wait_sec=1",
        ];
        for text in refused {
            assert!(wait(text).is_err(), "{text}");
        }
        for text in [
            "after=",
            "after=%2B5",
            "after=-1",
            "after=18446744073709551616",
        ] {
            assert!(read::<LogQuery>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_part_of_an_id_is_hexadecimal() {
        let part = |text: &str| read::<RecentQuery>(text).map(|query| query.id);
        assert_eq!(part("id=3F-2a").unwrap().as_deref(), Some("3F-2a"));
        assert_eq!(part("").unwrap(), None);
        let long = format!("id={}", "0".repeat(37));
        for text in ["id=", "id=-", "id=-a", "id=x", "id=a%20", &long] {
            assert!(part(text).is_err(), "{text}");
        }
    }

    #[test]
    fn unknown_parameters_and_broken_escapes_are_refused() {
        for text in [
            "wait=1",
            "wait_sec=1&wait=1",
            "%zz",
            "wait_sec=%zz",
            "wait_sec=%ff",
        ] {
            assert!(read::<JobWait>(text).is_err(), "{text}");
        }
        assert!(read::<()>("a=1").is_err());
        assert!(read::<()>("").is_ok());
        assert!(read::<super::super::AnyQuery>("a=1").is_ok());
    }
}
