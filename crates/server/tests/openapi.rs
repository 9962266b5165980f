//! The description of the interface: checked in as it is, sound, and true of a running server.

mod support;

use std::collections::BTreeSet;

use jobtree_protocol::{operations, paths};
use serde_json::Value;
use support::{House, NO_ID};

#[test]
fn what_is_checked_in_is_what_is_served() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let now = jobtree_server::openapi();
    if std::env::var_os("JOBTREE_WRITE_OPENAPI").is_some() {
        std::fs::write(file, &now).unwrap();
    }
    let kept = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        kept == now,
        "the interface has changed: look at the change, and write it down by\n\
         JOBTREE_WRITE_OPENAPI=1 cargo test -p jobtree-server --test openapi"
    );
    let house = House::new();
    let served = house.admin().get(paths::OPENAPI);
    assert_eq!(served.text(), now);
    assert_eq!(house.nobody().get(paths::OPENAPI).text(), now);
}

fn document() -> Value {
    serde_json::from_str(&jobtree_server::openapi()).unwrap()
}

/// All operations: method, path, description.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let each = document["paths"].as_object().unwrap().iter();
    each.flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter();
        methods.map(|(method, operation)| (method.to_uppercase(), path.clone(), operation.clone()))
    })
    .collect()
}

#[test]
fn it_is_sound() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (method, path, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap().to_owned();
        assert!(ids.insert(id.clone()), "{id} stands for two operations");
        let responses = operation["responses"].as_object().unwrap();
        assert!(
            responses.keys().any(|status| status.starts_with('2')),
            "{id}"
        );
        for status in ["400", "403", "421", "503"] {
            assert!(
                responses.contains_key(status),
                "{id} does not tell of {status}"
            );
        }
        for (status, answer) in responses {
            let common = answer["$ref"].as_str().and_then(|it| it.rsplit('/').next());
            let answer = common.map_or(answer, |it| &document["components"]["responses"][it]);
            if status.starts_with(['4', '5']) {
                let kinds = answer["content"].as_object().unwrap();
                assert!(
                    kinds.contains_key("application/problem+json"),
                    "{id} {status}"
                );
            }
            for link in answer["links"]
                .as_object()
                .into_iter()
                .flat_map(|it| it.values())
            {
                let to = link["operationId"].as_str().unwrap();
                let known = operations(&document)
                    .iter()
                    .any(|(_, _, it)| it["operationId"] == to);
                assert!(known, "{id} links to {to}");
            }
        }
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
        if let Some(name) = schema.as_str().and_then(|it| it.rsplit('/').next()) {
            let schema = &document["components"]["schemas"][name];
            assert_eq!(
                schema["additionalProperties"], false,
                "{method} {path}: {name} is open"
            );
        }
    }
    // Every reference leads somewhere.
    let text = jobtree_server::openapi();
    for part in text.split("\"$ref\": \"#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(
            document["components"]["schemas"].get(name).is_some(),
            "{name} is missing"
        );
    }
}

/// `oneOf` wants exactly one: JSON that may be anything beside null would fit null twice.
#[test]
fn null_is_described_once() {
    fn look(schema: &Value, path: &str) {
        let alternatives = schema["oneOf"].as_array().into_iter().flatten();
        let any = "#/components/schemas/Json";
        let is_doubled = alternatives.clone().any(|it| it["type"] == "null")
            && alternatives.clone().any(|it| it["$ref"] == any);
        assert!(!is_doubled, "{path}: null fits twice");
        match schema {
            Value::Object(fields) => fields
                .iter()
                .for_each(|(name, field)| look(field, &format!("{path}/{name}"))),
            Value::Array(items) => items.iter().for_each(|item| look(item, path)),
            _ => {}
        }
    }
    look(&document(), "");
}

/// The table, the routes of a running server and the document hold the same operations, with the same scopes.
#[test]
fn table_routes_and_document_have_the_same_operations() {
    let house = House::new();
    let mut admin = house.admin();
    let table: BTreeSet<_> = operations::all()
        .map(|operation| format!("{} {}", operation.method.as_str(), operation.path))
        .collect();
    let mut routes = BTreeSet::new();
    for operation in operations::all() {
        // No path has it, so each answers with the methods that it has.
        let path = paths::at(operation.path, NO_ID);
        let refused = admin.request("PATCH", &path, None, b"");
        let allowed = refused.header("allow").unwrap_or_default().to_owned();
        for method in allowed
            .split(',')
            .filter(|it| !it.is_empty() && *it != "HEAD")
        {
            routes.insert(format!("{method} {}", operation.path));
        }
    }
    let described = operations(&document()).into_iter();
    let described: BTreeSet<_> = described
        .map(|(method, path, _)| format!("{method} {path}"))
        .collect();
    assert_eq!(table, described);
    assert_eq!(table, routes);
}

#[test]
fn no_operation_takes_a_parameter_that_it_does_not_have() {
    let house = House::new();
    let mut admin = house.admin();
    let probes = [paths::HEALTH, paths::READY];
    for (method, path, operation) in operations(&document()) {
        let at = paths::at(&path, NO_ID);
        if probes.contains(&path.as_str()) {
            // Whoever looks whether it lives may add what they like.
            admin.get(&format!("{at}?unheard_of=1")).expect(200);
            continue;
        }
        // Beside one that it has, if it has any.
        let known = operation["parameters"].as_array();
        let mut known = known.into_iter().flatten();
        let known = known.find(|one| one["in"] == "query");
        let known = known.map_or(String::new(), |one| {
            format!("{}=1&", one["name"].as_str().unwrap())
        });
        let asked = format!("{at}?{known}unheard_of=1");
        let told = admin.request(&method, &asked, None, b"");
        let problem = told.problem(400, "malformed");
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains("\"unheard_of\""),
            "{method} {asked}: {detail}"
        );
    }
    // What is not there is not there, whatever is asked of it.
    admin.get("/nothing?unheard_of=1").problem(404, "not_found");
}

#[test]
fn what_is_answered_one_by_one_is_described_loosely_and_every_conflict_is_described() {
    let document = document();
    let schemas = &document["components"]["schemas"];
    let many = &schemas["SubmitManyRequest"]["properties"]["jobs"]["items"]["$ref"];
    assert_eq!(many, "#/components/schemas/SubmitOneOfMany");
    let one = &schemas["SubmitOneOfMany"];
    assert!(
        one["required"].as_array().is_none_or(Vec::is_empty),
        "{one}"
    );
    assert!(one["properties"]["tags"]["maxItems"].is_null(), "{one}");
    let create = &document["paths"][paths::WEBHOOKS]["post"];
    assert!(create["responses"]["409"].is_object(), "{create}");
}
