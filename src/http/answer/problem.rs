//! Problems (RFC 9457). Each kind is described here once. Answers, the specification and the page
//! `/docs/problems` are made from this list.

use actix_web::http::StatusCode;

use api::problem::{InvalidPart, Problem};

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
    "the request is not HTTP or not JSON, has an unknown field or parameter, or a wrong type"
    means "The body is not JSON, a field or a query parameter is unknown or repeated, or a value \
           has the wrong type. `detail` names the fault. For an unknown name, `detail` also has \
           the nearest known name."
    do "Correct the request."
    retry "No: the same request fails again.";
UNAUTHORIZED = UNAUTHORIZED "unauthorized" "Unauthorized" None,
    "no valid key"
    means "The request has no key, or its key is mistyped, unknown, revoked or ended."
    do "Send `Authorization: Bearer <key>` with a valid key. An admin makes keys with `POST \
        /v1/keys`."
    retry "No, not with the same key. perdiem answers repeated wrong keys slowly.";
FORBIDDEN = FORBIDDEN "forbidden" "Forbidden" None,
    "the key has another role, or is confined to other policies"
    means "The key is valid, but it has another role, or it is confined to other policies."
    do "Use a key that is valid for this request. `detail` says which role or which policy the key \
        needs."
    retry "No, not with the same key.";
SUBJECT_BLOCKED = FORBIDDEN "subject-blocked" "Subject blocked" None,
    "an admin has blocked the subject under this policy; nothing was counted"
    means "An admin has blocked the subject under this policy, so the policy denies each of its \
           claims. Nothing was counted. `blocked_until` says when the block ends; without it the \
           block has no end."
    do "Do not give the benefit. Wait for `Retry-After`, or ask an admin, who can read the reason of \
        the block and remove it."
    retry "Yes, after `Retry-After`. Without `Retry-After`, not before an admin removes the block.";
OWN_PROPOSAL = FORBIDDEN "own-proposal" "Own proposal" None,
    "an approval by the key that proposed the change"
    means "The key that proposed the change cannot approve it. Nothing was changed."
    do "Give the proposal to another admin."
    retry "No, not with the same key.";
UNKNOWN_POLICY = NOT_FOUND "unknown-policy" "Unknown policy" None,
    "no such policy, or archived"
    means "The ledger has no policy with this name, or the policy is archived."
    do "Check the name. `PUT /v1/policies/{policy}` creates the policy, or makes an archived \
        policy active again."
    retry "No, not before somebody creates the policy.";
NOT_FOUND = NOT_FOUND "not-found" "Not found" None,
    "nothing at this path or with this id"
    means "The path does not exist, or nothing has this id."
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
    do "Send the whole request at once. If this happens often, check the network."
    retry "Yes: nothing was done.";
CLAIM_IN_PROGRESS = CONFLICT "claim-in-progress" "Claim in progress" SOON,
    "a claim with the same `Idempotency-Key` is being decided now"
    means "A claim with the same `Idempotency-Key` is being decided now."
    do "Wait for `Retry-After`. Then send the same claim with the same `Idempotency-Key`."
    retry "Yes: the same `Idempotency-Key` gets the same grant.";
LAST_ADMIN_KEY = CONFLICT "last-admin-key" "Last admin key" None,
    "the change would revoke or end the last admin key without an end"
    means "The key is the last admin key that is not revoked and has no end. perdiem does not \
           revoke this key, and does not give it an end."
    do "Create another admin key first."
    retry "Yes, after you created another admin key.";
KEY_REVOKED = CONFLICT "key-revoked" "Key revoked" None,
    "a revoked key cannot be changed"
    means "The key is revoked. A revoked key cannot be changed."
    do "Create a new key."
    retry "No.";
KEY_ENDED = CONFLICT "key-ended" "Key ended" None,
    "a key that has ended cannot be replaced"
    means "The key has ended. Its replacement would have the same end, so it would not work either."
    do "Give the key another end with `PATCH /v1/keys/{id}`, and replace it then. Or create a new key."
    retry "No, not before the key has another end.";
