//! The kinds of problems. Each has its place in `docs/problems.html`, the page that explains them.

use actix_web::http::StatusCode;

/// How long a client should wait when nothing better is known, in seconds.
const SOON: Option<u64> = Some(1);

/// A kind of problem.
#[derive(Debug, Clone, Copy)]
pub struct ProblemKind {
    /// Its anchor in the page, and the end of its type.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// The status of its answers.
    pub status: StatusCode,
    /// After how many seconds the same request may succeed; `None` where it would not, or where
    /// each answer tells.
    pub retry_after: Option<u64>,
}

macro_rules! kinds {
    ($($constant:ident = $status:ident $name:literal $title:literal $retry_after:expr;)*) => {
        $(
            pub const $constant: ProblemKind = ProblemKind {
                name: $name,
                title: $title,
                status: StatusCode::$status,
                retry_after: $retry_after,
            };
        )*

        #[cfg(test)]
        const KINDS: &[ProblemKind] = &[$($constant),*];
    };
}

kinds! {
    MALFORMED = BAD_REQUEST "malformed" "Malformed" None;
    UNAUTHORIZED = UNAUTHORIZED "unauthorized" "Unauthorized" None;
    FORBIDDEN = FORBIDDEN "forbidden" "Forbidden" None;
    UNKNOWN_POLICY = NOT_FOUND "unknown-policy" "Unknown policy" None;
    NOT_FOUND = NOT_FOUND "not-found" "Not found" None;
    METHOD_NOT_ALLOWED = METHOD_NOT_ALLOWED "method-not-allowed" "Method not allowed" None;
    SLOW_REQUEST = REQUEST_TIMEOUT "slow-request" "Slow request" None;
    CLAIM_IN_PROGRESS = CONFLICT "claim-in-progress" "Claim in progress" SOON;
    RECONCILIATION_IN_PROGRESS =
        CONFLICT "reconciliation-in-progress" "Reconciliation in progress" SOON;
    LAST_ADMIN_KEY = CONFLICT "last-admin-key" "Last admin key" None;
    KEY_REVOKED = CONFLICT "key-revoked" "Key revoked" None;
    POLICY_INACTIVE = CONFLICT "policy-inactive" "Policy inactive" None;
    NOT_A_HOLD = CONFLICT "not-a-hold" "Not a hold" None;
    GRANT_REVERSED = CONFLICT "grant-reversed" "Grant reversed" None;
    HOLD_LAPSED = CONFLICT "hold-lapsed" "Hold lapsed" None;
    HOLD_GONE = GONE "hold-lapsed" "Hold lapsed" None;
    PRECONDITION_FAILED = PRECONDITION_FAILED "precondition-failed" "Precondition failed" None;
    TOO_LARGE = PAYLOAD_TOO_LARGE "too-large" "Too large" None;
    HEAD_TOO_LARGE = REQUEST_HEADER_FIELDS_TOO_LARGE "too-large" "Too large" None;
    INVALID = UNPROCESSABLE_ENTITY "invalid" "Invalid" None;
    IDEMPOTENCY_KEY_REUSED =
        UNPROCESSABLE_ENTITY "idempotency-key-reused" "Idempotency key reused" None;
    FAILED_DEPENDENCY = FAILED_DEPENDENCY "failed-dependency" "Failed dependency" None;
    QUOTA_EXCEEDED = TOO_MANY_REQUESTS "quota-exceeded" "Quota exceeded" None;
    TOO_MANY_WRONG_KEYS = TOO_MANY_REQUESTS "too-many-wrong-keys" "Too many wrong keys" None;
    UNDECIDED = SERVICE_UNAVAILABLE "undecided" "Undecided" SOON;
    UNAVAILABLE = SERVICE_UNAVAILABLE "unavailable" "Unavailable" SOON;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_page_explains_every_kind_and_no_other() {
        let page = include_str!("docs/problems.html");
        let anchors = page.split("<section id=\"").skip(1);
        let anchors: Vec<&str> = anchors.filter_map(|rest| rest.split('"').next()).collect();
        let explained: BTreeSet<&str> = anchors.iter().copied().collect();
        assert_eq!(anchors.len(), explained.len(), "an anchor stands twice");
        let kinds: BTreeSet<&str> = KINDS.iter().map(|kind| kind.name).collect();
        assert_eq!(explained, kinds);
        for kind in KINDS {
            let section = page.split("<section id=\"").skip(1);
            let section = section.filter_map(|rest| rest.split_once("</section>"));
            let mut section = section.map(|(section, _)| section);
            let section = section.find(|section| section.starts_with(&format!("{}\"", kind.name)));
            let section = section.expect("a section");
            let (title, status) = (kind.title, kind.status.as_str());
            assert!(section.contains(&format!("<h2>{title}</h2>")), "{title}");
            assert!(section.contains(status), "{title}: {status}");
            for part in ["<dt>Means</dt>", "<dt>Do</dt>", "<dt>Retry</dt>"] {
                assert!(section.contains(part), "{title}: {part}");
            }
            let says_no = section.contains("<dt>Retry</dt><dd>No");
            assert!(!says_no || kind.retry_after.is_none(), "{title}");
        }
    }

    #[test]
    fn the_specification_lists_every_kind() {
        let table = include_str!("openapi.md");
        for kind in KINDS {
            let row = format!("| {} | `{}` |", kind.status.as_str(), kind.name);
            assert!(table.contains(&row), "{row}");
        }
    }
}
