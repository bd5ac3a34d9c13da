//! How both stores write kinds, rules and numbers.

use std::num::NonZeroU16;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::LedgerError;
use super::subject_encoding::{MaxRecord, max_records};
use domain::calendar_words::{format_minute, weekday_name};
use domain::claim::Units;
use domain::fault::Fault;
use domain::grant::{Entry, EntryKind, Follower, Note, Provisional};
use domain::identity::EntryId;
use domain::key::Role;
use domain::kind::Kind;
use domain::limit::draft::LimitDraft;
use domain::limit::maxima::MaxDraft;
use domain::limit::shape::Limit;
use domain::own_calendar::CalendarOwner;
use domain::policy::{PolicyName, Rule, RuleDraft};
use domain::shared_limit::SharedLimit;
use domain::tiers::{Tier, TierDraft};
use domain::warning::Levels;

/// SQL names a grant by its number, 1. For all other kinds SQL reads `entry_kinds`.
const _: () = assert!(Kind::Grant.facts().number == 1);

// The flags of an entry are a sum of these. SQL writes the numbers.
pub const PROVISIONAL: i16 = 1;
pub const OVER: i16 = 2;
pub const WOULD_DENY: i16 = 4;
pub const ERASED: i16 = 8;
/// The bits of the levels of use that the entry reached, the lowest level first.
pub const CROSSED: i16 = 0xff * CROSSED_ONE;
const CROSSED_ONE: i16 = 16;

/// The number of an entry's kind.
pub fn encode_kind(kind: EntryKind) -> i16 {
    kind.facts().number
}

/// # Errors
/// [`LedgerError::Corrupt`] for an unknown number, for a kind without the grant that it must name, and
/// for a limit that is none.
pub fn decode_kind(
    number: i16,
    of_grant: Option<EntryId>,
    held_until: Option<DateTime<Utc>>,
    per: Option<String>,
) -> Result<EntryKind, LedgerError> {
    let unreadable = |per| LedgerError::Corrupt(format!("the limit {per:?} of a reset"));
    let per = per.map(|per| per.parse().map_err(|_| unreadable(per)));
    let kind = kind_of_number(number)?.of_entry(of_grant, held_until, per.transpose()?);
    kind.ok_or_else(|| {
        LedgerError::Corrupt(format!("an entry of the kind {number} without a grant"))
    })
}

/// # Errors
/// [`LedgerError::Corrupt`] for an unknown number.
pub fn kind_of_number(number: i16) -> Result<Kind, LedgerError> {
    let unknown = || LedgerError::Corrupt(format!("an entry's kind {number}"));
    Kind::of_number(number).ok_or_else(unknown)
}

/// A note, read from its columns.
pub fn decode_note(made_by: Option<String>, reason: Option<String>) -> Option<Note> {
    made_by.map(|by| Note {
        by: by.into(),
        reason,
    })
}

/// An entry that names a grant, read from its columns; `None` if there is none.
///
/// # Errors
/// As [`decode_kind`].
pub fn decode_follower(
    grant: EntryId,
    id: Option<EntryId>,
    kind: Option<i16>,
    units: Option<Units>,
    at: Option<DateTime<Utc>>,
    note: Option<Note>,
) -> Result<Option<Follower>, LedgerError> {
    let (Some(id), Some(kind), Some(units), Some(at)) = (id, kind, units, at) else {
        return Ok(None);
    };
    Ok(Some(Follower {
        id,
        kind: decode_kind(kind, Some(grant), None, None)?,
        units,
        at,
        note,
    }))
}

/// The flags of an entry. An erasure adds its own later.
pub fn encode_flags(entry: &Entry) -> i16 {
    encode_marks(entry.provisional, entry.would_deny) + encode_crossed(entry.crossed)
}

