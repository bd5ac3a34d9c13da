//! Reads a ledger and its Redis, with the judge's own queries.

use std::collections::{BTreeMap, HashSet};

use chrono::{DateTime, Utc};
use perdiem::domain::identity::EntryId;
use redis::Commands;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row as _, SqliteConnection};
use uuid::Uuid;

use super::totals::{RuleLimit, SharedRule, ToldTopUps, Total};
use super::windows::{Calendar, Own, Zone};

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub account: Uuid,
    pub policy: String,
    pub subject: String,
    pub number: i64,
    pub id: Uuid,
    pub at: DateTime<Utc>,
    /// The instant in whose windows the units count.
    pub counted_at: DateTime<Utc>,
    pub kind: Kind,
    /// The grant that the entry confirms, reverses or lapses.
    pub of: Option<Uuid>,
    pub held_until: Option<DateTime<Utc>>,
    pub provisional: Option<Provisional>,
    /// Whether an observing policy marked the grant as one that it would have denied.
    pub would_deny: bool,
    /// The levels of use that the entry is marked with, in percent.
    pub crossed: Vec<u64>,
    pub units: u64,
    pub policy_version: i32,
    /// The number of the wish, from the metadata.
    pub wish: Option<usize>,
    /// No hold of the account lapses before this.
    pub lapses_at: Option<DateTime<Utc>>,
    pub totals: Vec<Total>,
    pub own: Own,
    pub top_ups: ToldTopUps,
    /// The limit that a reset names. `None` for all limits, and for other kinds.
    pub per: Option<String>,
    /// Why an admin entered it.
    pub reason: Option<String>,
    /// The line in the form of a counter, without its number.
    pub line: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Grant,
    Confirmation,
    Reversal,
    PartialReversal,
    Lapse,
    AdjustmentUp,
    AdjustmentDown,
    Reset,
    Calendar,
    TopUp,
    TopUpReversal,
}

/// The mark of a grant that Redis alone decided, set when it was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provisional {
    Within,
    Over,
}

/// The `per` and `max` of each limit that an override names.
pub type Limits = Vec<(String, u64)>;

/// A version of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub effective_at: DateTime<Utc>,
    pub calendar: Calendar,
    /// Whose calendar divides time: `policy`, `subject` or `first_grant`.
    pub owner: String,
    pub limits: Vec<RuleLimit>,
    pub observes: bool,
    /// The levels of use whose crossing is marked, in percent.
    pub warn_at: Vec<u64>,
    /// The name of each tier, and its maxima.
    pub tiers: Vec<(String, Limits)>,
    /// What all subjects share.
    pub total: Vec<SharedRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    pub account: Uuid,
    pub number: String,
    pub line: String,
}

#[derive(Debug, Clone, Default)]
pub struct Stores {
    /// Sorted by account and number.
    pub entries: Vec<Entry>,
    /// Keyed by policy and version.
    pub rules: BTreeMap<(String, i32), Rule>,
    /// Each account's overrides, in order.
    pub overrides: Vec<(Uuid, Limits)>,
    /// The names of the tiers that each account was put into.
    pub tiers: Vec<(Uuid, String)>,
    /// The usage of limits that all subjects share: by policy, first version, `per` and start.
    pub shared: BTreeMap<(String, i32, String, DateTime<Utc>), i64>,
    pub counters: Vec<Counter>,
    /// The ledger's keys in Redis that are no counters.
    pub others: Vec<String>,
}

impl Stores {
    /// Whether a hold is neither confirmed nor closed.
    pub fn has_open_holds(&self) -> bool {
        let ended: HashSet<Uuid> = self.entries.iter().filter_map(|entry| entry.of).collect();
        let holds = self
            .entries
            .iter()
            .filter(|entry| entry.held_until.is_some());
        holds.map(|hold| hold.id).any(|id| !ended.contains(&id))
    }

