//! Redis decides alone: grants are counted and queued, and later recorded in the ledger.
//!
//! A bucket has one queue, a stream that never expires. A hash of each account has what waits
//! there: the units in each window, and the claims' ids and keys.

use std::sync::LazyLock;

use chrono::{DateTime, TimeDelta, Utc};
use redis::{Cmd, FromRedisValue, RedisResult, Script, Value, cmd};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::commands::{counter_name, prefix, queue_name, settle_arguments, waiting_name};
use super::{Counters, Settlement, Unavailable, record};
use crate::boxed;
use domain::claim::{Metadata, Subject, Units};
use domain::grant::{Entry, EntryKind, Line, Provisional};
use domain::identity::{AccountId, EntryId, KeyId};
use domain::key::KeyNumber;
use domain::limit::per::Per;
use domain::limit::text::{encode_totals, used_pattern};
use domain::limit::total::{Total, with_used};
use domain::line_text::totals_of;
use domain::policy::PolicyId;
use domain::warning::Levels;
use domain::window::{Division, Window};

const COUNT_LUA: &str = concat!(
    include_str!("lua/line.lua"),
    include_str!("lua/queue.lua"),
    include_str!("lua/count.lua")
);
const RECORD_LUA: &str = concat!(
    include_str!("lua/line.lua"),
    include_str!("lua/queue.lua"),
    include_str!("lua/record.lua")
);
const ASIDE_LUA: &str = concat!(include_str!("lua/queue.lua"), include_str!("lua/aside.lua"));

static COUNT: LazyLock<Script> = LazyLock::new(|| Script::new(COUNT_LUA));
static RECORD: LazyLock<Script> = LazyLock::new(|| Script::new(RECORD_LUA));
static ASIDE: LazyLock<Script> = LazyLock::new(|| Script::new(ASIDE_LUA));

/// A grant that Redis alone decided, while it waits for the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedGrant {
    pub account: AccountId,
    /// The id that its entry will have. The id contains the instant of the grant.
    pub entry: EntryId,
    /// The id of its `Idempotency-Key`.
    pub key: Option<KeyId>,
    pub policy: PolicyId,
    /// The version of the policy that decided.
    pub policy_version: u32,
    pub subject: Option<Subject>,
    pub units: Units,
    pub metadata: Option<Metadata>,
    /// The key that claimed.
    pub claimed_by: KeyNumber,
}

impl CountedGrant {
    /// The entry of the grant, with a line. `totals` are those of the answer.
    pub fn entry(&self, line: Line, provisional: Provisional, totals: &[Total]) -> Entry {
        Entry {
            account: self.account,
            id: self.entry,
            kind: EntryKind::Grant { held_until: None },
            units: self.units,
            key: self.key,
            metadata: self.metadata.clone(),
            provisional: Some(provisional),
            would_deny: are_over(totals),
            crossed: Levels::default(),
            bundle: None,
            is_erased: false,
            claimed_by: Some(self.claimed_by),
            note: None,
            line,
        }
    }
}

/// What the ledger says about an account whose claim Redis decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerWord {
    /// The ledger was not asked.
    NotAsked,
    /// The ledger does not answer. An account without a counter counts from zero.
    Silent,
    /// The number of the last line, 0 without entries. The totals are as of this line.
    Line(u64),
}

/// A claim for Redis to decide, or a look at the used units.
#[derive(Debug, Clone)]
pub struct Count {
    pub account: AccountId,
    /// The version of the policy that the totals belong to.
    pub policy_version: u32,
    /// The present instant.
    pub now: DateTime<Utc>,
    /// Whether the policy only observes. Then Redis denies nothing.
    pub observes: bool,
    /// The limits and their windows. `used` is as of the ledger's last line, or unused.
    pub totals: Vec<Total>,
    /// What the ledger says about the account.
    pub ledger: LedgerWord,
    /// The grant, if the claim is granted; `None` for a look.
    pub grant: Option<CountedGrant>,
}

/// What Redis decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counted {
    /// Granted: the units used in each window, including the claim's.
    Granted(Vec<u64>),
    /// Denied: the units used in each window, and when the ledger last confirmed the counter.
    Denied(Vec<u64>, Option<DateTime<Utc>>),
    /// Denied for now: grants of the account are moving into the ledger. If they are in the ledger
    /// already, they were counted twice. The fields are those of a denial.
    Waits(Vec<u64>, Option<DateTime<Utc>>),
    /// The used units, for a look.
    Looked(Looked),
    /// The claim, or a claim with the same key, waits in the queue already.
    Queued(QueuedGrant),
    /// The counter does not know enough: ask the ledger. The number of the counter, if there is
    /// one.
    AskLedger(Option<u64>),
}

