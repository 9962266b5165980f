//! Collects operations and the schemas that they use.

use std::collections::BTreeMap;

use jobtree_protocol::{Problem, Scope};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, schema::Schema};

/// What was said so far.
#[derive(Default)]
pub(super) struct Book {
    paths: BTreeMap<String, Map<String, Value>>,
    schemas: BTreeMap<String, RefOr<Schema>>,
}

impl Book {
    /// A reference to a type's schema, which is noted with all that it uses.
    fn refer<T: ToSchema>(&mut self) -> Value {
        let mut used = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut used);
        self.schemas.extend(used);
        json!({"$ref": format!("#/components/schemas/{}", T::name())})
    }

    /// Begins an operation.
    pub(super) fn operation(
        &mut self,
        method: &'static str,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Operation<'_> {
        Operation {
            book: self,
            method,
            path,
            id,
            summary,
            open: false,
            scope: None,
            parameters: Vec::new(),
            body: None,
            responses: Map::new(),
        }
    }

    /// The whole document.
    pub(super) fn finish(mut self) -> Value {
        self.refer::<Problem>();
        let common = COMMON.map(|(status, about)| (status.to_string(), problem(about)));
        let common: BTreeMap<_, _> = common.into_iter().collect();
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "jobtree",
                "description": "The durable queue: jobs, leases, schedules, and what is known of them.",
                "version": env!("CARGO_PKG_VERSION"),
                "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
            },
            "servers": [{"url": "/"}],
            "security": [{"token": []}],
            "paths": self.paths,
            "components": {
                "schemas": self.schemas,
                "responses": common,
                "securitySchemes": {
                    "token": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "The token in `admin.token`, or one made of it.",
                    },
                },
            },
        })
    }
}

/// One operation, being described.
#[must_use = "it is noted by `end`"]
pub(super) struct Operation<'a> {
    book: &'a mut Book,
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    open: bool,
    scope: Option<Scope>,
    parameters: Vec<Value>,
    body: Option<Value>,
    responses: Map<String, Value>,
}