    /// Reads a ledger, and its counters in these Redis servers.
    ///
    /// # Errors Returns the error of a store.
    pub async fn read(database_url: &str, redis_urls: &[String]) -> anyhow::Result<Self> {
        let sql = Sql::of(database_url);
        let id = |column| sql.id(column);
        let at = |column| sql.at(column);
        let entries = format!(
            "SELECT {}, p.name, a.subject, CAST(e.number AS text), {}, {}, CAST(e.kind AS text),
                 {}, {}, CAST(e.flags AS text), CAST(e.units AS text),
                 CAST(e.policy_version AS text), e.metadata, {}, e.totals, d.per, d.reason
             FROM entries e LEFT JOIN policies p ON p.id = e.policy
             LEFT JOIN accounts a ON a.id = e.account
             LEFT JOIN entry_details d ON d.account = e.account AND d.number = e.number
             ORDER BY e.account, e.number",
            id("e.account"),
            id("e.id"),
            at("e.at"),
            id("d.of_grant"),
            at("d.held_until"),
            at("e.lapses_at"),
        );
        let entries = sql.rows(&entries).await?;
        // The rules are read after the entries, so that every entry's version is found.
        let rules = format!(
            "SELECT p.name, CAST(v.version AS text), {}, v.rule FROM policy_versions v
             JOIN policies p ON p.id = v.policy",
            at("v.effective_at")
        );
        let rules = sql.rows(&rules).await?;
        let overrides = format!(
            "SELECT {}, limits FROM override_versions WHERE limits IS NOT NULL",
            id("account")
        );
        let overrides = sql.rows(&overrides).await?;
        let shared = format!(
            "SELECT p.name, CAST(s.since AS text), s.per, {}, CAST(s.used AS text) FROM shared_use s
             JOIN policies p ON p.id = s.policy",
            at("s.starts_at")
        );
        let shared = sql.rows(&shared).await?.into_iter().map(|mut row| {
            let policy = row.text().expect("a name");
            let since = i32::try_from(row.number()).expect("a version");
            let per = row.text().expect("a window");
            let start = row.at().expect("an instant");
            ((policy, since, per, start), row.number())
        });
        let ledger = format!("SELECT {} FROM ledger", id("id"));
        let ledger = sql.rows(&ledger).await?.remove(0).id().expect("an id");
        let mut stores = Self {
            entries: entries.into_iter().map(Entry::of).collect(),
            rules: rules.into_iter().map(Rule::of).collect(),
            shared: shared.collect(),
            ..Self::default()
        };
        for mut row in overrides {
            let account = row.id().expect("an account");
            let version = row.json();
            match version.get("tier") {
                None => stores.overrides.push((account, limits(&version))),
                Some(tier) => {
                    let tier = tier.as_str().map(|tier| (account, tier.to_owned()));
                    stores.tiers.extend(tier);
                }
            }
        }
        for url in redis_urls {
            stores.read_counters(url, ledger)?;
        }
        Ok(stores)
    }

    fn read_counters(&mut self, url: &str, ledger: Uuid) -> redis::RedisResult<()> {
        let mut redis = redis::Client::open(url)?.get_connection()?;
        let pattern = format!("perdiem:{{{}*", ledger.simple());
        let options = redis::ScanOptions::default()
            .with_pattern(pattern)
            .with_count(1000);
        let mut names: Vec<String> = redis
            .scan_options(options)?
            .collect::<redis::RedisResult<_>>()?;
        // A scan can return a name twice.
        names.sort_unstable();
        names.dedup();
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
            // The key can expire between the two calls.
            if redis.exists(&name)? {
                self.counters.push(counter);
            }
        }
        Ok(())
    }

    /// The entries of each account, by number.
    pub fn accounts(&self) -> BTreeMap<Uuid, Vec<&Entry>> {
        let mut accounts: BTreeMap<Uuid, Vec<&Entry>> = BTreeMap::new();
        for entry in &self.entries {
            accounts.entry(entry.account).or_default().push(entry);
        }
        for entries in accounts.values_mut() {
            entries.sort_by_key(|entry| entry.number);
        }
        accounts
    }

    /// The last entry of each account.
    pub fn last_entries(&self) -> BTreeMap<Uuid, &Entry> {
        let accounts = self.accounts().into_iter();
        let last = accounts.filter_map(|(account, mut entries)| Some((account, entries.pop()?)));
        last.collect()
    }

    /// The counters that differ from their account's last line.
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

    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.kind == kind)
    }
}

/// A ledger's database, and its dialect of SQL.
pub struct Sql<'a> {
    url: &'a str,
    is_sqlite: bool,
}

impl<'a> Sql<'a> {
    pub fn of(url: &'a str) -> Self {
        Self {
            url,
            is_sqlite: url.starts_with("sqlite:"),
        }
    }

    /// The expression for an id as a text.
    fn id(&self, column: &str) -> String {
        if self.is_sqlite {
            format!("lower(hex({column}))")
        } else {
            format!("CAST({column} AS text)")
        }
    }