BEING_ERASED = CONFLICT "being-erased" "Being erased" None,
    "an override for a subject that is being erased"
    means "An erasure of the subject is not finished yet. An override would store the name of the \
           subject again. Nothing was changed."
    do "Wait until the instant in `detail`. Each new claim of the subject makes this time longer."
    retry "Yes, after that instant.";
GRANT_REVERSED = CONFLICT "grant-reversed" "Grant reversed" None,
    "a confirmation, or a retry of a claim, whose grant was reversed"
    means "The grant was reversed, and its units were given back. A reversed hold cannot be \
           confirmed. The `Idempotency-Key` of a reversed grant stays used."
    do "Claim again if the units are still needed, with another `Idempotency-Key`."
    retry "No.";
NOT_A_HOLD = CONFLICT "not-a-hold" "Not a hold" None,
    "a confirmation of a grant that is not a hold"
    means "The grant is not a hold, so it cannot be confirmed. Nothing was changed."
    do "Do nothing: the grant needs no confirmation."
    retry "No.";
NOTHING_USED = CONFLICT "nothing-used" "Nothing used" None,
    "a reset of a limit of which nothing is used"
    means "The subject has used nothing of the limit that the reset names, or of any limit. Nothing \
           was changed."
    do "Check the policy, the subject and `per`. If they are right, do nothing."
    retry "No, not before the subject uses units.";
NOTHING_LEFT = CONFLICT "nothing-left" "Nothing left" None,
    "a reversal of a top-up of which nothing is left"
    means "The subject has no top-up with this id of which a unit is left: all units are used, it has ended, or it \
           is another subject's. Nothing was changed."
    do "Look at the subject's usage: it lists the top-ups. Units that were used come back by reversals of their \
        grants."
    retry "No, not before a grant that used a unit of it is reversed.";
POLICY_INACTIVE = CONFLICT "policy-inactive" "Policy inactive" None,
    "the policy is paused, or it is before `active_from`, or not before `active_until`"
    means "The policy is paused, has not begun (`active_from`), or has ended (`active_until`). \
           `detail` says which."
    do "Wait for `Retry-After`. Without `Retry-After` ask an admin: nothing that is known makes the \
        policy active again."
    retry "Yes, after `Retry-After`, or when the policy is active again.";
RECONCILIATION_IN_PROGRESS =
    CONFLICT "reconciliation-in-progress" "Reconciliation in progress" SOON,
    "this instance already runs a reconciliation"
    means "This instance already runs a reconciliation."
    do "Wait until the report of the reconciliation has a `finished_at`. `GET /v1/reconciliations` \
        lists the reports."
    retry "Yes, after `Retry-After`.";
NOT_SEALED = CONFLICT "not-sealed" "Not sealed" SOON,
    "nothing is sealed, or the position is not sealed yet"
    means "There is no seal for this request. The instance has no key that signs seals, or the \
           position is above the newest seal."
    do "If `detail` says so, set `PERDIEM_SEAL_KEY_FILE`. Otherwise wait: perdiem seals a position \
        within seconds. If the problem continues, look at `/readyz`."
    retry "Yes, after `Retry-After`, if the instance has a key that signs seals.";
HOLD_LAPSED = GONE "hold-lapsed" "Hold lapsed" None,
    "a confirmation that came too late, a reversal of a hold that lapsed, or a retry of its claim"
    means "The hold was not confirmed in time, and its units were given back. A confirmation, a \
           reversal and a retry of the claim then get this answer."
    do "Claim again if the units are needed, with another `Idempotency-Key`. Next time, confirm \
        earlier, or ask for more `hold_seconds`."
    retry "No.";
ARCHIVED = GONE "archived" "Archived" None,
    "the answer needs entries that were archived and dropped"
    means "The answer needs entries that `perdiem archive --drop` has dropped from the ledger. The \
           archive has these entries."
    do "Look for the entries in the files of the archive. Or ask for later entries, as `detail` \
        says."
    retry "No.";
