//! Problems (RFC 9457), as answers.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::orphans::OrphansBody;
use super::words::{self, Word};
use domain::fault::Fault;

/// A wrong part of a request.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct InvalidPart {
    /// What is wrong and what to do.
    pub detail: String,
    /// The place in the body: a JSON pointer as a URI fragment (RFC 6901, section 6).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "#/limits/0/max")]
    pub pointer: Option<String>,
    /// The name of the parameter of the path, the query or the header.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub parameter: Option<Word>,
}

/// A problem document (RFC 9457), as `application/problem+json`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The kind of the problem, as a link to a page that explains it.
    #[serde(rename = "type")]
    #[schema(example = "/docs/problems#invalid")]
    pub kind: String,
    /// The kind of the problem, for programs. It never changes.
    #[schema(value_type = words::ProblemCode, example = "invalid")]
    pub code: Word,
    /// The kind of the problem, for people.
    #[schema(value_type = String, example = "Invalid")]
    pub title: Word,
    /// The status of the answer.
    #[schema(example = 422)]
    pub status: u16,
    /// What is wrong in this request, and what to do.
    pub detail: String,
    /// The page that explains the kind of the problem.
    #[schema(example = "/docs/problems#invalid")]
    pub page: String,
    /// The id of the request, as in the field `X-Request-Id` of the answer and in the server's log. Absent
    /// in an item of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "0199a3c4-6d0e-7f3a-8b1c-2f60a1d3e4b5")]
    pub request_id: Option<String>,
    /// Each wrong part of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<InvalidPart>,
    /// Of `subject-blocked`: when the block ends. Absent where it has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-12-01T00:00:00Z")]
    pub blocked_until: Option<DateTime<Utc>>,
    /// Of `orphaned-overrides`: the overrides that the change would orphan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphaned_overrides: Option<OrphansBody>,
}

impl InvalidPart {
    pub fn parameter(parameter: &'static str, detail: impl ToString) -> Self {
        Self {
            detail: detail.to_string(),
            pointer: None,
            parameter: Some(parameter.into()),
        }
    }

    pub fn body(pointer: &str, detail: impl ToString) -> Self {
        Self {
            detail: detail.to_string(),
            pointer: Some(format!("#{pointer}")),
            parameter: None,
        }
    }

    /// The same part, where its body is itself a part of another body, at `place`.
    pub fn inside(self, place: &str) -> Self {
        let pointer = self.pointer.as_deref();
        let inner = pointer.and_then(|pointer| pointer.strip_prefix('#'));
        Self {
            pointer: inner.map(|inner| format!("#{place}{inner}")),
            ..self
        }
    }
}

impl From<Fault> for InvalidPart {
    fn from(fault: Fault) -> Self {
        Self::body(&fault.pointer, fault.detail)
    }
}