    /// The expression for an instant: microseconds since 1970.
    pub fn micros(&self, column: &str) -> String {
        if self.is_sqlite {
            column.to_owned()
        } else {
            format!("CAST(EXTRACT(epoch FROM {column}) * 1000000 AS bigint)")
        }
    }

    /// As [`Sql::micros`], as a text.
    fn at(&self, column: &str) -> String {
        format!("CAST({} AS text)", self.micros(column))
    }

    /// The rows of a query whose columns are texts.
    pub async fn rows(&self, query: &str) -> Result<Vec<Row>, sqlx::Error> {
        macro_rules! read {
            ($connection:ty) => {{
                let mut connection = <$connection>::connect(self.url).await?;
                let query = sqlx::query(AssertSqlSafe(query));
                let rows = query.fetch_all(&mut connection).await?;
                connection.close().await?;
                let columns = rows.iter().map(|row| {
                    let columns = (0..row.len()).map(|column| row.get(column));
                    Row(columns.collect::<Vec<Option<String>>>().into_iter())
                });
                Ok(columns.collect())
            }};
        }
        if self.is_sqlite {
            read!(SqliteConnection)
        } else {
            read!(PgConnection)
        }
    }
}

/// The columns of a row that were not read yet.
pub struct Row(std::vec::IntoIter<Option<String>>);

impl Row {
    pub fn text(&mut self) -> Option<String> {
        self.0.next().expect("a column")
    }

    pub fn number(&mut self) -> i64 {
        self.text().expect("a number").parse().expect("a number")
    }

    /// SQLite shows NULL as an empty text here.
    fn id(&mut self) -> Option<Uuid> {
        let text = self.text().filter(|text| !text.is_empty())?;
        Some(text.parse().expect("an id"))
    }

    fn at(&mut self) -> Option<DateTime<Utc>> {
        let micros = self.text()?.parse().expect("an instant");
        DateTime::from_timestamp_micros(micros)
    }

    fn json(&mut self) -> Value {
        let text = self.text();
        text.map_or(Value::Null, |text| {
            serde_json::from_str(&text).expect("JSON")
        })
    }
}

impl Entry {
    /// From a row with the columns that [`Stores::read`] selects.
    fn of(mut row: Row) -> Self {
        let account = row.id().expect("an account");
        let policy = row.text();
        let subject = row.text();
        let number = row.number();
        let id = row.id().expect("an id");
        let at = row.at().expect("an instant");
        let kind = Kind::of(row.number());
        let of = row.id();
        let held_until = row.at();
        // 1: Redis alone decided the grant. 2: the grant is over a limit. 4: it would have been
        // denied.
        let flags = row.number();
        let provisional = match flags & 3 {
            0 => None,
            1 => Some(Provisional::Within),
            _ => Some(Provisional::Over),
        };
        let counted_at = match kind {
            Kind::Grant if provisional.is_none() => at,
            _ => EntryId(of.unwrap_or(id)).at(),
        };
        let units = row.number();
        let version = row.number();
        let wish = row.json()["wish"].as_u64().map(|wish| wish as usize);
        let lapses_at = row.at();
        let totals = row.text().expect("totals");
        let (top_ups, rest) = ToldTopUps::parse(&totals);
        let (own, told) = Own::parse(rest);
        let lapse = lapses_at.map_or("-".to_owned(), |at| at.timestamp_micros().to_string());
        Self {
            account,
            policy: policy.unwrap_or_default(),
            subject: subject.unwrap_or_default(),
            number,
            id,
            at,
            counted_at,
            kind,
            of,
            held_until,
            provisional,
            would_deny: flags & 4 != 0,
            crossed: crossed(flags),
            units: units.cast_unsigned(),
            policy_version: i32::try_from(version).expect("a version"),
            wish,
            lapses_at,
            line: format!("{} {version} {lapse} {totals}", at.timestamp_micros()),
            totals: Total::parse(told),
            own,
            top_ups,
            per: row.text(),
            reason: row.text(),
        }
    }

    /// The units that the entry adds to what was handed out.
    pub fn added(&self) -> i128 {
        self.signed(self.units)
    }

    /// The units that count in windows: the others came from top-ups, or returned to them.
    pub fn own_units(&self) -> u64 {
        self.units.saturating_sub(self.top_ups.aside)
    }

    /// The units that the entry adds to the usage of windows.
    pub fn own_added(&self) -> i128 {
        self.signed(self.own_units())
    }

