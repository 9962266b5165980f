//! Which parameters a query may have: those that the description of the interface names for the operation, and no others.
//!
//! One rule for all operations, so that a misspelt parameter is never taken for one that was left out, and the
//! description cannot miss one. Probes alone never come here: who looks whether a server lives may add what they like.

use std::sync::OnceLock;

use axum::http::Method;
use axum::http::request::Parts;
use serde_json::Value;

use crate::extract::Params;
use crate::openapi;
use crate::problem::Answered;

/// All its parameters are known. What there is no operation for is somebody else's to refuse.
pub(crate) fn check(parts: &Parts) -> Answered<()> {
    static OPERATIONS: OnceLock<Vec<Operation>> = OnceLock::new();
    let Some(query) = parts.uri.query() else {
        return Ok(());
    };
    let operations = OPERATIONS.get_or_init(|| operations(&openapi::describe()));
    let method = match parts.method {
        // Answered as the other is, without the body.
        Method::HEAD => &Method::GET,
        ref method => method,
    };
    let path = parts.uri.path();
    let matching = operations
        .iter()
        .filter(|operation| operation.method == *method && operation.is_at(path));
    // `jobs/submit` is no job whose id is `submit`.
    match matching.min_by_key(|operation| operation.ids()) {
        Some(operation) => Params::of(Some(query))?.only(&operation.parameters),
        None => Ok(()),
    }
}

struct Operation {
    method: Method,
    /// Between the slashes; none where an id stands.
    segments: Vec<Option<String>>,
    parameters: Vec<String>,
}

impl Operation {
    fn is_at(&self, path: &str) -> bool {
        let mut given = path.split('/');
        let fits = self.segments.iter().all(|segment| {
            let is = |given: &str| match segment {
                Some(segment) => segment == given,
                None => !given.is_empty(),
            };
            given.next().is_some_and(is)
        });
        fits && given.next().is_none()
    }

    fn ids(&self) -> usize {
        let ids = self.segments.iter().filter(|segment| segment.is_none());
        ids.count()
    }
}

fn operations(description: &Value) -> Vec<Operation> {
    let paths = description["paths"].as_object().into_iter().flatten();
    let each = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().into_iter().flatten();
        methods.filter_map(move |(method, operation)| {
            let segments = path.split('/');
            let segments = segments.map(|one| (!one.starts_with('{')).then(|| one.to_owned()));
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let parameters = parameters
                .filter(|parameter| parameter["in"] == "query")
                .filter_map(|parameter| parameter["name"].as_str().map(str::to_owned));
            Some(Operation {
                method: method.to_uppercase().parse().ok()?,
                segments: segments.collect(),
                parameters: parameters.collect(),
            })
        })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use jobtree_protocol::paths;

    use super::*;

    fn told(method: &str, path: &str, query: &str) -> Result<(), ()> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?{query}"));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        check(&parts).map_err(drop)
    }

    #[test]
    fn parameters_are_those_of_the_operation_at_this_path() {
        let job = paths::at(paths::JOB, "019a0000-0000-7000-8000-000000000000");
        assert_eq!(told("GET", &job, "wait_sec=1"), Ok(()));
        assert_eq!(told("HEAD", &job, "wait_sec=1"), Ok(()));
        assert_eq!(told("GET", &job, "wait_sec=1&wait=1"), Err(()));
        assert_eq!(told("GET", paths::JOBS, "limit=1&state=DONE"), Ok(()));
        assert_eq!(told("GET", paths::JOBS, "wait_sec=1"), Err(()));
        assert_eq!(told("POST", paths::SUBMIT, "wait_sec=1"), Err(()));
        assert_eq!(told("POST", paths::SUBMIT, ""), Ok(()));
        assert_eq!(told("POST", paths::SUBMIT, "%zz"), Err(()));
    }

    #[test]
    fn what_is_no_operation_is_not_looked_at() {
        assert_eq!(told("GET", "/nothing", "here=1"), Ok(()));
        assert_eq!(told("PATCH", paths::STATUS, "here=1"), Ok(()));
        assert_eq!(told("GET", &format!("{}/", paths::JOBS), "here=1"), Ok(()));
    }
}
