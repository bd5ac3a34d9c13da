//! What stands in the ledger and in Redis, read past perdiem's own code.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use perdiem::domain::identity::EntryId;
use redis::Commands;
use serde_json::Value;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

/// A line of an account.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub account: Uuid,
    pub policy: String,
    pub subject: String,
    pub number: i64,
    pub id: Uuid,
    pub at: DateTime<Utc>,
    /// When its units were granted, which decides the windows that they count in.
    pub granted_at: DateTime<Utc>,
    pub provisional: Option<Provisional>,
    pub units: u64,
    pub policy_version: i32,
    /// The number of the wish, as its metadata bears it.
    pub wish: Option<usize>,
    pub totals: Vec<Total>,
    /// The line as a counter holds it, without its number.
    pub line: String,
}

/// How a grant that Redis alone decided stood in its windows when it was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provisional {
    Within,
    Over,
}

/// A limit's window after an entry, in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Total {
    pub per: String,
    pub max: u64,
    pub used: u64,
    pub start: i64,
    pub end: i64,
}

/// A version of a policy: its zone's fixed offset in seconds, if it has one, and its limits,
/// each `per` with its `max`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub offset: Option<i64>,
    pub limits: Vec<(String, u64)>,
}

/// A counter in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    pub account: Uuid,
    pub number: String,
    pub line: String,
}

#[derive(Debug, Clone, Default)]
pub struct Stores {
    pub entries: Vec<Entry>,
    /// By policy and version.
    pub rules: BTreeMap<(String, i32), Rule>,
    pub counters: Vec<Counter>,
    /// The ledger's keys in Redis that are no counters.
    pub others: Vec<String>,
}

type EntryRow = (
    Uuid,
    String,
    Option<String>,
    i64,
    Uuid,
    DateTime<Utc>,
    i64,
    i32,
    String,
    Option<String>,
    i16,
);

impl Stores {
    /// Reads a PostgreSQL ledger, and its counters in these Redis servers.
    pub async fn read(database_url: &str, redis_urls: &[String]) -> Result<Self, sqlx::Error> {
        let mut connection = PgConnection::connect(database_url).await?;
        let mut stores = Self::default();
        let (ledger,): (Uuid,) = sqlx::query_as("SELECT id FROM ledger")
            .fetch_one(&mut connection)
            .await?;
        let rules: Vec<(String, i32, String)> = sqlx::query_as(
            "SELECT p.name, v.version, v.rule FROM policy_versions v
             JOIN policies p ON p.id = v.policy",
        )
        .fetch_all(&mut connection)
        .await?;
        for (policy, version, rule) in rules {
            stores.rules.insert((policy, version), Rule::parse(&rule));
        }
        let entries: Vec<EntryRow> = sqlx::query_as(
            "SELECT e.account, p.name, a.subject, e.number, e.id, e.at, e.units,
                    e.policy_version, e.totals, e.metadata, e.flags
             FROM entries e JOIN policies p ON p.id = e.policy
             LEFT JOIN accounts a ON a.id = e.account
             ORDER BY e.account, e.number",
        )
        .fetch_all(&mut connection)
        .await?;
        stores.entries = entries.into_iter().map(Entry::of).collect();
        connection.close().await?;
        for url in redis_urls {
            stores.read_counters(url, ledger).expect("Redis answers");
        }
        Ok(stores)
    }

    fn read_counters(&mut self, url: &str, ledger: Uuid) -> redis::RedisResult<()> {
        let mut redis = redis::Client::open(url)?.get_connection()?;
        let pattern = format!("perdiem:{{{}*", ledger.simple());
        let options = redis::ScanOptions::default()
            .with_pattern(pattern)
            .with_count(1000);
        let names: Vec<String> = redis
            .scan_options(options)?
            .collect::<redis::RedisResult<_>>()?;
        for name in names {
            let account = name.rsplit(':').next().unwrap_or_default();
            let Ok(account) = Uuid::try_parse(account) else {
                self.others.push(name);
                continue;
            };
            let fields: redis::RedisResult<Vec<Option<String>>> =
                redis.hmget(&name, &["number", "line"]);
            let mut fields = fields
                .unwrap_or_default()
                .into_iter()
                .map(Option::unwrap_or_default);
            let counter = Counter {
                account,
                number: fields.next().unwrap_or_default(),
                line: fields.next().unwrap_or_default(),
            };
            // It may have expired between the two calls.
            if redis.exists(&name)? {
                self.counters.push(counter);
            }
        }
        Ok(())
    }