    fn signed(&self, units: u64) -> i128 {
        let units = i128::from(units);
        match self.kind {
            Kind::Grant | Kind::AdjustmentUp => units,
            Kind::Confirmation
            | Kind::Reset
            | Kind::Calendar
            | Kind::TopUp
            | Kind::TopUpReversal => 0,
            Kind::Reversal | Kind::PartialReversal | Kind::Lapse | Kind::AdjustmentDown => -units,
        }
    }
}

impl Kind {
    fn of(number: i64) -> Self {
        match number {
            1 => Self::Grant,
            2 => Self::Confirmation,
            3 => Self::Reversal,
            4 => Self::Lapse,
            5 => Self::AdjustmentUp,
            6 => Self::AdjustmentDown,
            7 => Self::PartialReversal,
            8 => Self::Reset,
            9 => Self::Calendar,
            10 => Self::TopUp,
            11 => Self::TopUpReversal,
            other => panic!("no kind has the number {other}"),
        }
    }
}

impl Rule {
    /// The calendar of an account with this of its own.
    pub fn calendar_of(&self, own: &Own) -> Calendar {
        match &*self.owner {
            "policy" => self.calendar.clone(),
            _ => self.calendar.of(own),
        }
    }

    /// Returns a policy's name, a version, and its rule.
    fn of(mut row: Row) -> ((String, i32), Self) {
        let policy = row.text().expect("a name");
        let version = i32::try_from(row.number()).expect("a version");
        let effective_at = row.at().expect("an instant");
        let rule = row.json();
        let text = |name: &str| {
            rule[name]
                .as_str()
                .unwrap_or_else(|| panic!("{name}: {rule}"))
        };
        let start = format!("{}:00", text("day_starts_at"));
        let rule = Self {
            effective_at,
            calendar: Calendar {
                zone: Zone::parse(text("time_zone")),
                day_starts_at: start.parse().expect("a time"),
                week_starts_on: text("week_starts_on").parse().expect("a weekday"),
                anchor: None,
            },
            owner: rule["calendar"].as_str().unwrap_or("policy").to_owned(),
            limits: items(&rule["limits"]).map(RuleLimit::read).collect(),
            observes: rule["mode"] == "observe",
            warn_at: levels(&rule["warn_at"]),
            tiers: tiers(&rule["tiers"]),
            total: shared_rules(&rule["total"]),
        };
        ((policy, version), rule)
    }
}

/// The limits of a version of an override, which may be beside a block. A block has none.
fn limits(version: &Value) -> Limits {
    let no_limits = Value::Array(Vec::new());
    let limits = match version {
        Value::Object(members) => members.get("limits").filter(|limits| !limits.is_null()),
        list => Some(list),
    };
    let limits = limits.unwrap_or(&no_limits);
    let limit = |limit: &Value| {
        let per = limit["per"].as_str().expect("a window").to_owned();
        (per, limit["max"].as_u64().expect("a number"))
    };
    items(limits).map(limit).collect()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().expect("a list").iter()
}

/// The tiers of a rule; a rule without any leaves them out.
fn tiers(list: &Value) -> Vec<(String, Limits)> {
    let tiers = list.as_array().into_iter().flatten();
    let tier = |tier: &Value| {
        let name = tier["name"].as_str().expect("a name").to_owned();
        (name, limits(&tier["limits"]))
    };
    tiers.map(tier).collect()
}

/// What all subjects share; a rule without any leaves it out.
fn shared_rules(list: &Value) -> Vec<SharedRule> {
    let total = list.as_array().into_iter().flatten();
    let shared = |limit: &Value| {
        let RuleLimit { per, max, .. } = RuleLimit::read(limit);
        let since = limit["since"].as_i64().expect("a version");
        SharedRule {
            per,
            max,
            since: since.try_into().expect("a version"),
        }
    };
    total.map(shared).collect()
}

/// The levels of use of a rule; a rule without any leaves them out.
fn levels(list: &Value) -> Vec<u64> {
    let levels = list.as_array().into_iter().flatten();
    levels
        .map(|level| level.as_u64().expect("a percent"))
        .collect()
}

/// The levels of use in the flags of an entry.
fn crossed(flags: i64) -> Vec<u64> {
    let levels = [50, 60, 70, 75, 80, 90, 95, 100].into_iter().enumerate();
    let marked = levels.filter(|(place, _)| flags >> (4 + place) & 1 == 1);
    marked.map(|(_, percent)| percent).collect()
}
