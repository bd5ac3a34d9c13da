//! The query of a request. One rule holds for all requests: what a request does not take is
//! refused. The names come from the specification, so no route can forget one.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::future::{Ready, ready};
use std::sync::LazyLock;

use actix_web::dev::Payload;
use actix_web::http::Method;
use actix_web::{FromRequest, HttpRequest};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{Operation, ParameterIn, PathItem};

use super::error::ApiError;
use super::openapi::specification;
use super::route::pattern;

/// The longest part of an unknown name that is repeated to the client, in characters.
const NAME_SHOWN: usize = 64;

/// The parameters that each operation takes, by its method and the pattern of its path.
static KNOWN: LazyLock<HashMap<String, Vec<String>>> = LazyLock::new(|| {
    let mut known = HashMap::new();
    for (path, item) in specification().paths.paths {
        let PathItem {
            get,
            put,
            post,
            patch,
            delete,
            ..
        } = item;
        let operations = [
            (Method::GET, get),
            (Method::PUT, put),
            (Method::POST, post),
            (Method::PATCH, patch),
            (Method::DELETE, delete),
        ];
        for (method, operation) in operations {
            let names = operation.map(names_in_query).unwrap_or_default();
            known.insert(format!("{method} {path}"), names);
        }
    }
    known
});

fn names_in_query(operation: Operation) -> Vec<String> {
    let parameters = operation.parameters.into_iter().flatten();
    let of_query = parameters.filter_map(|parameter| match parameter {
        RefOr::T(parameter) => Some(parameter),
        RefOr::Ref(_) => None,
    });
    let of_query = of_query.filter(|parameter| parameter.parameter_in == ParameterIn::Query);
    of_query.map(|parameter| parameter.name).collect()
}

/// Refuses a query with a parameter that the request does not take, with one that is repeated,
/// and what is no UTF-8.
///
/// # Errors
/// [`ApiError::Malformed`].
pub fn check(request: &HttpRequest) -> Result<(), ApiError> {
    let query = request.query_string();
    if query.is_empty() {
        return Ok(());
    }
    let method = match *request.method() {
        Method::HEAD => &Method::GET,
        ref method => method,
    };
    let pattern = pattern(request).unwrap_or_default();
    let known = KNOWN.get(&format!("{method} {pattern}"));
    let known: Vec<&str> = known.into_iter().flatten().map(String::as_str).collect();
    let mut seen = HashSet::new();
    for (name, _) in parse(query)? {
        if !known.contains(&name.as_str()) {
            let detail = describe_unknown("query parameter", &name, &known);
            return Err(ApiError::Malformed(detail));
        }
        if seen.contains(&name) {
            let detail = format!("the query parameter {name} is repeated: send it once");
            return Err(ApiError::Malformed(detail));
        }
        seen.insert(name);
    }
    Ok(())
}

/// The names and values of a query's parameters.
///
/// # Errors
/// [`ApiError::Malformed`] for what is no UTF-8.
pub fn parse(query: &str) -> Result<Vec<(String, String)>, ApiError> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let decoded = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decode(name)?, decode(value)?))
    });
    decoded.collect()
}

fn decode(text: &str) -> Result<String, ApiError> {
    let text = text.replace('+', " ");
    let decoded = percent_decode_str(&text).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| {
        let detail = "the query is not UTF-8: write it as percent-encoded UTF-8";
        ApiError::Malformed(detail.to_owned())
    })
}

/// Says that a name is unknown, which known one is nearest, and which ones there are.
pub fn describe_unknown(what: &str, name: &str, known: &[&str]) -> String {
    let score = |known: &str| strsim::normalized_damerau_levenshtein(name, known);
    let nearest = known.iter().max_by(|a, b| score(a).total_cmp(&score(b)));
    let shown: String = name.chars().take(NAME_SHOWN).collect();
    match nearest {
        Some(nearest) => format!(
            "unknown {what} {shown:?}: the nearest known one is {nearest}; known are {}",
            known.join(", ")
        ),
        None => format!("unknown {what} {shown:?}: none is known here"),
    }
}

/// The parameters of the query. Every one is a text here; [`super::extract::Faults`] parses them.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Query<T> {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let query = actix_web::web::Query::<T>::from_query(request.query_string());
        let query = query.map(|query| Self(query.into_inner()));
        // Nothing is left that could be wrong once the query was checked.
        ready(query.map_err(|_| ApiError::Malformed("the query cannot be read".to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_forms_are() {
        let parsed = parse("a=1&b=x+y%2B&&c&d=%C3%BC=").unwrap();
        let pairs: Vec<(&str, &str)> = parsed.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(pairs, [("a", "1"), ("b", "x y+"), ("c", ""), ("d", "ü=")]);
        for wrong in ["a=%FF", "%C3=1", "a=%ED%A0%80"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn unknown_names_are_told_with_the_nearest() {
        let told = describe_unknown("query parameter", "polcy", &["from", "policy"]);
        assert_eq!(
            told,
            "unknown query parameter \"polcy\": the nearest known one is policy; known are from, \
             policy"
        );
        let told = describe_unknown("query parameter", &"x".repeat(1000), &[]);
        assert!(told.len() < 200 && told.ends_with("none is known here"));
    }
}
