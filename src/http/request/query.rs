//! The query of a request. One rule holds for all requests: a parameter that the request does not
//! take is an error. The names come from the arguments of the handler, so no route can forget one.

use std::borrow::Cow;
use std::collections::HashSet;
use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use super::extractors;
use super::faults::{Faults, parse_true};
use super::route::taken;
use crate::answer::ApiError;
use crate::operation::{Argument, Operation};
use api::words;
use domain::policy::check_reason;

extractors!(DryRun => DryRunQuery, Page => PageQuery, Reason => ReasonQuery);

/// The longest page of a list.
const PAGE_MAX: u32 = 1000;
/// The items on a page when the request does not say.
const PAGE_DEFAULT: u32 = 100;
/// The longest part of an unknown name in an error, in characters.
const NAME_SHOWN: usize = 64;

/// Refuses a query with an unknown or a repeated parameter, and a query that is not UTF-8.
pub fn check(request: &HttpRequest) -> Result<(), ApiError> {
    let query = request.query_string();
    if query.is_empty() {
        return Ok(());
    }
    let taken = taken(request);
    let known: Vec<&str> = taken.in_query.iter().map(String::as_str).collect();
    let mut seen = HashSet::new();
    for (name, _) in parse(query)? {
        if !known.iter().any(|known| is_named(known, &name)) {
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

/// Whether a known name matches this name. A known name that ends with `<name>` matches every name
/// with the same beginning.
fn is_named(known: &str, name: &str) -> bool {
    match known.strip_suffix("<name>") {
        Some(start) => name.len() > start.len() && name.starts_with(start),
        None => name == known,
    }
}

/// The names and values of a query's parameters.
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

/// Says that a name is unknown, and names the nearest known name and all known names.
pub fn describe_unknown(what: &str, name: &str, known: &[&str]) -> String {
    let score = |known: &str| strsim::normalized_damerau_levenshtein(name, known);
    let nearest = known.iter().max_by(|a, b| score(a).total_cmp(&score(b)));
    let shown: String = name.chars().take(NAME_SHOWN).collect();
    match nearest {
        Some(nearest) => format!(
            "unknown {what} {shown:?}: the nearest known name is {nearest}; known names: {}",
            known.join(", ")
        ),
        None => format!("unknown {what} {shown:?}: this request takes none"),
    }
}

/// Parameters of the query. Each one is a text here; [`Faults`] parses them.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> Query<T> {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        let query = actix_web::web::Query::<T>::from_query(request.query_string());
        let query = query.map(|query| Self(query.into_inner()));
        // After the check of the query this does not fail.
        query.map_err(|_| ApiError::Malformed("the query cannot be read".to_owned()))
    }
}

impl<T: DeserializeOwned> FromRequest for Query<T> {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Self::of(request))
    }
}

impl<T: IntoParams> Argument for Query<T> {
    fn describe(operation: &mut Operation) {
        operation.takes::<T>();
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Default: 100.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    #[param(pattern = "^[A-Za-z0-9_-]+$")]
    cursor: Option<String>,
}

/// The length of a page of a list, and its beginning.
pub struct Page {
    pub limit: u32,
    cursor: Option<String>,
}

impl PageQuery {
    pub fn check(self, faults: &mut Faults) -> Page {
        let parse = |text: &str| match text.parse() {
            Ok(limit @ 1..=PAGE_MAX) => Ok(limit),
            _ => Err(format!("write 1 to {PAGE_MAX} items for a page")),
        };
        let limit = faults.parameter("limit", self.limit.as_ref(), parse);
        Page {
            limit: limit.unwrap_or(PAGE_DEFAULT),
            cursor: self.cursor,
        }
    }
}

impl Page {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        let mut faults = Faults::default();
        let page = Query::<PageQuery>::of(request)?.0.check(&mut faults);
        faults.or(Some(page))
    }

    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DryRunQuery {
    /// Change nothing, and show what would become of it.
    #[param(value_type = Option<words::OnlyTrue>)]
    dry_run: Option<String>,
}

/// Whether to change nothing, and only to show the change.
pub struct DryRun(pub bool);

impl DryRun {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        let query = Query::<DryRunQuery>::of(request)?.0;
        is_true("dry_run", query.dry_run.as_deref()).map(Self)
    }
}

/// A parameter that is absent, or `true`.
pub fn is_true(parameter: &'static str, value: Option<&str>) -> Result<bool, ApiError> {
    let parsed = value.map(parse_true).transpose();
    let parsed = parsed.map_err(|error| ApiError::invalid(parameter, error))?;
    Ok(parsed.is_some())
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ReasonQuery {
    #[param(value_type = String, min_length = 1, max_length = 1000, example = "it is over")]
    reason: Option<String>,
}

/// The reason for which something is archived, deleted or revoked.
pub struct Reason(pub String);

impl Reason {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        let reason = Query::<ReasonQuery>::of(request)?.0.reason;
        let reason = reason.unwrap_or_default();
        let checked = check_reason(&reason).map_err(|detail| ApiError::invalid("reason", detail));
        checked.map(|()| Self(reason))
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
            "unknown query parameter \"polcy\": the nearest known name is policy; known names: \
             from, policy"
        );
        let told = describe_unknown("query parameter", &"x".repeat(1000), &[]);
        assert!(told.len() < 200 && told.ends_with("this request takes none"));
    }
}
