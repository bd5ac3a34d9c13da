//! Problems (RFC 9457). Each kind is described here once. Answers, the specification and the page
//! `/docs/problems` are made from this list.

use actix_web::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::fault::Fault;

pub const MEDIA_TYPE: &str = "application/problem+json";

/// How long a client should wait when no exact time is known, in seconds.
const SOON: Option<u64> = Some(1);

#[derive(Debug, Clone, Copy)]
pub struct ProblemKind {
    /// The section in the page, and the end of the type. Kinds with the same name share a section.
    pub name: &'static str,
    pub title: &'static str,
    pub status: StatusCode,
    /// After how many seconds the same request can succeed; `None` where it cannot, or where each
    /// answer has its own time.
    pub retry_after: Option<u64>,
    /// The line in the specification.
    pub when: &'static str,
    /// The texts of the page, with `code` in backticks: what it means, what to do, whether to
    /// retry.
    pub texts: Option<[&'static str; 3]>,
}

macro_rules! kinds {
    ($($constant:ident = $status:ident $name:literal $title:literal $retry_after:expr, $when:literal $(
        means $means:literal
        do $remedy:literal
        retry $retry:literal
    )?;)*) => {
        $(
            pub const $constant: ProblemKind = ProblemKind {
                name: $name,
                title: $title,
                status: StatusCode::$status,
                retry_after: $retry_after,
                when: $when,
                texts: kinds!(@texts $($means $remedy $retry)?),
            };
        )*

        /// All kinds, in the order of their status.
        pub const KINDS: &[ProblemKind] = &[$($constant),*];
    };
    (@texts) => { None };
    (@texts $means:literal $remedy:literal $retry:literal) => { Some([$means, $remedy, $retry]) };
}

kinds! {
MALFORMED = BAD_REQUEST "malformed" "Malformed" None,
    "not HTTP, not JSON, unknown field or parameter, wrong type"
    means "The body is not JSON, a field or query parameter is unknown or repeated, or a value has \
           the wrong type. `detail` names it, and the nearest known name."
    do "Correct the request."
    retry "No: the same request fails again.";
UNAUTHORIZED = UNAUTHORIZED "unauthorized" "Unauthorized" None,
    "no valid key"
    means "The request has no valid key: no key was sent, or the key is mistyped, unknown, revoked \
           or ended."
    do "Send `Authorization: Bearer <key>` with a valid key. An admin makes keys with `POST \
        /v1/keys`."
    retry "No, not with the same key. Repeated wrong keys are answered slowly.";
FORBIDDEN = FORBIDDEN "forbidden" "Forbidden" None,
    "the key has another role, or is confined to other policies"
    means "The key is valid, but it has another role, or it is confined to other policies."
    do "Use a key with a role and a policy that `detail` names."
    retry "No, not with the same key.";
UNKNOWN_POLICY = NOT_FOUND "unknown-policy" "Unknown policy" None,
    "no such policy, or archived"
    means "There is no such policy, or it is archived. The instance has checked this in the ledger."
           do "Check the name. `PUT` creates the policy, or revives an archived one."
    retry "No, not before somebody has created the policy.";
NOT_FOUND = NOT_FOUND "not-found" "Not found" None,
    "nothing at this path or with this id"
    means "There is nothing at this path or with this id."
    do "Check the path and the id."
    retry "No.";
METHOD_NOT_ALLOWED = METHOD_NOT_ALLOWED "method-not-allowed" "Method not allowed" None,
    "the path does not take this method"
    means "The path exists, but not with this method."
    do "Use a method that `Allow` names."
    retry "No.";
SLOW_REQUEST = REQUEST_TIMEOUT "slow-request" "Slow request" None,
    "the head or the body did not arrive in time"
    means "The head or the body did not arrive in time. Nothing was done."
    do "Send the whole request at once. Check the network if it happens often."
    retry "Yes: nothing was done.";
CLAIM_IN_PROGRESS = CONFLICT "claim-in-progress" "Claim in progress" SOON,
    "a claim with the same key is being decided now"
    means "A claim with the same `Idempotency-Key` is being decided now."
    do "Wait for `Retry-After`, then send the same claim with the same key."
    retry "Yes: the same key gets the same grant.";
LAST_ADMIN_KEY = CONFLICT "last-admin-key" "Last admin key" None,
    "the change would end the last admin key without an end"
    means "The change would end the last admin key that is not revoked and has no end."
    do "Create another admin key first."
    retry "Yes, after there is another admin key.";
KEY_REVOKED = CONFLICT "key-revoked" "Key revoked" None,
    "a revoked key cannot be changed"
    means "The key is revoked. A revoked key cannot be changed."
    do "Create a new key."
    retry "No.";
BEING_ERASED = CONFLICT "being-erased" "Being erased" None,
    "an override for a subject that is being erased"
    means "The subject is being erased, and its claims are still counted. An override would store \
           its name again. Nothing was changed."
    do "Wait until the instant in `detail`. If the subject claims meanwhile, the wait is longer."
    retry "Yes, after that instant.";
GRANT_REVERSED = CONFLICT "grant-reversed" "Grant reversed" None,
    "a confirmation of a hold that was reversed"
    means "The hold cannot be confirmed: it was reversed, and its units were given back."
    do "Claim again if the units are still needed."
    retry "No.";
HOLD_LAPSED = CONFLICT "hold-lapsed" "Hold lapsed" None,
    "a reversal of a hold that lapsed"
    means "The hold was not confirmed in time, and its units were given back. The status is 409 for \
           a reversal, and 410 for a confirmation."
    do "Claim again if the units are needed. Confirm earlier, or ask for more `hold_seconds`."
    retry "No.";
NOT_A_HOLD = CONFLICT "not-a-hold" "Not a hold" None,
    "a confirmation of a grant that is not a hold"
    means "The grant cannot be confirmed: it is not a hold. The grant is not changed."
    do "Do nothing: the grant needs no confirmation."
    retry "No.";
POLICY_INACTIVE = CONFLICT "policy-inactive" "Policy inactive" None,
    "paused, or outside `active_from` … `active_until`"
    means "The policy is paused, or the present time is outside `active_from` … `active_until`."
    do "Wait until the policy is active, or ask its owner."
    retry "Later: `detail` says when, if that is known.";
RECONCILIATION_IN_PROGRESS =
    CONFLICT "reconciliation-in-progress" "Reconciliation in progress" SOON,
    "this instance already runs a reconciliation"
    means "This instance already runs a reconciliation."
    do "Wait until its report has a `finished_at`: `GET /v1/reconciliations`."
    retry "Yes, after `Retry-After`.";
NOT_SEALED = CONFLICT "not-sealed" "Not sealed" SOON,
    "nothing is sealed, or this is not sealed yet"
    means "No seal covers what was asked for: this instance has no key that signs seals, or the \
           position is above the newest seal."
    do "Set `PERDIEM_SEAL_KEY_FILE`, if `detail` says so. Otherwise wait: a position is sealed within \
        seconds. If the problem stays, look at `/readyz`."
    retry "Yes, after `Retry-After`, if the instance has a key that signs seals.";
HOLD_GONE = GONE "hold-lapsed" "Hold lapsed" None,
    "a confirmation that came too late";
ARCHIVED = GONE "archived" "Archived" None,
    "the answer needs entries that were archived and dropped"
    means "The answer needs entries that `perdiem archive --drop` has dropped from the ledger. They are \
           in the archive, and the log of seals has their hashes."
    do "Read the files of the archive, or ask for later entries, as `detail` says."
    retry "No.";
PRECONDITION_FAILED = PRECONDITION_FAILED "precondition-failed" "Precondition failed" None,
    "the policy, override or key has another version"
    means "The policy, override or key does not have the version that `If-Match` names. Or it \
           exists, but the request has `If-None-Match: *`."
    do "Read it again, check your change, and send the new `ETag`."
    retry "No, not with the same `If-Match`.";
TOO_LARGE = PAYLOAD_TOO_LARGE "too-large" "Too large" None,
    "a body over 64 KiB; a batch over 8 MiB"
    means "Status 413: the body is over 64 KiB; the body of a batch, over 8 MiB. Status 431: the head \
           is over 128 KiB or has more than 96 fields."
    do "Send less: split a batch, or send fewer and shorter header fields."
    retry "No.";
INVALID = UNPROCESSABLE_ENTITY "invalid" "Invalid" None,
    "a wrong value; units above `max`, which can never fit; a window would have more than 2^53 − 1 \
     units"
    means "Values are out of bounds or do not fit each other. Or the units are above the `max` of a \
           limit and can never fit. `errors` names each place."
    do "Correct each value that `errors` names."
    retry "No: the same request fails again.";
IDEMPOTENCY_KEY_REUSED =
    UNPROCESSABLE_ENTITY "idempotency-key-reused" "Idempotency key reused" None,
    "the same key with another claim"
    means "The `Idempotency-Key` belongs to another claim. The same key means the same subject, \
           units, hold and metadata."
    do "Use a new key for a new claim."
    retry "No.";
FAILED_DEPENDENCY = FAILED_DEPENDENCY "failed-dependency" "Failed dependency" None,
    "in an atomic batch: another claim was not granted"
    means "Another claim of the atomic batch cannot be granted, so no claim of it is granted. This \
           claim alone would have been granted."
    do "Look at the items with another status."
    retry "Yes, when the other claims can be granted.";
QUOTA_EXCEEDED = TOO_MANY_REQUESTS "quota-exceeded" "Quota exceeded" None,
    "denied; nothing was counted"
    means "The claim is denied: a window has no room for its units. Nothing was counted. \
           `violated-policies` names the limits without room, `limits` shows every limit. The type is \
           `https://iana.org/assignments/http-problem-types#quota-exceeded`."
    do "Wait for `Retry-After`, or ask for fewer units."
    retry "Yes, after `Retry-After`, also with the same `Idempotency-Key`: a denial is not \
           remembered.";
TOO_MANY_WRONG_KEYS = TOO_MANY_REQUESTS "too-many-wrong-keys" "Too many wrong keys" None,
    "too many wrong keys were sent; a valid key is never refused for this"
    means "Too many requests with wrong keys came from this address, or from many addresses. A \
           request with a valid key is never refused for this."
    do "Stop sending the wrong key. Send a valid one."
    retry "Yes: with a valid key at once, with any other key after `Retry-After`.";
HEAD_TOO_LARGE = REQUEST_HEADER_FIELDS_TOO_LARGE "too-large" "Too large" None,
    "a head over 128 KiB or 96 fields";
UNDECIDED = SERVICE_UNAVAILABLE "undecided" "Undecided" SOON,
    "the claim could not be decided exactly within the deadline; a retry with the same key is safe"
    means "The claim could not be decided exactly within the deadline. It may or may not have been \
           granted."
    do "Send the same claim again with the same `Idempotency-Key`: it is granted at most once."
    retry "Yes, after `Retry-After`. Without an `Idempotency-Key` a retry can become a second grant.";
UNAVAILABLE = SERVICE_UNAVAILABLE "unavailable" "Unavailable" SOON,
    "the ledger does not answer; a grant with this id may not be recorded yet; the answer took too \
     long; too many requests with this key are in progress; or a newer perdiem wrote the policy"
    means "The ledger does not answer, the answer took too long, or too many requests with this key \
           are in progress. Or a newer version of perdiem wrote the policy, and this instance cannot read \
           it: newer instances decide its claims. A key that is unknown to this instance also gets this \
    answer while the ledger does not answer."
        do "Try again, with fewer requests at once. Or ask for less: one policy, a shorter span. After a \
        change, first read whether it was made. If the problem stays, look at `/readyz`."
    retry "Yes, after `Retry-After`.";
}

/// A wrong part of a request.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct InvalidPart {
    /// What is wrong and what to do.
    pub detail: String,
    /// The place in the body: a JSON pointer as a URI fragment (RFC 6901, section 6).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "#/limits/0/max")]
    pub pointer: Option<String>,
    /// The name of the parameter of the path, the query or the header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter: Option<&'static str>,
}

/// A problem document (RFC 9457), as `application/problem+json`.
#[derive(Debug, Serialize, ToSchema)]
pub struct Problem {
    /// The kind of the problem, as a link to a page that explains it.
    #[serde(rename = "type")]
    #[schema(example = "/docs/problems#invalid")]
    pub kind: String,
    /// The kind of the problem, for people.
    #[schema(example = "Invalid")]
    pub title: &'static str,
    /// The status of the answer.
    #[schema(example = 422)]
    pub status: u16,
    /// What is wrong in this request, and what to do.
    pub detail: String,
    /// Each wrong part of the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<InvalidPart>,
}

impl Problem {
    pub fn new(kind: ProblemKind, detail: String, errors: Vec<InvalidPart>) -> Self {
        Self {
            kind: format!("/docs/problems#{}", kind.name),
            title: kind.title,
            status: kind.status.as_u16(),
            detail,
            errors,
        }
    }
}

impl InvalidPart {
    pub fn parameter(parameter: &'static str, detail: impl ToString) -> Self {
        Self {
            detail: detail.to_string(),
            pointer: None,
            parameter: Some(parameter),
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