ORPHANED_OVERRIDES = CONFLICT "orphaned-overrides" "Orphaned overrides" None,
    "the change of the policy leaves overrides without their limit, or beyond its bounds, or subjects without \
     their tier"
    means "The change leaves overrides without their limit, or beyond the bounds of the new limit; or it removes \
           a tier that subjects are in. `orphaned_overrides` has their number and the first of them. Nothing \
           was changed."
    do "Say what becomes of them: send `orphaned_overrides` with `drop`, and they end; or with \
        `keep`, and they stay without an effect. Or keep the limits and the tier."
    retry "Yes, with `orphaned_overrides`.";
NEEDS_APPROVAL = CONFLICT "needs-approval" "Needs approval" None,
    "the change is valid, and waits for a second admin"
    means "`PERDIEM_FOUR_EYES` names the policy, so a change of its rule needs two admins. The change is valid. \
           Nothing was changed. `proposal` contains the whole change."
    do "Give `proposal` to another admin, who sends it to `POST /v1/approvals` within 7 days. Any other change \
        of the policy makes it stale."
    retry "No: the same request is another proposal.";
PRECONDITION_FAILED = PRECONDITION_FAILED "precondition-failed" "Precondition failed" None,
    "the policy, override or key has another version"
    means "The policy, override or key does not have the version that `If-Match` names. Or the \
           request has `If-None-Match: *`, but the policy, override or key exists. Or the policy has changed \
           since a proposal was made."
    do "Read the policy, override or key again. Check your change. Send the change with the new \
        `ETag` in `If-Match`. A proposal is made again."
    retry "No, not with the same `If-Match` or `If-None-Match`.";
TOO_LARGE = PAYLOAD_TOO_LARGE "too-large" "Too large" None,
    "a body over 64 KiB; a batch over 8 MiB"
    means "Status 413: the body is over 64 KiB, or the body of a batch is over 8 MiB. Status 431: \
           the head is over 128 KiB, or has more than 96 fields."
    do "Send less: split a batch, or send fewer and shorter header fields."
    retry "No.";
ENCODED_BODY = UNSUPPORTED_MEDIA_TYPE "encoded-body" "Encoded body" None,
    "a body with a `Content-Encoding`"
    means "The body is compressed, or encoded in another way. perdiem reads plain JSON only."
    do "Send the plain JSON, without `Content-Encoding`."
    retry "No.";
INVALID = UNPROCESSABLE_ENTITY "invalid" "Invalid" None,
    "a wrong value; units above `max`, which can never fit; a window would have more than 2^53 − 1 \
     units"
    means "A value is out of bounds, or two values do not fit together. Or the units are above the \
           `max` of a limit, and can never fit. `errors` names the place of each wrong value."
    do "Correct each value that `errors` names."
    retry "No: the same request fails again.";
IDEMPOTENCY_KEY_REUSED =
    UNPROCESSABLE_ENTITY "idempotency-key-reused" "Idempotency key reused" None,
    "the `Idempotency-Key` belongs to another claim"
    means "The `Idempotency-Key` belongs to another claim. A retry must have the same subject, \
           units, hold and metadata."
    do "Use a new `Idempotency-Key` for a new claim."
    retry "No.";
FAILED_DEPENDENCY = FAILED_DEPENDENCY "failed-dependency" "Failed dependency" None,
    "in an atomic batch: another claim was not granted"
    means "This claim alone would be granted. But another claim of the atomic batch cannot be \
           granted, so no claim of the batch is granted."
    do "Look at the items of the answer with another status. Correct these claims, or leave them \
        out."
    retry "Yes, when the other claims can be granted.";
QUOTA_EXCEEDED = TOO_MANY_REQUESTS "quota-exceeded" "Quota exceeded" None,
    "denied; nothing was counted"
    means "The claim is denied: a limit has no room for its units. Nothing was counted. \
           `violated-policies` names the limits without room. `limits` shows every limit. `fits_at` \
           is the earliest instant at which the claim would be granted. `type` \
           is `https://iana.org/assignments/http-problem-types#quota-exceeded`."
    do "Wait for `Retry-After`, or ask for fewer units. Without `Retry-After` nothing that is known \
        makes room for these units."
    retry "Yes, after `Retry-After`. You can use the same `Idempotency-Key`, because perdiem does \
           not store a denial under it.";