/// The result of a look. A grant that moves into the ledger may be in the line already and wait as
/// well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// The number of the line behind the used units; 0 without a line.
    pub number: u64,
    /// The grants that wait. Empty if there are many, or the ledger does not answer.
    pub waiting: Vec<EntryId>,
    /// The units used in each window as of that line, and the units that wait for it.
    pub units: Vec<(u64, u64)>,
}

/// A grant in its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedGrant {
    /// The place in the queue.
    pub place: String,
    pub grant: CountedGrant,
    /// The limits after the grant.
    pub totals: Vec<Total>,
}

/// The content of a place in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Queued {
    /// A grant.
    Grant(QueuedGrant),
    /// Something that cannot be read: the bucket and the place.
    Unreadable(u8, String),
}

impl Queued {
    /// The bucket of the queue.
    pub fn bucket(&self) -> u8 {
        match self {
            Self::Grant(queued) => queued.grant.account.bucket(),
            Self::Unreadable(bucket, _) => *bucket,
        }
    }

    /// The place in the queue.
    pub fn place(&self) -> &str {
        match self {
            Self::Grant(queued) => &queued.place,
            Self::Unreadable(_, place) => place,
        }
    }
}

/// Grants of one account that are in the ledger now.
#[derive(Debug, Clone)]
pub struct RecordedGrants<'a> {
    /// The account's last line.
    pub settlement: Settlement,
    pub grants: Vec<&'a QueuedGrant>,
}

/// The fields of a grant that are not fields of the stream.
#[derive(Serialize, Deserialize)]
struct GrantRecord<'a> {
    account: Uuid,
    policy: i32,
    policy_version: u32,
    subject: Option<std::borrow::Cow<'a, str>>,
    metadata: Option<std::borrow::Cow<'a, str>>,
    claimed_by: u32,
    /// The limits and windows of the decision, without the used units.
    totals: std::borrow::Cow<'a, str>,
}

impl Counters {
    /// Lets Redis decide claims, in one round trip. The answers are in order, with `None` where
    /// Redis cannot decide. Safe to repeat: Redis recognises a claim by its entry's id and by its
    /// key.
    ///
    /// A Redis that was rolled back has counters without the keys of later grants, and the
    /// connection to it is a new one. Invariant: a counter's keys count as complete only if the
    /// ledger confirmed the counter after this connection began, with `clocks_differ` added for
    /// wrong clocks.
    ///
    /// # Errors
    /// [`Unavailable`]: some claims may have been counted.
    #[boxed]
    pub async fn count(
        &self,
        counts: &[Count],
        clocks_differ: TimeDelta,
    ) -> Result<Vec<Option<Counted>>, Unavailable> {
        let connected = self.connected()?;
        let age = TimeDelta::from_std(connected.since.elapsed()).unwrap_or_default();
        let call = |count: &Count, call: &mut Cmd| {
            let trusted_from = count.now - age + clocks_differ;
            self.count_call(count, trusted_from, call);
        };
        let answers = self
            .run(&connected.link, &COUNT, COUNT_LUA, counts, call)
            .await?;
        let decode = |answer: RedisResult<Value>| decode_counted(answer.ok()?);
        Ok(answers.into_iter().map(decode).collect())
    }

    fn count_call(&self, count: &Count, trusted_from: DateTime<Utc>, call: &mut Cmd) {
        let grant = count.grant.as_ref();
        call.arg(3).arg(&self.names(count.account));
        let entry = grant.map(|grant| record::entry_field(grant.entry));
        let key = grant.and_then(|grant| grant.key).map(record::key_field);
        let ledger = match count.ledger {
            LedgerWord::NotAsked => String::new(),
            LedgerWord::Silent => "silent".to_owned(),
            LedgerWord::Line(number) => number.to_string(),
        };
        call.arg(bytes(entry))
            .arg(bytes(key))
            .arg(grant.map_or(0, |grant| grant.units.get()))
            .arg(count.policy_version)
            .arg(ledger)
            .arg(
                grant
                    .map(|grant| encode_grant(grant, &count.totals))
                    .unwrap_or_default(),
            )
            .arg(count.now.timestamp_micros())
            .arg(if count.observes { "observe" } else { "" })
            .arg(trusted_from.timestamp_micros())
            .arg(window_names(&count.totals, ""));
        for total in &count.totals {
            if let Some((division, window, used)) = total.in_window() {
                call.arg(format!("u{}", window_name(division, window)))
                    .arg(total.max)
                    .arg(used_pattern(division, window))
                    .arg(used);
            }
        }
    }

