//! Words of answers and requests, and schemas that the derives cannot make.
//!
//! The words that a field can have come from the lists of the domain, so that they cannot drift.
//! The fields themselves are texts: an error about a wrong word names its place.

use std::borrow::Cow;

use utoipa::openapi::{ObjectBuilder, RefOr, Schema, schema::Type};
use utoipa::{PartialSchema, ToSchema};

use super::format;
use domain::{grant, key, limit, orphans, policy, reads, reconciliation, window};

/// A word of an answer, such as a kind or a state. A newer server may write a word that is not known
/// here, and a reader shows it as it is.
pub type Word = Cow<'static, str>;

/// Makes the schema of a value that matches at least one of several schemas. The derive would say
/// exactly one. A field can tell which one.
macro_rules! any_of {
    ($name:ty, $description:literal, [$($item:ty),+] $(, $field:literal: [$($word:literal => $told:ty),+])?) => {
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                let schema = utoipa::openapi::schema::AnyOfBuilder::new();
                schema
                    .description(Some($description))
                    $(.discriminator(Some(utoipa::openapi::schema::Discriminator::with_mapping(
                        $field,
                        [$(($word, utoipa::openapi::Ref::from_schema_name(<$told>::name()).ref_location)),+],
                    ))))?
                    $(.item(utoipa::openapi::Ref::from_schema_name(<$item>::name())))+
                    .into()
            }
        }

        impl ToSchema for $name {
            fn schemas(
                schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>,
            ) {
                $(
                    schemas.push((<$item>::name().into(), <$item as utoipa::PartialSchema>::schema()));
                    <$item>::schemas(schemas);
                )+
            }
        }
    };
}
pub(crate) use any_of;

/// Makes the schema of a field that has one of several words.
macro_rules! words {
    ($($(#[doc = $doc:literal])+ $name:ident = $words:expr;)+) => {$(
        $(#[doc = $doc])+
        pub enum $name {}

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .description(Some(concat!($($doc),+).trim()))
                    .enum_values(Some($words))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {}
    )+};
}

/// The stores of a ledger. The ledger has the list; a test in `http/health.rs` compares the two.
pub const STORES: [&str; 2] = ["PostgreSQL", "SQLite"];

/// The kinds of changes. The ledger has the list; a test in `http/v1/changes.rs` compares the two.
pub const CHANGE_KINDS: [&str; 11] = [
    "policy",
    "override",
    "block",
    "key",
    "export",
    "day",
    "seal-restart",
    "archive",
    "cut",
    "erasure",
    "read",
];

/// The kinds of problems. `http/answer/problem.rs` describes them, and a test there compares the two.
pub const PROBLEM_CODES: [&str; 32] = [
    "malformed",
    "unauthorized",
    "forbidden",
    "subject-blocked",
    "unknown-policy",
    "not-found",
    "method-not-allowed",
    "slow-request",
    "claim-in-progress",
    "last-admin-key",
    "key-revoked",
    "key-ended",
    "being-erased",
    "grant-reversed",
    "hold-lapsed",
    "not-a-hold",
    "policy-inactive",
    "reconciliation-in-progress",
    "not-sealed",
    "archived",
    "orphaned-overrides",
    "precondition-failed",
    "too-large",
    "encoded-body",
    "invalid",
    "idempotency-key-reused",
    "failed-dependency",
    "quota-exceeded",
    "too-many-wrong-keys",
    "undecided",
    "unavailable",
    "read-only",
];

words! {
    /// The length of a window of the calendar.
    WindowLength = window::Length::ALL.map(window::Length::as_str);
    /// How the units of a limit return.
    LimitKind = limit::shape::LimitKind::ALL.map(limit::shape::LimitKind::as_str);
    /// A weekday.
    Weekday = policy::WEEKDAYS.map(|(_, name)| name);
    /// Where a grant is stored before the claim is answered.
    Durability = policy::Durability::ALL.map(policy::Durability::as_str);
    /// Who decides a policy's claims while the ledger cannot.
    OnLedgerOutage = policy::OnLedgerOutage::ALL.map(policy::OnLedgerOutage::as_str);
    /// What becomes of the overrides that a change of the policy orphans.
    OnOrphans = orphans::OnOrphans::ALL.map(orphans::OnOrphans::as_str);
    /// Whether a policy denies claims that do not fit.
    Mode = policy::Mode::ALL.map(policy::Mode::as_str);
    /// The outcome of a claim.
    ClaimOutcome = ["granted", "denied"];
    /// The reason of an outcome, in one word.
    OutcomeReason = [
        "room",
        "observed",
        "no_room",
        "never_fits",
        "too_many_units",
        "archived",
        "paused",
        "blocked",
        "not_yet_active",
        "no_longer_active",
        "no_version",
    ];
    /// The outcome of a granted claim.
    Granted = ["granted"];
    /// The outcome of a denied claim.
    Denied = ["denied"];
    /// The kind of the problem of a denied claim.
    QuotaExceeded = ["quota-exceeded"];
    /// The kind of a problem. A newer version can have more kinds.
    ProblemCode = PROBLEM_CODES;
    /// The state of a grant.
    GrantState = grant::GrantState::ALL.map(grant::GrantState::as_str);
    /// The kind of an entry.
    EntryKind = grant::KindWord::ALL.map(grant::KindWord::as_str);
    /// The format of an export.
    ExportFormat = format::ExportFormat::ALL.map(format::ExportFormat::as_str);
    /// The kind of a change.
    ChangeKind = CHANGE_KINDS;
    /// What a read of a subject showed.
    ReadKind = reads::ReadKind::ALL.map(reads::ReadKind::as_str);
    /// The role of a key.
    Role = key::Role::ALL.map(key::Role::as_str);
    /// Any version.
    Anything = ["*"];
    /// A filter that is either `true` or absent.
    OnlyTrue = ["true"];
    /// Whether a reconciliation compared the counters.
    CountersCompared =
        reconciliation::CountersCompared::ALL.map(reconciliation::CountersCompared::as_str);
    /// How much of the ledger a reconciliation checks.
    LedgerChecked = reconciliation::LedgerChecked::ALL.map(reconciliation::LedgerChecked::as_str);
    /// The kind of a difference.
    DifferenceKind =
        reconciliation::DifferenceKind::ALL.map(reconciliation::DifferenceKind::as_str);
    /// Whether an instance decides claims.
    ReadinessStatus = ["ready", "not ready"];
    /// Whether an instance seals the record.
    Sealing = ["sealed", "not sealed"];
    /// The store of the ledger.
    Store = STORES;
}

/// The name of a limit.
pub enum LimitName {}

impl PartialSchema for LimitName {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(
                "The name of a limit: `minute`, `hour`, `day`, `week`, `month` or `year` of the \
                 local calendar, `ever`, or a duration from 1s to 400d, such as `90s`, `15m`, `24h` \
                 or `7d`. Answers write a duration with the largest of h, m and s that divides it.",
            ))
            .pattern(Some("^(minute|hour|day|week|month|year|ever|[0-9]+[smhd])$"))
            .into()
    }
}

impl ToSchema for LimitName {
    fn name() -> Cow<'static, str> {
        "Per".into()
    }
}