TOO_MANY_WRONG_KEYS = TOO_MANY_REQUESTS "too-many-wrong-keys" "Too many wrong keys" None,
    "too many wrong keys were sent; a request with a valid key never gets this answer"
    means "The key is wrong, and too many wrong keys came from this address, or from many \
           addresses. A request with a valid key never gets this answer."
    do "Stop sending the wrong key. Send a valid key."
    retry "Yes. With a valid key, retry at once. Otherwise wait for `Retry-After`.";
HEAD_TOO_LARGE = REQUEST_HEADER_FIELDS_TOO_LARGE "too-large" "Too large" None,
    "a head over 128 KiB or 96 fields";
UNDECIDED = SERVICE_UNAVAILABLE "undecided" "Undecided" SOON,
    "the claim could not be decided exactly in time; a retry with the same `Idempotency-Key` is \
     safe"
    means "perdiem could not decide the claim exactly before its deadline. `detail` says why. The \
           claim may be granted. A confirmation, a reversal or an adjustment can get this answer \
           too."
    do "Send the same request again, with the same `Idempotency-Key`. perdiem grants the claim at \
        most once."
    retry "Yes, after `Retry-After`. Without an `Idempotency-Key` a retry can become a second \
           grant.";
UNAVAILABLE = SERVICE_UNAVAILABLE "unavailable" "Unavailable" SOON,
    "the ledger does not answer; the ledger may not have recorded a grant with this id yet; the \
     answer took too long; too many requests with this API key are in progress; too many reads of \
     subjects are to be recorded; a newer version of perdiem wrote the policy; or this instance's \
     clock is off, and the request would change something"
    means "The ledger does not answer, or the answer took too long. Or too many requests with this \
           API key are in progress. Or reads of subjects are recorded, and too many came in one \
           second. Or the ledger has not recorded a grant with this id yet. Or a \
           newer version of perdiem wrote the policy, and this instance cannot read the policy. Or \
           the clock of this instance is off, so it changes nothing. While the ledger does not answer, an unknown API key also gets this answer."
    do "Send the request again, with fewer requests at the same time. Or ask for less: one policy, \
        fewer days. After a change, first read if the change was made. If the problem continues, \
        look at `/readyz`."
    retry "Yes, after `Retry-After`.";
READ_ONLY = SERVICE_UNAVAILABLE "read-only" "Read only" None,
    "the instance only reads, and the request is a claim or a change, or an export that is not recorded"
    means "The instance was started with `PERDIEM_READ_ONLY`. It reads the ledger, often on a standby, and \
           writes nothing: it decides no claims, changes nothing, and records no export. Nothing was \
           done."
    do "Send claims and changes to an instance whose `/readyz` says `\"read_only\": false`. Record an export \
        there with `HEAD`, and read its rows here with `export=`."
    retry "No, not at this instance.";
}

/// The page of denials, whose `type` is that of a standard.
pub const QUOTA_EXCEEDED_PAGE: &str = "/docs/problems#quota-exceeded";

impl ProblemKind {
    /// The page that explains this kind.
    fn page(self) -> String {
        format!("/docs/problems#{}", self.name)
    }

    /// A problem of this kind.
    pub fn problem(self, detail: String, errors: Vec<InvalidPart>) -> Problem {
        Problem {
            kind: self.page(),
            code: self.name.into(),
            title: self.title.into(),
            status: self.status.as_u16(),
            detail,
            page: self.page(),
            request_id: None,
            trace_id: None,
            errors,
            blocked_until: None,
            orphaned_overrides: None,
            proposal: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use api::words::PROBLEM_CODES;

    #[test]
    fn the_specification_has_every_code() {
        let described: BTreeSet<&str> = KINDS.iter().map(|kind| kind.name).collect();
        assert_eq!(described, BTreeSet::from(PROBLEM_CODES));
    }
}