    /// The first grants that wait in some buckets' queues, in order, at most `most` each.
    ///
    /// # Errors
    /// [`Unavailable`].
    #[boxed]
    pub async fn queued(&self, buckets: &[u8], most: usize) -> Result<Vec<Queued>, Unavailable> {
        let commands = buckets.iter().map(|bucket| {
            let mut command = cmd("XRANGE");
            command
                .arg(queue_name(self.ledger, *bucket))
                .arg("-")
                .arg("+");
            command.arg("COUNT").arg(most);
            command
        });
        let answers = self.query(&self.link()?, commands.collect()).await?;
        let mut queued = Vec::new();
        for (bucket, answer) in buckets.iter().zip(answers) {
            let Ok(answer) = answer else { continue };
            let entries = Vec::<(String, Value)>::from_redis_value(answer);
            for (place, fields) in entries.into_iter().flatten() {
                queued.push(match decode_queued(&place, fields) {
                    Some(grant) => Queued::Grant(grant),
                    None => Queued::Unreadable(*bucket, place),
                });
            }
        }
        Ok(queued)
    }

    /// How many grants wait in some buckets' queues.
    ///
    /// # Errors
    /// [`Unavailable`].
    #[boxed]
    pub async fn queue_lengths(&self, buckets: &[u8]) -> Result<Vec<u64>, Unavailable> {
        let commands = buckets.iter().map(|bucket| {
            let mut command = cmd("XLEN");
            command.arg(queue_name(self.ledger, *bucket));
            command
        });
        let answers = self.query(&self.link()?, commands.collect()).await?;
        let decode = |answer: RedisResult<Value>| {
            let length = answer
                .ok()
                .and_then(|length| redis::from_redis_value(length).ok());
            length.unwrap_or(0)
        };
        Ok(answers.into_iter().map(decode).collect())
    }

    /// Removes grants that are in the ledger from their queues, and settles their accounts'
    /// counters. Safe to repeat.
    ///
    /// # Errors
    /// [`Unavailable`]: some grants may have been removed.
    #[boxed]
    pub async fn record(&self, recorded: &[RecordedGrants<'_>]) -> Result<(), Unavailable> {
        let call = |recorded: &RecordedGrants<'_>, call: &mut Cmd| {
            call.arg(3).arg(&self.names(recorded.settlement.account));
            call.arg(recorded.grants.len());
            for QueuedGrant {
                place,
                grant,
                totals,
            } in &recorded.grants
            {
                call.arg(place)
                    .arg(record::entry_field(grant.entry).as_slice())
                    .arg(bytes(grant.key.map(record::key_field)))
                    .arg(grant.units.get())
                    .arg(window_names(totals, "u"));
            }
            settle_arguments(&recorded.settlement, call);
        };
        self.run(&self.link()?, &RECORD, RECORD_LUA, recorded, call)
            .await?;
        Ok(())
    }

    /// Sets aside something that cannot be recorded, so that the queue continues. It moves to a
    /// stream of its own, where people can look at it. Safe to repeat.
    ///
    /// # Errors
    /// [`Unavailable`]: it may have been set aside.
    #[boxed]
    pub async fn set_aside(&self, queued: &Queued) -> Result<(), Unavailable> {
        let grant = match queued {
            Queued::Grant(queued) => Some(&queued.grant),
            Queued::Unreadable(..) => None,
        };
        let bucket = queued.bucket();
        let place = queued.place();
        let aside = format!("{}aside", prefix(self.ledger, bucket));
        let mut names = vec![queue_name(self.ledger, bucket), aside];
        let counter = grant.map(|grant| counter_name(self.ledger, grant.account));
        names.extend(counter.map(|counter| waiting_name(&counter)));
        let entry = grant.map(|grant| record::entry_field(grant.entry).to_vec());
        let call = |names: &Vec<String>, call: &mut Cmd| {
            call.arg(names.len()).arg(names).arg(place).arg(&entry);
        };
        self.run(&self.link()?, &ASIDE, ASIDE_LUA, &[names], call)
            .await?;
        Ok(())
    }

    /// The names of an account's counter, of its waiting hash, and of its bucket's queue.
    fn names(&self, account: AccountId) -> [String; 3] {
        let counter = counter_name(self.ledger, account);
        let waiting = waiting_name(&counter);
        [counter, waiting, queue_name(self.ledger, account.bucket())]
    }
}

/// A field, or an empty one.
fn bytes(field: Option<[u8; 17]>) -> Vec<u8> {
    field.map_or(Vec::new(), Vec::from)
}

/// The name of a window in the queue. In the waiting hash the name follows a `u`. A name has no blanks.
fn window_name(division: Division, window: Window) -> String {
    let per = Per::from(division).as_text().replace(' ', "-");
    format!("{per}:{}", window.start.timestamp())
}

