//! Checks documents by `docs/json.schema.json`, which refers to the schemas of `openapi.json`.
//!
//! Of JSON Schema it knows the keywords that these two files use, and panics at any other: none is skipped in silence.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Keywords that say nothing about what is allowed, or something that these checks leave to the daemon's own tests.
const NOT_CHECKED: [&str; 5] = [
    "description",
    "default",
    "pattern",
    "propertyNames",
    "maxProperties",
];

/// A file with schemas.
#[derive(Clone, Copy, PartialEq, Eq)]
enum File {
    Output,
    Interface,
}

pub struct Schemas {
    output: Value,
    interface: Value,
}

impl Schemas {
    pub fn read() -> Self {
        let parse = |text: &str| serde_json::from_str(text).expect("a schema is JSON");
        Schemas {
            output: parse(include_str!("../../../../docs/json.schema.json")),
            interface: parse(include_str!("../../../server/openapi.json")),
        }
    }

    /// The names that have a schema.
    pub fn names(&self) -> BTreeSet<String> {
        let all = self.output["$defs"].as_object().expect("definitions");
        let names = all.keys().filter(|name| *name != "versioned");
        names.cloned().collect()
    }

    /// Returns what is wrong with a document of a command.
    pub fn check(&self, name: &str, document: &Value) -> Result<(), String> {
        let schema = &self.output["$defs"][name];
        assert!(schema.is_object(), "there is no schema of {name:?}");
        self.fits(File::Output, schema, document, name, &mut BTreeSet::new())
    }

    fn find(&self, from: File, reference: &str) -> (File, &Value) {
        let (file, pointer) = reference.split_once('#').expect("a reference has a #");
        let file = match file {
            "" => from,
            "../crates/server/openapi.json" => File::Interface,
            other => panic!("there is no file {other:?}"),
        };
        let whole = match file {
            File::Output => &self.output,
            File::Interface => &self.interface,
        };
        let found = whole.pointer(pointer);
        (
            file,
            found.unwrap_or_else(|| panic!("{reference} leads nowhere")),
        )
    }

    /// Returns an error with its place if a value does not fit. Properties of the value that the schema describes are added to
    /// `described`.
    fn fits(
        &self,
        file: File,
        schema: &Value,
        value: &Value,
        place: &str,
        described: &mut BTreeSet<String>,
    ) -> Result<(), String> {
        let rules = schema.as_object().expect("a schema is an object");
        let wrong = |what: String| Err(format!("{place}: {what}: {value:.300}"));
        for (keyword, rule) in rules {
            let number = || rule.as_f64().expect("a number");
            let is_met = match keyword.as_str() {
                "$ref" => {
                    let (file, schema) = self.find(file, rule.as_str().expect("a text"));
                    self.fits(file, schema, value, place, described)?;
                    true
                }
                "allOf" => {
                    for each in rule.as_array().expect("a list") {
                        self.fits(file, each, value, place, described)?;
                    }
                    true
                }
                "oneOf" => {
                    self.one_of(file, rule, value, place, described)?;
                    true
                }
                "properties" | "additionalProperties" | "items" => {
                    self.parts(file, rules, keyword, value, place, described)?;
                    true
                }
                "required" => {
                    let names = rule.as_array().expect("a list").iter();
                    let mut names = names.map(|name| name.as_str().expect("a name"));
                    value
                        .as_object()
                        .is_none_or(|fields| names.all(|name| fields.contains_key(name)))
                }
                "type" => match rule {
                    Value::Array(types) => types.iter().any(|one| is(value, one)),
                    one => is(value, one),
                },
                "const" => value == rule,
                "enum" => rule.as_array().expect("a list").contains(value),
                "minimum" => value.as_f64().is_none_or(|value| value >= number()),
                "maximum" => value.as_f64().is_none_or(|value| value <= number()),
                "minLength" => characters(value).is_none_or(|count| count >= number()),
                "maxLength" => characters(value).is_none_or(|count| count <= number()),
                "minItems" => entries(value).is_none_or(|count| count >= number()),
                "maxItems" => entries(value).is_none_or(|count| count <= number()),
                "format" => value.as_str().is_none_or(|text| is_written_as(text, rule)),
                "unevaluatedProperties" => true,
                other => {
                    assert!(NOT_CHECKED.contains(&other), "{place}: unknown {other:?}");
                    true
                }
            };
            if !is_met {
                return wrong(format!("breaks {keyword} {rule:.200}"));
            }
        }
        if rules.get("unevaluatedProperties") == Some(&Value::Bool(false)) {
            let mut fields = value.as_object().into_iter().flat_map(Map::keys);
            if let Some(name) = fields.find(|name| !described.contains(*name)) {
                return wrong(format!("{name:?} is not described"));
            }
        }
        Ok(())
    }

    fn one_of(
        &self,
        file: File,
        rule: &Value,
        value: &Value,
        place: &str,
        described: &mut BTreeSet<String>,
    ) -> Result<(), String> {
        let mut told = Vec::new();
        let mut fitting = 0;
        for each in rule.as_array().expect("a list") {
            let mut here = BTreeSet::new();
            match self.fits(file, each, value, place, &mut here) {
                Ok(()) => {
                    fitting += 1;
                    described.append(&mut here);
                }
                Err(why) => told.push(why),
            }
        }
        match fitting {
            1 => Ok(()),
            0 => Err(told.join("; or ")),
            many => Err(format!("{place}: fits {many} of several")),
        }
    }

    fn parts(
        &self,
        file: File,
        rules: &Map<String, Value>,
        keyword: &str,
        value: &Value,
        place: &str,
        described: &mut BTreeSet<String>,
    ) -> Result<(), String> {
        let rule = &rules[keyword];
        if keyword == "items" {
            let items = value.as_array().into_iter().flatten().enumerate();
            for (index, item) in items {
                let place = format!("{place}[{index}]");
                self.fits(file, rule, item, &place, &mut BTreeSet::new())?;
            }
            return Ok(());
        }
        let named = rules.get("properties").and_then(Value::as_object);
        for (name, field) in value.as_object().into_iter().flatten() {
            let own = named.and_then(|named| named.get(name));
            let rule = match (keyword, own) {
                ("properties", Some(own)) => own,
                ("additionalProperties", None) => rule,
                _ => continue,
            };
            let place = format!("{place}.{name}");
            match rule {
                Value::Bool(true) => {}
                Value::Bool(false) => return Err(format!("{place} is not allowed")),
                schema => self.fits(file, schema, field, &place, &mut BTreeSet::new())?,
            }
            described.insert(name.clone());
        }
        Ok(())
    }
}

fn is(value: &Value, kind: &Value) -> bool {
    match kind.as_str().expect("a type") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("there is no type {other:?}"),
    }
}

fn characters(value: &Value) -> Option<f64> {
    value.as_str().map(|text| text.chars().count() as f64)
}

fn entries(value: &Value) -> Option<f64> {
    value.as_array().map(|list| list.len() as f64)
}

fn is_written_as(text: &str, format: &Value) -> bool {
    match format.as_str().expect("a format") {
        // JSON has UTC, whatever the zone of the machine is.
        "date-time" => text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok(),
        "uuid" => text.parse::<uuid::Uuid>().is_ok(),
        other => panic!("there is no format {other:?} of texts"),
    }
}
