//! Problems (RFC 9457). Each kind is described here, once: answers, the specification and the page
//! that explains problems are made from this list.

use actix_web::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::fault::Fault;

pub const MEDIA_TYPE: &str = "application/problem+json";

/// How long a client should wait when nothing better is known, in seconds.
const SOON: Option<u64> = Some(1);

#[derive(Debug, Clone, Copy)]
pub struct ProblemKind {
    /// Its section in the page, and the end of its type. Kinds of one name share a section.
    pub name: &'static str,
    pub title: &'static str,
    pub status: StatusCode,
    /// After how many seconds the same request may succeed; `None` where it would not, or where
    /// each answer tells.
    pub retry_after: Option<u64>,
    /// The specification's line.
    pub when: &'static str,
    /// The page's texts, with `code` in backticks: what it means, what to do, whether to retry.
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

        /// In the order of their status.
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
    means "The request has no valid key: none was sent, or it is mistyped, unknown, revoked or has \
           ended."
    do "Send `Authorization: Bearer <key>` with a valid key. An admin makes keys with `POST \
        /v1/keys`."
    retry "No, not with the same key. Wrong keys that are sent again and again are answered slowly.";
FORBIDDEN = FORBIDDEN "forbidden" "Forbidden" None,
    "the key has another role, or is confined to other policies"
    means "The key is valid, but it has another role, or it is confined to other policies."
    do "Use a key with a role and a policy that `detail` names."
    retry "No, not with the same key.";
UNKNOWN_POLICY = NOT_FOUND "unknown-policy" "Unknown policy" None,
    "no such policy, or archived"
    means "There is no such policy, or it is archived. The instance asked the ledger before it said \
           so."
    do "Check the name. `PUT` creates or revives the policy."
    retry "No, not before somebody has created the policy.";
NOT_FOUND = NOT_FOUND "not-found" "Not found" None,
    "nothing at this path or with this id"
    means "There is nothing at this path or with this id."
    do "Check the path and the id."
    retry "No.";
METHOD_NOT_ALLOWED = METHOD_NOT_ALLOWED "method-not-allowed" "Method not allowed" None,
    "the path wants another method"
    means "The path exists, but not with this method."
    do "Use a method that `Allow` names."
    retry "No.";
SLOW_REQUEST = REQUEST_TIMEOUT "slow-request" "Slow request" None,
    "a head or a body that does not arrive in time"
    means "The head or the body did not arrive in time. Nothing was done."
    do "Send the whole request at once. Check the network if it happens often."
    retry "Yes: nothing was done.";
CLAIM_IN_PROGRESS = CONFLICT "claim-in-progress" "Claim in progress" SOON,
    "the same key is being decided right now"
    means "A claim with the same `Idempotency-Key` is being decided right now."
    do "Wait for `Retry-After`, and send the same claim with the same key."
    retry "Yes: the answer is the one grant of that key.";
LAST_ADMIN_KEY = CONFLICT "last-admin-key" "Last admin key" None,
    "it would end the last admin key that has no end"
    means "The change would end the last admin key that is neither revoked nor given an end."
    do "Make another admin key first."
    retry "Yes, once there is another admin key.";
KEY_REVOKED = CONFLICT "key-revoked" "Key revoked" None,
    "a revoked key stays so"
    means "The key is revoked. It stays so."
    do "Make a new key."
    retry "No.";
BEING_ERASED = CONFLICT "being-erased" "Being erased" None,
    "an override for a subject that is being erased"
    means "The subject is being erased, and its account is still counted on. An override would name it \
           again. Nothing was changed."
    do "Wait for the instant that `detail` names. If the subject claims meanwhile, the wait is longer."
    retry "Yes, after that instant.";
GRANT_REVERSED = CONFLICT "grant-reversed" "Grant reversed" None,
    "a confirmation of a hold that was reversed"
    means "A confirmation of a hold that was reversed. Its units were given back."
    do "Claim again if the units are still needed."
    retry "No.";
HOLD_LAPSED = CONFLICT "hold-lapsed" "Hold lapsed" None,
    "a reversal of a hold that lapsed"
    means "The hold was not confirmed in time, and its units were given back: 409 for a reversal, 410 \
           for a confirmation."
    do "Claim again if the units are needed. Confirm earlier, or ask for more `hold_seconds`."
    retry "No.";
NOT_A_HOLD = CONFLICT "not-a-hold" "Not a hold" None,
    "a confirmation of a grant that is no hold"
    means "A confirmation of a grant that is no hold. The grant stays as it is."
    do "Do nothing: its units are taken for good."
    retry "No.";
POLICY_INACTIVE = CONFLICT "policy-inactive" "Policy inactive" None,
    "paused, or outside `active_from` … `active_until`"
    means "The policy is paused, or now is outside `active_from` … `active_until`."
    do "Wait until the policy is active, or ask its owner."
    retry "Later: `detail` says from when on, if that is known.";
RECONCILIATION_IN_PROGRESS =
    CONFLICT "reconciliation-in-progress" "Reconciliation in progress" SOON,
    "this instance is at another one"
    means "This instance is at another reconciliation."
    do "Wait until its report has an end: `GET /v1/reconciliations`."
    retry "Yes, after `Retry-After`.";
NOT_SEALED = CONFLICT "not-sealed" "Not sealed" SOON,
    "nothing is sealed, or this not yet"
    means "No seal has what was asked for: this instance has no key to seal with, or the position is \
           newer than the newest seal, or above it."
    do "Set `PERDIEM_SEAL_KEY_FILE`, if `detail` says so. Otherwise wait: a position is sealed within \
        seconds. If it lasts, look at `/readyz`."
    retry "Yes, after `Retry-After`, where something is sealed at all.";
HOLD_GONE = GONE "hold-lapsed" "Hold lapsed" None,
    "a confirmation that came too late";
ARCHIVED = GONE "archived" "Archived" None,
    "it needs entries that were archived and dropped"
    means "The answer needs entries that `perdiem archive --drop` has dropped from the ledger. They are \
           in the archive, and the log of seals has their hashes."
    do "Look into the archive's files, or ask for later entries, as `detail` says."
    retry "No.";
PRECONDITION_FAILED = PRECONDITION_FAILED "precondition-failed" "Precondition failed" None,
    "the policy, override or key stands at another version"
    means "The policy, override or key is at another version than `If-Match` names, or it exists \
           although `If-None-Match: *` was sent."
    do "Read it again, decide again, and send its new `ETag`."
    retry "No, not with the same `If-Match`.";
TOO_LARGE = PAYLOAD_TOO_LARGE "too-large" "Too large" None,
    "a body over 64 KiB; a batch over 8 MiB"
    means "413: the body is over 64 KiB; that of a batch, over 8 MiB. 431: the head is over 128 KiB or \
           has more than 96 fields."
    do "Send less: split a batch, or send fewer and shorter fields."
    retry "No.";
INVALID = UNPROCESSABLE_ENTITY "invalid" "Invalid" None,
    "a value out of bounds; units above `max` (they could never fit); more than 2^53 − 1 units \
     would be used in a window"
    means "Values are out of bounds or do not fit each other, or the units are above the `max` of \
           the policy and can never fit. `errors` names each place."
    do "Correct what `errors` names."
    retry "No: the same request fails again.";
IDEMPOTENCY_KEY_REUSED =
    UNPROCESSABLE_ENTITY "idempotency-key-reused" "Idempotency key reused" None,
    "the same key with another claim"
    means "The `Idempotency-Key` belongs to another claim. The same key means the same subject, \
           units, hold and metadata."
    do "Take a new key for a new claim."
    retry "No.";
FAILED_DEPENDENCY = FAILED_DEPENDENCY "failed-dependency" "Failed dependency" None,
    "in an atomic batch: it would have been granted, and another stands in the way"
    means "In an atomic batch: this claim would have been granted, but another one of the batch was \
           not. None is granted."
    do "Look at the items with another status."
    retry "Yes, once the others can be granted.";
QUOTA_EXCEEDED = TOO_MANY_REQUESTS "quota-exceeded" "Quota exceeded" None,
    "denied; nothing was counted"
    means "The claim is denied: some window has no room for its units. Nothing was counted. \
           `violated-policies` names the limits, `limits` shows each one. This answer has the type \
           `https://iana.org/assignments/http-problem-types#quota-exceeded`."
    do "Wait until `Retry-After` is over, or ask for fewer units."
    retry "Yes, after `Retry-After`, also with the same `Idempotency-Key`: a denial is not \
           remembered.";
TOO_MANY_WRONG_KEYS = TOO_MANY_REQUESTS "too-many-wrong-keys" "Too many wrong keys" None,
    "wrong keys came again and again; a valid key is never refused so"
    means "Too many requests with wrong keys came from this address, or from too many addresses. A \
           valid key is never refused so."
    do "Stop sending the wrong key. Send a valid one."
    retry "Yes, with a valid key, at once. With a wrong one, not before `Retry-After`.";
HEAD_TOO_LARGE = REQUEST_HEADER_FIELDS_TOO_LARGE "too-large" "Too large" None,
    "a head over 128 KiB or 96 fields";
UNDECIDED = SERVICE_UNAVAILABLE "undecided" "Undecided" SOON,
    "could not be decided exactly within the deadline; safe to retry"
    means "The claim could not be decided exactly within the deadline. It may or may not have been \
           granted."
    do "Send the same claim again with the same `Idempotency-Key`: it is granted once at most."
    retry "Yes, after `Retry-After`. Without an `Idempotency-Key` a retry may be a second grant.";
UNAVAILABLE = SERVICE_UNAVAILABLE "unavailable" "Unavailable" SOON,
    "the ledger does not answer; a grant with this id may wait for it; the answer took too long; too \
     many requests with this key are under way; or a newer perdiem wrote the policy's rule"
    means "The ledger does not answer, the answer took too long, or too many requests with this key \
           are under way. Or this instance cannot read the policy's rule, because a newer perdiem \
           wrote it: newer instances decide its claims. An unknown key gets this answer while the ledger cannot be asked about it."
    do "Try again, with fewer requests at once, or ask for less: a policy, a shorter span. Read what \
        an edit was to change first: it may be changed. If it lasts, look at `/readyz`."
    retry "Yes, after `Retry-After`.";
}

/// A part of a request that is invalid, and why.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct InvalidPart {
    /// What is wrong and what to do.
    pub detail: String,
    /// Where in the body: a JSON pointer as a URI fragment (RFC 6901, section 6).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "#/limits/0/max")]
    pub pointer: Option<String>,
    /// Which parameter: of the path, the query or the header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter: Option<&'static str>,
}

/// A problem document (RFC 9457), as `application/problem+json`.
#[derive(Debug, Serialize, ToSchema)]
pub struct Problem {
    /// Tells kinds of problems apart, and leads to a page that explains this one.
    #[serde(rename = "type")]
    #[schema(example = "/docs/problems#invalid")]
    pub kind: String,
    /// The kind, for people.
    #[schema(example = "Invalid")]
    pub title: &'static str,
    /// The status of the answer.
    #[schema(example = 422)]
    pub status: u16,
    /// What is wrong this time, and what to do.
    pub detail: String,
    /// Each invalid part.
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

    /// The same part of a body that is itself at a place of another.
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