/// The names of the windows, each after a prefix. Invariant: a policy that Redis may count for has
/// only calendar limits.
fn window_names(totals: &[Total], prefix: &str) -> String {
    let windows = totals.iter().filter_map(Total::in_window);
    let names =
        windows.map(|(division, window, _)| format!("{prefix}{}", window_name(division, window)));
    names.collect::<Vec<_>>().join(" ")
}

/// Whether more is used than some limit allows. For Redis this is true only after a grant under a
/// policy that observes.
fn are_over(totals: &[Total]) -> bool {
    totals.iter().any(|total| total.used() > total.max)
}

fn encode_grant(grant: &CountedGrant, totals: &[Total]) -> String {
    let record = GrantRecord {
        account: grant.account.0,
        policy: grant.policy.0,
        policy_version: grant.policy_version,
        subject: grant
            .subject
            .as_ref()
            .map(|subject| subject.as_str().into()),
        metadata: grant.metadata.as_ref().map(|json| json.as_str().into()),
        claimed_by: grant.claimed_by.0,
        totals: encode_totals(totals).into(),
    };
    serde_json::to_string(&record).expect("texts and numbers are JSON")
}

fn decode_counted(answer: Value) -> Option<Counted> {
    let mut parts = Vec::<Value>::from_redis_value(answer).ok()?.into_iter();
    let mut text = || String::from_redis_value(parts.next()?).ok();
    match text()?.as_str() {
        "granted" => Some(Counted::Granted(decode_used(parts)?)),
        word @ ("denied" | "waits") => {
            let confirmed = text()?.parse().ok();
            let confirmed_at = confirmed.and_then(DateTime::from_timestamp_millis);
            let used = decode_used(parts)?;
            Some(match word {
                "denied" => Counted::Denied(used, confirmed_at),
                _ => Counted::Waits(used, confirmed_at),
            })
        }
        "looked" => {
            let number = text()?.parse().ok()?;
            let waiting = Vec::<Vec<u8>>::from_redis_value(parts.next()?).ok()?;
            let waiting = waiting
                .iter()
                .map(|field| Some(EntryId(decode_id(b'i', field)?)));
            let waiting = waiting.collect::<Option<_>>()?;
            let units = decode_used(parts)?;
            let units = units.chunks_exact(2).map(|units| (units[0], units[1]));
            Some(Counted::Looked(Looked {
                number,
                waiting,
                units: units.collect(),
            }))
        }
        "queued" => {
            let place = text()?;
            decode_queued(&place, parts.next()?).map(Counted::Queued)
        }
        "ask" => Some(Counted::AskLedger(text()?.parse().ok())),
        _ => None,
    }
}

fn decode_used(parts: impl Iterator<Item = Value>) -> Option<Vec<u64>> {
    parts
        .map(|part| String::from_redis_value(part).ok()?.parse().ok())
        .collect()
}

/// The id in a field, after its letter.
fn decode_id(letter: u8, field: &[u8]) -> Option<Uuid> {
    Uuid::from_slice(field.strip_prefix(&[letter])?).ok()
}

fn decode_queued(place: &str, fields: Value) -> Option<QueuedGrant> {
    let fields = Vec::<Vec<u8>>::from_redis_value(fields).ok()?;
    let field = |name: &str| {
        let mut pairs = fields.chunks_exact(2);
        let found = pairs.find(|pair| pair[0] == name.as_bytes());
        found.map(|pair| pair[1].as_slice())
    };
    let text = |name| std::str::from_utf8(field(name)?).ok();
    let key = field("key")?;
    let record: GrantRecord<'_> = serde_json::from_str(text("grant")?).ok()?;
    let used: Result<Vec<u64>, _> = text("used")?.split(' ').map(str::parse).collect();
    Some(QueuedGrant {
        place: place.to_owned(),
        grant: CountedGrant {
            account: AccountId(record.account),
            entry: EntryId(decode_id(b'i', field("id")?)?),
            key: if key.is_empty() {
                None
            } else {
                Some(KeyId(decode_id(b'k', key)?))
            },
            policy: PolicyId(record.policy),
            policy_version: record.policy_version,
            subject: match record.subject {
                Some(subject) => Some(Subject::existing(&subject).ok()?),
                None => None,
            },
            units: Units::new(text("units")?.parse().ok()?).ok()?,
            metadata: record
                .metadata
                .map(|json| Metadata::from_stored(json.into_owned())),
            claimed_by: KeyNumber(record.claimed_by),
        },
        totals: with_used(totals_of(&record.totals).ok()?, used.ok()?),
    })
}