/// The flags that these marks make. As a filter: the flags that a grant must have to be listed.
pub fn encode_marks(provisional: Option<Provisional>, would_deny: bool) -> i16 {
    let provisional = match provisional {
        None => 0,
        Some(Provisional::Within) => PROVISIONAL,
        Some(Provisional::Over) => PROVISIONAL + OVER,
    };
    provisional + if would_deny { WOULD_DENY } else { 0 }
}

/// The flags of levels of use. As a filter: of these an entry must have one to be listed.
pub fn encode_crossed(crossed: Levels) -> i16 {
    i16::from(crossed.bits()) * CROSSED_ONE
}

/// The levels of use that the flags tell.
pub fn decode_crossed(flags: i16) -> Levels {
    let bits = (flags & CROSSED) / CROSSED_ONE;
    Levels::of_bits(u8::try_from(bits).unwrap_or_default())
}

/// Whether a grant is provisional, and whether the policy would have denied it. [`is_erased`] and
/// [`decode_crossed`] read the remaining flags.
///
/// # Errors
/// [`LedgerError::Corrupt`] for flags that [`encode_flags`] never writes.
pub fn decode_flags(flags: i16) -> Result<(Option<Provisional>, bool), LedgerError> {
    let would_deny = flags & WOULD_DENY != 0;
    let provisional = match flags & !WOULD_DENY & !ERASED & !CROSSED {
        0 => None,
        PROVISIONAL => Some(Provisional::Within),
        flags if flags == PROVISIONAL + OVER => Some(Provisional::Over),
        _ => return Err(LedgerError::Corrupt(format!("an entry's flags {flags}"))),
    };
    Ok((provisional, would_deny))
}

/// Whether the flags say that the entry's texts were erased.
pub fn is_erased(flags: i16) -> bool {
    flags & ERASED != 0
}

/// The number of an entry's key, as a column stores it.
pub fn claimed_by(entry: &Entry) -> Option<i32> {
    entry.claimed_by.map(|number| number.0.cast_signed())
}

/// Whether an entry has a row in `entry_details`.
pub fn has_details(entry: &Entry) -> bool {
    entry.kind.of().is_some()
        || entry.held_until().is_some()
        || entry.note.is_some()
        || entry.kind.per().is_some()
        || entry.bundle.is_some()
}

