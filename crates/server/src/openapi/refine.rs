//! What the schemas of types do not say by themselves, said for all of them.

use serde_json::{Map, Value, json};

use super::bounds;

pub(super) fn refine(whole: &mut Value) {
    let schemas = whole["components"]["schemas"]
        .as_object_mut()
        .expect("schemas");
    // One of many is read as loosely as its types allow, and then answered for itself.
    let one = schemas["SubmitRequest"].clone();
    schemas.insert("SubmitOneOfMany".to_owned(), one);
    let named = json!("#/components/schemas/SubmitOneOfMany");
    schemas["SubmitManyRequest"]["properties"]["jobs"]["items"]["$ref"] = named;
    for (schema, field, bound) in bounds::all() {
        let field = &mut schemas[schema]["properties"][field];
        let field = field.as_object_mut().unwrap_or_else(|| {
            panic!("{schema} has no such field: change bounds.rs along with the type");
        });
        field.extend(bound.as_object().expect("bounds").clone());
    }
    for (schema, fields) in bounds::REQUIRED {
        schemas[*schema]["required"] = json!(fields);
        for field in *fields {
            let field = schemas[*schema]["properties"][field].as_object_mut();
            field.expect("a field").remove("default");
        }
    }
    flatten(schemas);
    for schema in schemas.values_mut() {
        each(schema, &mut whole_numbers);
        each(schema, &mut without_code);
    }
}

/// Makes one object of each that consists of others. Its parts may be closed, and it holds more than each of them.
fn flatten(schemas: &mut Map<String, Value>) {
    let known = schemas.clone();
    for schema in schemas.values_mut() {
        let Some(parts) = schema.get("allOf").and_then(Value::as_array).cloned() else {
            continue;
        };
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for part in &parts {
            let named = part["$ref"].as_str().and_then(|it| it.rsplit('/').next());
            let part = named.map_or(part, |name| &known[name]);
            properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
            required.extend(part["required"].as_array().cloned().unwrap_or_default());
        }
        let about = schema["description"].clone();
        *schema = json!({"type": "object", "properties": properties, "required": required});
        if about.is_string() {
            schema["description"] = about;
        }
    }
}

/// Whole numbers end somewhere, and those without a sign have formats of their own: a signed format would bound them by
/// half of what is accepted.
fn whole_numbers(schema: &mut Map<String, Value>) {
    let unsigned = schema
        .get("minimum")
        .is_some_and(|least| least.as_f64().is_some_and(|least| least >= 0.0));
    let (format, least, most) = match schema.get("format").and_then(Value::as_str) {
        Some("int32") if unsigned => ("uint32", json!(0), json!(u32::MAX)),
        Some("int32") => ("int32", json!(i32::MIN), json!(i32::MAX)),
        Some("int64") if unsigned => ("uint64", json!(0), json!(u64::MAX)),
        Some("int64") => ("int64", json!(i64::MIN), json!(i64::MAX)),
        _ => return,
    };
    schema.insert("format".to_owned(), json!(format));
    schema.entry("minimum").or_insert(least);
    schema.entry("maximum").or_insert(most);
}

/// Examples for programmers of one language are not for others.
fn without_code(schema: &mut Map<String, Value>) {
    if let Some(Value::String(about)) = schema.get_mut("description")
        && let Some(code) = about.find("\n\n```")
    {
        about.truncate(code);
    }
}

/// Goes through all objects within.
fn each(value: &mut Value, act: &mut dyn FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            act(fields);
            fields.values_mut().for_each(|field| each(field, act));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| each(item, act)),
        _ => {}
    }
}
