//! Describes operations of the table, and collects the schemas that they use.

use std::collections::BTreeMap;

use jobtree_protocol::Problem;
use jobtree_protocol::operations::{
    Access, Answer, AnswerBody, Created, EventStream, Info, JsonObject, NoContent, Operation,
    Optional, PathId, PrometheusText, RequestBody, Required, TomlText, WithCookie,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, schema::Schema};

/// The description so far.
#[derive(Default)]
pub(crate) struct Book {
    paths: BTreeMap<String, Map<String, Value>>,
    schemas: BTreeMap<String, RefOr<Schema>>,
}

impl Book {
    /// Notes a type's schema and all that it uses; returns a reference to it.
    fn refer<T: ToSchema>(&mut self) -> Value {
        let mut used = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut used);
        self.schemas.extend(used);
        json!({"$ref": format!("#/components/schemas/{}", T::name())})
    }

    /// Adds an operation.
    pub(crate) fn add<O>(&mut self)
    where
        O: Operation,
        O::Body: DescribeBody,
        O::Answer: DescribeAnswer,
    {
        let info = O::INFO;
        let body = O::Body::describe(self, O::example().unwrap_or_default());
        let mut answer = O::Answer::describe(self);
        answer["description"] = info.answer.into();
        for link in info.links {
            answer["links"][link.operation] = json!({
                "operationId": link.operation,
                "parameters": {link.parameter: format!("$response.body#{}", link.pointer)},
            });
        }
        let mut responses = Map::from_iter([(O::Answer::STATUS.to_string(), answer)]);
        for (status, about) in info.errors {
            responses.insert(status.to_string(), problem(about));
        }
        let has_id = O::Path::PRESENT;
        for (status, applies) in [
            (404, has_id),
            (400, true),
            (403, true),
            (421, true),
            (503, true),
            (401, info.access != Access::Open),
            (429, info.access != Access::Open),
            (408, body.is_some()),
            (413, body.is_some()),
            (415, body.is_some()),
            (422, body.is_some()),
        ] {
            if applies {
                let common = json!({"$ref": format!("#/components/responses/{status}")});
                responses.entry(status.to_string()).or_insert(common);
            }
        }
        let mut operation = json!({
            "operationId": info.id,
            "summary": info.summary,
            "description": match info.access {
                Access::Scope(scope) => format!("Needs a token with the scope `{scope}`."),
                Access::Open => "Needs no token.".to_owned(),
                Access::AnyToken => "Needs any token.".to_owned(),
            },
            "tags": [tag(info.path)],
            "responses": responses,
        });
        let parameters = parameters(&info);
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        if let Some(body) = body {
            operation["requestBody"] = body;
        }
        if info.access == Access::Open {
            operation["security"] = json!([]);
        }
        let path = self.paths.entry(info.path.to_owned()).or_default();
        let method = info.method.as_str().to_ascii_lowercase();
        let before = path.insert(method, operation);
        assert!(before.is_none(), "{} is described twice", info.id);
    }

    /// Returns the whole document.
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
            "security": [{"token": []}, {"session": []}],
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
                    "session": {
                        "type": "apiKey",
                        "in": "cookie",
                        "name": "jobtree_session_PORT",
                        "description": "The cookie of a browser that has signed in. Every call that is not a GET also sends the header `X-Jobtree-Csrf`, with the value that `GET /session` returns.",
                    },
                },
            },
        })
    }
}

/// The id in the path, and the query's parameters.
fn parameters(info: &Info) -> Vec<Value> {
    let ids = info.path.split('{').skip(1);
    let ids = ids
        .filter_map(|rest| rest.split_once('}'))
        .map(|(name, _)| {
            let schema = json!({"type": "string", "format": "uuid"});
            json!({"name": name, "in": "path", "required": true, "schema": schema})
        });
    let query = info.parameters.iter().map(|parameter| {
        json!({
            "name": parameter.name,
            "in": "query",
            "description": parameter.description,
            "required": false,
            "schema": parameter.kind.schema(),
        })
    });
    ids.chain(query).collect()
}

/// A kind of body that can be described.
pub(crate) trait DescribeBody: RequestBody {
    /// Returns the description; none if there is no body.
    fn describe(book: &mut Book, example: Value) -> Option<Value>;
}

impl DescribeBody for () {
    fn describe(_: &mut Book, _: Value) -> Option<Value> {
        None
    }
}

impl<T: Serialize + ToSchema + Send + 'static> DescribeBody for Required<T> {
    fn describe(book: &mut Book, example: Value) -> Option<Value> {
        Some(json_body::<T>(book, true, example))
    }
}

impl<T: Serialize + ToSchema + Send + 'static> DescribeBody for Optional<T> {
    fn describe(book: &mut Book, example: Value) -> Option<Value> {
        Some(json_body::<T>(book, false, example))
    }
}

impl DescribeBody for TomlText {
    fn describe(_: &mut Book, example: Value) -> Option<Value> {
        let about = format!("For example:\n\n{}", example.as_str().unwrap_or_default());
        let text = json!({"schema": {"type": "string", "description": about}});
        Some(json!({"required": true, "content": {"application/toml": text}}))
    }
}

fn json_body<T: ToSchema>(book: &mut Book, required: bool, example: Value) -> Value {
    let schema = book.refer::<T>();
    let content = json!({"application/json": {"schema": schema, "example": example}});
    json!({"required": required, "content": content})
}

/// A kind of answer that can be described.
pub(crate) trait DescribeAnswer: AnswerBody {
    fn describe(book: &mut Book) -> Value;
}

impl<T: DeserializeOwned + ToSchema + 'static> DescribeAnswer for Answer<T> {
    fn describe(book: &mut Book) -> Value {
        content("application/json", book.refer::<T>())
    }
}

impl<T: DeserializeOwned + ToSchema + 'static> DescribeAnswer for Created<T> {
    fn describe(book: &mut Book) -> Value {
        content("application/json", book.refer::<T>())
    }
}

impl DescribeAnswer for NoContent {
    fn describe(_: &mut Book) -> Value {
        json!({})
    }
}

impl<A: DescribeAnswer> DescribeAnswer for WithCookie<A> {
    fn describe(book: &mut Book) -> Value {
        let mut answer = A::describe(book);
        let about = "The session's cookie: HttpOnly, SameSite=Strict, and Secure over TLS.";
        answer["headers"] =
            json!({"Set-Cookie": {"description": about, "schema": {"type": "string"}}});
        answer
    }
}

macro_rules! plain {
    ($($kind:ty: $media_type:literal $type:literal,)*) => {$(
        impl DescribeAnswer for $kind {
            fn describe(_: &mut Book) -> Value {
                content($media_type, json!({"type": $type}))
            }
        }
    )*};
}

plain! {
    JsonObject: "application/json" "object",
    TomlText: "application/toml" "string",
    PrometheusText: "text/plain" "string",
    EventStream: "text/event-stream" "string",
}

fn content(media_type: &str, schema: Value) -> Value {
    json!({"content": {media_type: {"schema": schema}}})
}

/// Errors that many operations can have.
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

/// Returns an operation's topic, by its path.
fn tag(path: &str) -> &'static str {
    let rest = path
        .strip_prefix(jobtree_protocol::paths::BASE)
        .unwrap_or("/probes");
    match rest.split('/').nth(1) {
        Some("queue") => "queue",
        Some("lease") => "leases",
        Some("schedules") => "schedules",
        Some("tokens") => "tokens",
        Some("session" | "sign-in" | "sign-in-links") => "sessions",
        Some("events" | "webhooks") => "events",
        Some("probes") => "probes",
        _ => "operating",
    }
}