impl Operation<'_> {
    /// What a token must allow.
    pub(super) fn scope(mut self, scope: Scope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// It needs no token.
    pub(super) fn open(mut self) -> Self {
        self.open = true;
        self
    }

    /// A parameter of the query.
    pub(super) fn query(mut self, name: &str, about: &str, schema: Value) -> Self {
        self.parameters.push(json!({
            "name": name,
            "in": "query",
            "description": about,
            "required": false,
            "schema": schema,
        }));
        self
    }

    /// A JSON body, with an example.
    pub(super) fn body<T: ToSchema>(self, example: Value) -> Self {
        self.json_body::<T>(example, true)
    }

    /// A JSON body that may be left out.
    pub(super) fn maybe_body<T: ToSchema>(self, example: Value) -> Self {
        self.json_body::<T>(example, false)
    }

    fn json_body<T: ToSchema>(mut self, example: Value, required: bool) -> Self {
        let schema = self.book.refer::<T>();
        self.body = Some(json!({
            "required": required,
            "content": {"application/json": {"schema": schema, "example": example}},
        }));
        self
    }

    /// A body of TOML.
    pub(super) fn toml_body(mut self, example: &str) -> Self {
        let about = format!("For example:\n\n{example}");
        let text = json!({"schema": {"type": "string", "description": about}});
        self.body = Some(json!({"required": true, "content": {"application/toml": text}}));
        self
    }

    /// Answers with JSON.
    pub(super) fn answers<T: ToSchema>(mut self, status: u16, about: &str) -> Self {
        let schema = self.book.refer::<T>();
        let content = json!({"application/json": {"schema": schema}});
        let answer = json!({"description": about, "content": content});
        self.responses.insert(status.to_string(), answer);
        self
    }

    /// Answers with JSON of any shape.
    pub(super) fn answers_object(mut self, about: &str) -> Self {
        let content = json!({"application/json": {"schema": {"type": "object"}}});
        let answer = json!({"description": about, "content": content});
        self.responses.insert("200".to_owned(), answer);
        self
    }

    /// Answers with another kind of text.
    pub(super) fn answers_text(mut self, kind: &str, about: &str) -> Self {
        let answer =
            json!({"description": about, "content": {kind: {"schema": {"type": "string"}}}});
        self.responses.insert("200".to_owned(), answer);
        self
    }

    /// Answers with nothing.
    pub(super) fn answers_nothing(mut self, about: &str) -> Self {
        let answer = json!({"description": about});
        self.responses.insert("204".to_owned(), answer);
        self
    }

    /// It may fail so, beside what everything may.
    pub(super) fn fails(mut self, status: u16, about: &str) -> Self {
        self.responses.insert(status.to_string(), problem(about));
        self
    }

    /// It may fail as others may; see [`COMMON`].
    fn fail(&mut self, status: u16) {
        let name = status.to_string();
        let common = json!({"$ref": format!("#/components/responses/{name}")});
        self.responses.entry(name).or_insert(common);
    }

    /// A link from a successful answer to another operation: where its id is to be found.
    pub(super) fn link(mut self, to: &str, parameter: &str, at: &str) -> Self {
        for status in ["200", "201"] {
            if let Some(answer) = self.responses.get_mut(status) {
                answer["links"][to] = json!({
                    "operationId": to,
                    "parameters": {parameter: format!("$response.body#{at}")},
                });
            }
        }
        self
    }

    /// Notes it.
    pub(super) fn end(mut self) {
        let ids = self.path.split('{').skip(1);
        let mut parameters: Vec<Value> = ids
            .filter_map(|rest| rest.split_once('}'))
            .map(|(name, _)| {
                let schema = json!({"type": "string", "format": "uuid"});
                json!({"name": name, "in": "path", "required": true, "schema": schema})
            })
            .collect();
        if !parameters.is_empty() {
            self.fail(404);
        }
        parameters.append(&mut self.parameters);
        for status in [400, 403, 421, 503] {
            self.fail(status);
        }
        if !self.open {
            self.fail(401);
            self.fail(429);
        }
        if self.body.is_some() {
            for status in [408, 413, 415, 422] {
                self.fail(status);
            }
        }
        let description = match self.scope {
            Some(scope) => format!("Needs a token with the scope `{scope}`."),
            None if self.open => "Needs no token.".to_owned(),
            None => "Needs any token.".to_owned(),
        };
        let mut operation = json!({
            "operationId": self.id,
            "summary": self.summary,
            "description": description,
            "tags": [tag(self.path)],
            "responses": self.responses,
        });
        if !parameters.is_empty() {
            operation["parameters"] = Value::Array(parameters);
        }
        if let Some(body) = self.body {
            operation["requestBody"] = body;
        }
        if self.open {
            operation["security"] = json!([]);
        }
        let path = self.book.paths.entry(self.path.to_owned()).or_default();
        let before = path.insert(self.method.to_owned(), operation);
        assert!(
            before.is_none(),
            "{} {} is described twice",
            self.method,
            self.path
        );
    }
}

/// What many operations may fail with.
const COMMON: [(u16, &str); 11] = [
    (400, "The request is not of this shape."),
    (401, "There is no token, or it is not known any more."),
    (
        403,
        "The token does not allow this, or a page of another origin sent it.",
    ),
    (404, "There is no such thing, or it is another addon's."),
    (408, "The body did not come in time."),
    (413, "The body is too large."),
    (415, "The body is of another type."),
    (421, "The server is not called by this name."),
    (422, "Fields have values that are not allowed."),
    (429, "Too many requests with this token."),
    (
        503,
        "It could not be done now, or is not known to be: ask again, repeating is safe.",
    ),
];

fn problem(about: &str) -> Value {
    let problem = json!({"$ref": "#/components/schemas/Problem"});
    let content = json!({Problem::MEDIA_TYPE: {"schema": problem}});
    json!({"description": about, "content": content})
}

/// What an operation is about, by its path.
fn tag(path: &str) -> &'static str {
    let rest = path
        .strip_prefix(jobtree_protocol::paths::BASE)
        .unwrap_or("/probes");
    match rest.split('/').nth(1) {
        Some("queue") => "queue",
        Some("lease") => "leases",
        Some("schedules") => "schedules",
        Some("tokens") => "tokens",
        Some("events" | "webhooks") => "events",
        Some("probes") => "probes",
        _ => "operating",
    }
}