    /// The last entry of each account.
    pub fn last_entries(&self) -> BTreeMap<Uuid, &Entry> {
        let mut last: BTreeMap<Uuid, &Entry> = BTreeMap::new();
        for entry in &self.entries {
            let known = last.entry(entry.account).or_insert(entry);
            if known.number < entry.number {
                *known = entry;
            }
        }
        last
    }

    /// The counters that are not their account's last line.
    pub fn drifted(&self) -> Vec<&Counter> {
        let last = self.last_entries();
        let is_right = |counter: &&Counter| {
            last.get(&counter.account).is_some_and(|entry| {
                counter.number == entry.number.to_string() && counter.line == entry.line
            })
        };
        let counters = self.counters.iter();
        counters.filter(|counter| !is_right(counter)).collect()
    }
}

impl Entry {
    fn of(row: EntryRow) -> Self {
        let (account, policy, subject, number, id, at, units, policy_version, totals, ..) = row;
        let (.., metadata, flags) = row;
        // 1: Redis alone decided it; 2: it went over a limit.
        let provisional = match flags & 3 {
            0 => None,
            1 => Some(Provisional::Within),
            _ => Some(Provisional::Over),
        };
        let metadata: Option<Value> =
            metadata.map(|text| serde_json::from_str(&text).expect("metadata are JSON"));
        let wish = metadata.and_then(|metadata| metadata["wish"].as_u64());
        Self {
            account,
            policy,
            subject: subject.unwrap_or_default(),
            number,
            id,
            at,
            granted_at: match provisional {
                None => at,
                Some(_) => EntryId(id).at(),
            },
            provisional,
            units: units.cast_unsigned(),
            policy_version,
            wish: wish.map(|wish| wish as usize),
            // There are no holds.
            line: format!("{} {policy_version} - {totals}", at.timestamp_micros()),
            totals: Total::parse(&totals),
        }
    }
}

impl Total {
    pub fn parse(text: &str) -> Vec<Self> {
        let one = |text: &str| {
            let per = ["minute", "hour", "day", "week", "month", "year"];
            let letter = "ihdwmy".find(&text[..1]).expect("a letter");
            let (head, length) = text[1..].split_once('+').expect("a length");
            let parts: Vec<&str> = head.split(',').collect();
            let [max, used, start] = parts[..] else {
                panic!("{text} has max, used and start")
            };
            let number = |text: &str| text.parse::<i64>().expect("a number");
            Self {
                per: per[letter].to_owned(),
                max: number(max).cast_unsigned(),
                used: number(used).cast_unsigned(),
                start: number(start),
                end: number(start) + number(length),
            }
        };
        text.split(';').map(one).collect()
    }
}

impl Rule {
    fn parse(text: &str) -> Self {
        let rule: Value = serde_json::from_str(text).expect("a rule is JSON");
        let zone = rule["time_zone"].as_str().expect("a zone");
        let limits = rule["limits"].as_array().expect("limits");
        Self {
            offset: fixed_offset(zone),
            limits: limits
                .iter()
                .map(|limit| {
                    let per = limit["per"].as_str().expect("a window");
                    (per.to_owned(), limit["max"].as_u64().expect("a number"))
                })
                .collect(),
        }
    }
}

/// The seconds of a zone that is written as an offset, such as `+08:00`.
fn fixed_offset(zone: &str) -> Option<i64> {
    let (hours, minutes) = zone.split_once(':')?;
    let sign = if hours.starts_with('-') { -1 } else { 1 };
    let hours: i64 = hours.parse().ok()?;
    let minutes: i64 = minutes.parse().ok()?;
    Some(hours * 3600 + sign * minutes * 60)
}
