//! Problems (RFC 9457), as answers.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::orphans::OrphansBody;
use super::words::{self, Word};
use domain::fault::Fault;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct InvalidPart {
    /// What is wrong and what to do.
    #[schema(example = "write 1 or more units")]
    pub detail: String,
    /// The place in the body (RFC 6901, section 6).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "#/limits/0/max")]
    pub pointer: Option<String>,
    /// The parameter of the path, the query or the header.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<String>, example = "limit")]
    pub parameter: Option<Word>,
}

/// A problem document (RFC 9457).
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The kind of the problem, as a link to the page that explains it.
    #[serde(rename = "type")]
    #[schema(example = "/docs/problems#invalid")]
    pub kind: String,
    /// The kind of the problem, for programs.
    #[schema(value_type = words::ProblemCode, example = "invalid")]
    pub code: Word,
    /// The kind of the problem, for people.
    #[schema(value_type = String, example = "Invalid")]
    pub title: Word,
    #[schema(example = 422)]
    pub status: u16,
    /// What is wrong in this request, and what to do.
    #[schema(example = "write 1 or more units")]
    pub detail: String,
    /// The page that explains this code.
    #[schema(example = "/docs/problems#invalid")]
    pub page: String,
    /// As in the field `X-Request-Id` and in the server's log. Absent in an item of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "0199a3c4-6d0e-7f3a-8b1c-2f60a1d3e4b5")]
    pub request_id: Option<String>,
    /// The trace of the request's `traceparent` (W3C Trace Context), as in the server's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "0af7651916cd43dd8448eb211c80319c")]
    pub trace_id: Option<String>,
    /// Each wrong part of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<InvalidPart>,
    /// Of `subject-blocked`. Absent where the block has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub blocked_until: Option<DateTime<Utc>>,
    /// Of `orphaned-overrides`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub orphaned_overrides: Option<OrphansBody>,
    /// Of `needs-approval`: the whole change, for `POST /v1/approvals`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "proposal_kq3…")]
    pub proposal: Option<String>,
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