/// An unknown field comes from a newer perdiem. It is an error, never ignored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleRecord {
    description: String,
    time_zone: String,
    limits: Vec<LimitRecord>,
    day_starts_at: String,
    week_starts_on: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calendar: Option<String>,
    active_from: Option<DateTime<Utc>>,
    active_until: Option<DateTime<Utc>>,
    paused: bool,
    mode: String,
    durability: String,
    on_ledger_outage: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    warn_at: Vec<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotency_days: Option<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tiers: Vec<TierOfRule>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    total: Vec<LimitRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TierOfRule {
    name: String,
    limits: Vec<MaxRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitRecord {
    max: u64,
    per: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    /// Of a limit that all subjects share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u32>,
}

impl From<&Limit> for LimitRecord {
    fn from(limit: &Limit) -> Self {
        Self {
            max: limit.max,
            per: limit.per().to_string(),
            kind: limit.shape.told_kind().map(|kind| kind.as_str().to_owned()),
            step: limit.shape.step().map(|step| step.to_string()),
            burst: limit.shape.burst(),
            from: limit.shape.first_day().map(|day| day.to_string()),
            since: None,
        }
    }
}

impl From<&SharedLimit> for LimitRecord {
    fn from(shared: &SharedLimit) -> Self {
        Self {
            since: Some(shared.since),
            ..Self::from(&shared.limit())
        }
    }
}

impl From<LimitRecord> for LimitDraft {
    fn from(limit: LimitRecord) -> Self {
        Self {
            max: limit.max.into(),
            per: limit.per,
            kind: limit.kind,
            step: limit.step,
            burst: limit.burst.map(i128::from),
            from: limit.from,
        }
    }
}

impl From<&Tier> for TierOfRule {
    fn from(tier: &Tier) -> Self {
        Self {
            name: tier.name.to_string(),
            limits: max_records(&tier.limits),
        }
    }
}

impl From<TierOfRule> for TierDraft {
    fn from(tier: TierOfRule) -> Self {
        let limits = tier.limits.into_iter().map(|limit| MaxDraft {
            max: limit.max.into(),
            per: limit.per,
        });
        Self {
            name: tier.name,
            limits: limits.collect(),
        }
    }
}

/// A rule as JSON.
pub fn encode_rule(rule: &Rule) -> String {
    let record = RuleRecord {
        description: rule.description.clone(),
        time_zone: rule.calendar.zone.name().to_owned(),
        limits: rule.limits.iter().map(LimitRecord::from).collect(),
        day_starts_at: format_minute(rule.calendar.day_starts_at),
        week_starts_on: weekday_name(rule.calendar.week_starts_on).to_owned(),
        calendar: match rule.calendar_owner {
            CalendarOwner::Policy => None,
            owner => Some(owner.as_str().to_owned()),
        },
        active_from: rule.active_from,
        active_until: rule.active_until,
        paused: rule.paused,
        mode: rule.mode.as_str().to_owned(),
        durability: rule.durability.as_str().to_owned(),
        on_ledger_outage: rule.on_ledger_outage.as_str().to_owned(),
        warn_at: rule.warn_at.percents().collect(),
        idempotency_days: rule.idempotency_days.map(NonZeroU16::get),
        tiers: rule.tiers.iter().map(TierOfRule::from).collect(),
        total: rule.shared.iter().map(LimitRecord::from).collect(),
    };
    serde_json::to_string(&record).expect("texts, numbers and instants are JSON")
}

/// A rule from the JSON that [`encode_rule`] wrote.
///
/// # Errors
/// The reason why a text cannot be read: a newer perdiem wrote it, or this machine's tz database
/// does not have the rule's zone.
pub fn decode_rule(text: &str) -> Result<Rule, String> {
    let record: RuleRecord = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let since: Vec<Option<u32>> = record.total.iter().map(|limit| limit.since).collect();
    let draft = RuleDraft {
        description: Some(record.description),
        time_zone: record.time_zone,
        limits: record.limits.into_iter().map(LimitDraft::from).collect(),
        day_starts_at: Some(record.day_starts_at),
        week_starts_on: Some(record.week_starts_on),
        calendar: record.calendar,
        active_from: record.active_from,
        active_until: record.active_until,
        paused: record.paused,
        mode: Some(record.mode),
        durability: Some(record.durability),
        on_ledger_outage: Some(record.on_ledger_outage),
        warn_at: record.warn_at.into_iter().map(i128::from).collect(),
        idempotency_days: record.idempotency_days.map(i128::from),
        tiers: record.tiers.into_iter().map(TierDraft::from).collect(),
        total: record.total.into_iter().map(LimitDraft::from).collect(),
    };
    let checked = draft.check().map_err(|faults| {
        let faults = faults
            .iter()
            .map(|Fault { pointer, detail }| format!("{pointer}: {detail}"));
        faults.collect::<Vec<_>>().join("; ")
    });
    let mut rule = checked?;
    for (limit, since) in rule.shared.iter_mut().zip(since) {
        limit.since = since.unwrap_or(limit.since);
    }
    Ok(rule)
}

/// A role from its name.
///
/// # Errors
/// [`LedgerError::Corrupt`] for any other text.
pub fn decode_role(text: &str) -> Result<Role, LedgerError> {
    text.parse()
        .map_err(|_| LedgerError::Corrupt(format!("a key's role {text:?}")))
}

/// 32 bytes: a secret, or the hash of one.
///
/// # Errors
/// [`LedgerError::Corrupt`] for more or fewer.
pub fn decode_hash(bytes: &[u8]) -> Result<[u8; 32], LedgerError> {
    bytes
        .try_into()
        .map_err(|_| LedgerError::Corrupt(format!("a secret of {} bytes", bytes.len())))
}

/// # Errors
/// [`LedgerError::Corrupt`] for a text that is no policy's name.
pub fn decode_name(name: &str) -> Result<PolicyName, LedgerError> {
    PolicyName::new(name).map_err(|_| LedgerError::Corrupt(format!("a policy's name {name:?}")))
}

/// Policies' names as a JSON array.
pub fn encode_names(names: &[PolicyName]) -> String {
    let names: Vec<&str> = names.iter().map(PolicyName::as_str).collect();
    serde_json::to_string(&names).expect("texts are JSON")
}

/// Policies' names from the JSON that [`encode_names`] wrote.
///
/// # Errors
/// [`LedgerError::Corrupt`] for any other text.
pub fn decode_names(text: &str) -> Result<Arc<[PolicyName]>, LedgerError> {
    let names: Vec<String> = serde_json::from_str(text)
        .map_err(|error| LedgerError::Corrupt(format!("a key's policies: {error}")))?;
    names.iter().map(|name| decode_name(name)).collect()
}

/// A number that a store keeps as a signed integer.
///
/// # Errors
/// [`LedgerError::Corrupt`] for a number that is out of the type's range, such as a negative count.
pub fn narrowed<T: TryFrom<i64>>(number: i64) -> Result<T, LedgerError> {
    T::try_from(number).map_err(|_| LedgerError::Corrupt(format!("the number {number}")))
}

/// A count or number as the stores keep it. All of them are below 2^63.
pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_an_error() {
        assert!(decode_rule("{}").is_err());
        assert!(decode_role("root").is_err());
        assert!(decode_names("{}").is_err());
        assert!(decode_names("[\"A\"]").is_err());
        assert!(decode_kind(0, None, None, None).is_err());
        assert!(decode_kind(3, None, None, None).is_err());
        assert!(decode_kind(8, None, None, Some("daily".to_owned())).is_err());
    }

    #[test]
    fn rules_come_back_as_they_were() {
        let draft = RuleDraft {
            description: Some("3 a day".to_owned()),
            time_zone: "America/St_Johns".to_owned(),
            limits: vec![LimitDraft {
                max: 3,
                per: "day".to_owned(),
                ..LimitDraft::default()
            }],
            day_starts_at: Some("06:30".to_owned()),
            week_starts_on: Some("sunday".to_owned()),
            calendar: Some("policy".to_owned()),
            active_from: None,
            active_until: DateTime::from_timestamp(1_800_000_000, 0),
            paused: true,
            mode: Some("observe".to_owned()),
            durability: Some("counted".to_owned()),
            on_ledger_outage: Some("count".to_owned()),
            warn_at: vec![100, 80],
            idempotency_days: Some(30),
            tiers: vec![TierDraft {
                name: "gold".to_owned(),
                limits: vec![MaxDraft {
                    max: 10,
                    per: "day".to_owned(),
                }],
            }],
            total: Vec::new(),
        };
        let rule = draft.clone().check().unwrap();
        assert_eq!(decode_rule(&encode_rule(&rule)).unwrap(), rule);
        let draft = RuleDraft {
            calendar: Some("first_grant".to_owned()),
            durability: None,
            on_ledger_outage: None,
            total: vec![LimitDraft {
                max: 1000,
                per: "6h".to_owned(),
                kind: Some("calendar".to_owned()),
                ..LimitDraft::default()
            }],
            ..draft
        };
        let mut shared = draft.check().unwrap();
        shared.shared[0].since = 7;
        assert_eq!(decode_rule(&encode_rule(&shared)).unwrap(), shared);
        for newer in [
            encode_rule(&rule).replacen('{', r#"{"carry_over":1,"#, 1),
            encode_rule(&rule).replace(r#""per":"day""#, r#""per":"day","kind":"sliding""#),
            encode_rule(&rule).replace(r#""per":"day""#, r#""per":"ever""#),
        ] {
            assert!(decode_rule(&newer).is_err(), "{newer}");
        }
    }
}
