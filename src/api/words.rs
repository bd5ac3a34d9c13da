//! Words of answers and requests, and schemas that the derives cannot make.
//!
//! The words that a field can have come from the lists of the domain, so that they cannot drift.
//! The fields themselves are texts: an error about a wrong word names its place.

use std::borrow::Cow;

use utoipa::openapi::{ObjectBuilder, RefOr, Schema, schema::Type};
use utoipa::{PartialSchema, ToSchema};

use super::format;
use domain::{
    calendar_words, grant, key, limit, orphans, own_calendar, policy, reads, reconciliation,
    warning,
};

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
    ($($(#[doc = $doc:literal])* $name:ident = $words:expr;)+) => {$(
        $(#[doc = $doc])*
        pub enum $name {}

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .description(Some(concat!($($doc),*).trim()).filter(|it| !it.is_empty()))
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
pub const CHANGE_KINDS: [&str; 12] = [
    "policy",
    "override",
    "block",
    "tier",
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
pub const PROBLEM_CODES: [&str; 36] = [
    "malformed",
    "unauthorized",
    "forbidden",
    "subject-blocked",
    "own-proposal",
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
    "nothing-used",
    "nothing-left",
    "archived",
    "orphaned-overrides",
    "needs-approval",
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
    /// `calendar`: of the local calendar; a duration then divides each local day. `from_first_claim`: all units return
    /// together, one duration after the first grant. `sliding`: each unit returns one duration after it was taken.
    /// `rate`: units return evenly.
    LimitKind = limit::shape::LimitKind::ALL.map(limit::shape::LimitKind::as_str);
    Weekday = calendar_words::WEEKDAYS.map(|(_, name)| name);
    /// `recorded`: a grant is committed to the ledger before the claim is answered. `counted`: Redis alone
    /// decides, and queues the grant for the ledger, so a claim does not wait for the ledger, but a grant is
    /// only as durable as Redis.
    Durability = policy::Durability::ALL.map(policy::Durability::as_str);
    /// What happens while the ledger cannot decide. `refuse`: claims get 503. `count`: Redis decides, perhaps
    /// over a limit, and the ledger records the grants afterwards.
    OnLedgerOutage = policy::OnLedgerOutage::ALL.map(policy::OnLedgerOutage::as_str);
    /// What becomes of overrides that a change leaves without their limit, or beyond its bounds, and of
    /// subjects without their tier. `drop`: they
    /// end, when the change takes effect. `keep`: they stay, and have no effect on the limits that they lost.
    OnOrphans = orphans::OnOrphans::ALL.map(orphans::OnOrphans::as_str);
    /// `enforce`: claims that do not fit are denied. `observe`: all claims are granted, up to 2^53 − 1 units in
    /// a window, and those that would have been denied are marked.
    Mode = policy::Mode::ALL.map(policy::Mode::as_str);
    ClaimOutcome = ["granted", "denied"];
    OutcomeReason = [
        "room",
        "topped_up",
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
    Granted = ["granted"];
    Denied = ["denied"];
    QuotaExceeded = ["quota-exceeded"];
    /// A newer version can have more codes.
    ProblemCode = PROBLEM_CODES;
    GrantState = grant::GrantState::ALL.map(grant::GrantState::as_str);
    EntryKind = grant::KindWord::ALL.map(grant::KindWord::as_str);
    ExportFormat = format::ExportFormat::ALL.map(format::ExportFormat::as_str);
    ChangeKind = CHANGE_KINDS;
    ReadKind = reads::ReadKind::ALL.map(reads::ReadKind::as_str);
    Role = key::Role::ALL.map(key::Role::as_str);
    ProposedOperation = ["put", "archive"];
    Anything = ["*"];
    OnlyTrue = ["true"];
    /// `subject`: each subject can have a time zone and an anchor of its own, which a claim or an admin tells;
    /// `first_grant`: the same, and a subject without an anchor gets the day of its first entry.
    CalendarOwner = own_calendar::CalendarOwner::ALL.map(own_calendar::CalendarOwner::as_str);
    /// `absent`: there is no Redis, and only the ledger was checked. `unavailable`: Redis was away, and not all
    /// counters were compared.
    CountersCompared =
        reconciliation::CountersCompared::ALL.map(reconciliation::CountersCompared::as_str);
    /// `part`: the entries that are new since the reconciliation before, the accounts of its alarms, and the
    /// next part of all accounts; the parts of about a week are the whole.
    LedgerChecked = reconciliation::LedgerChecked::ALL.map(reconciliation::LedgerChecked::as_str);
    /// Of counters: `counter_too_high` and `counter_lags`: its number is above or below that of the account's
    /// last entry; `counter_differs` in another way; `counter_unreadable`; `counter_orphaned`: the ledger does
    /// not know the account. Alarms: `wrong_total`: a total is not the sum of the entries; `gap`: numbers are
    /// missing before this entry; `time_backwards`: the entry is earlier than the one before it;
    /// `wrong_calendar`: the calendar of the account is another one than before, and nobody moved it;
    /// `wrong_top_ups`: the top-ups of the account do not follow from the entries; `foreign_entry`: not of an
    /// account that perdiem opened; `unreadable_entry`; `wrong_figure`: the entries make another figure of a day.
    DifferenceKind =
        reconciliation::DifferenceKind::ALL.map(reconciliation::DifferenceKind::as_str);
    ReadinessStatus = ["ready", "not ready"];
    Sealing = ["sealed", "not sealed"];
    Store = STORES;
}

/// A level of use that a policy can watch.
pub enum WarningLevel {}

impl PartialSchema for WarningLevel {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Integer)
            .description(Some(
                "A level of use, in percent of the most units at once.",
            ))
            .enum_values(Some(warning::LEVELS))
            .into()
    }
}

impl ToSchema for WarningLevel {}

/// The name of a limit.
pub enum LimitName {}

impl PartialSchema for LimitName {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(
                "The name of a limit: a word of the local calendar, `2 weeks` to `52 weeks`, `ever`, or a duration \
                 from 1s to 400d. Answers write a duration with the largest of h, m and s that divides it.",
            ))
            .pattern(Some("^(minute|hour|day|week|month|quarter|year|ever|[0-9]+ weeks|[0-9]+[smhd])$"))
            .examples(["day"])
            .into()
    }
}

impl ToSchema for LimitName {
    fn name() -> Cow<'static, str> {
        "Per".into()
    }
}
