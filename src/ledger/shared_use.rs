//! The usage of the limits that all subjects of a policy share. It changes in the transaction that appends
//! entries, under a lock, so it is always the sum of the entries that count.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde_json::json;

use super::components::components;
use super::query::{Session, Statement, Texts, query};
use super::row::StoredRow;
use super::{Draft, LedgerError, Look};
use domain::limit::per::{Per, UnknownPer};
use domain::shared::{SharedKey, SharedUse, after};

/// The windows $1, as JSON: arrays of policy, version, `per`, and microseconds since the epoch.
macro_rules! wanted {
    (postgres) => {
        "SELECT (key->>0)::integer AS policy, (key->>1)::integer AS since, key->>2 AS per,
             timestamptz 'epoch' + (key->>3)::bigint * interval '1 microsecond' AS starts_at,
             (key->>4)::bigint AS used
         FROM json_array_elements($1::json) AS keys (key)"
    };
    (sqlite) => {
        "SELECT json_extract(value, '$[0]') AS policy, json_extract(value, '$[1]') AS since,
             json_extract(value, '$[2]') AS per, json_extract(value, '$[3]') AS starts_at,
             json_extract(value, '$[4]') AS used
         FROM json_each($1)"
    };
}

macro_rules! with_wanted {
    ($store:ident, $text:literal) => {
        concat!("WITH wanted AS (", wanted!($store), ") ", $text)
    };
    ($text:literal) => {
        Texts {
            postgres: with_wanted!(postgres, $text),
            sqlite: with_wanted!(sqlite, $text),
        }
    };
}

/// The wanted windows, and all later ones of the same limits: a line can be in the future.
const READ: Texts = with_wanted!(
    "SELECT it.policy, it.since, it.per, it.starts_at, it.used
     FROM wanted JOIN shared_use AS it ON it.policy = wanted.policy AND it.since = wanted.since
         AND it.per = wanted.per AND it.starts_at >= wanted.starts_at"
);
/// In one order, so that two transactions cannot wait for each other. SQLite has one writer.
const LOCK: Texts = Texts {
    postgres: with_wanted!(
        postgres,
        "SELECT it.policy, it.since, it.per, it.starts_at, it.used
         FROM wanted JOIN shared_use AS it USING (policy, since, per, starts_at)
         ORDER BY it.policy, it.since, it.per, it.starts_at FOR UPDATE OF it"
    ),
    sqlite: with_wanted!(
        sqlite,
        "SELECT it.policy, it.since, it.per, it.starts_at, it.used
         FROM wanted JOIN shared_use AS it USING (policy, since, per, starts_at)"
    ),
};
const OPEN: Texts = with_wanted!(
    "INSERT INTO shared_use (policy, since, per, starts_at, used)
     SELECT policy, since, per, starts_at, 0 FROM wanted WHERE true
     ORDER BY policy, since, per, starts_at ON CONFLICT DO NOTHING"
);
const CHANGE: Texts = with_wanted!(
    "UPDATE shared_use SET used = wanted.used FROM wanted
     WHERE shared_use.policy = wanted.policy AND shared_use.since = wanted.since
         AND shared_use.per = wanted.per AND shared_use.starts_at = wanted.starts_at"
);

fn with_keys<'k>(texts: Texts, keys: impl Iterator<Item = (&'k SharedKey, i64)>) -> Statement {
    let key = |(key, used): (&SharedKey, i64)| {
        let start = key.start.timestamp_micros();
        json!([key.policy.0, key.since, key.per, start, used])
    };
    let keys: Vec<_> = keys.map(key).collect();
    query(texts).bind(json!(keys).to_string())
}

pub fn decode(row: &StoredRow<'_>) -> Result<(SharedKey, i64), LedgerError> {
    let per: String = row.get("per")?;
    let per: Per = per
        .parse()
        .map_err(|error: UnknownPer| LedgerError::Corrupt(error.to_string()))?;
    let start: DateTime<Utc> = row.get("starts_at")?;
    let key = SharedKey {
        policy: row.get("policy")?,
        since: row.get("since")?,
        per,
        start,
    };
    Ok((key, row.get("used")?))
}

/// Whether drafts change the usage of shared limits.
pub fn shares(drafts: &[&Draft]) -> bool {
    drafts.iter().any(|draft| !draft.shared.is_empty())
}

/// The usage that a look asks for.
pub async fn of_look(session: &mut Session<'_>, look: &Look) -> Result<SharedUse, LedgerError> {
    if look.shared.is_empty() {
        return Ok(SharedUse::new());
    }
    read(session, &look.shared).await
}

/// The usage of some windows, and of later ones of the same limits.
pub async fn read(
    session: &mut Session<'_>,
    keys: &BTreeSet<SharedKey>,
) -> Result<SharedUse, LedgerError> {
    let read = with_keys(READ, keys.iter().map(|key| (key, 0)));
    Ok(session.all(read, decode).await?.into_iter().collect())
}

/// Locks the windows of drafts until the end of the transaction, and returns their usage.
pub async fn lock(session: &mut Session<'_>, drafts: &[&Draft]) -> Result<SharedUse, LedgerError> {
    let changes = drafts.iter().flat_map(|draft| &draft.shared);
    let keys: BTreeSet<SharedKey> = changes.map(|change| change.key).collect();
    if keys.is_empty() {
        return Ok(SharedUse::new());
    }
    loop {
        let lock = with_keys(LOCK, keys.iter().map(|key| (key, 0)));
        let found: SharedUse = session.all(lock, decode).await?.into_iter().collect();
        let missing = keys.iter().filter(|key| !found.contains_key(key));
        let missing: Vec<_> = missing.map(|key| (key, 0)).collect();
        if missing.is_empty() {
            return Ok(found);
        }
        let open = with_keys(OPEN, missing.into_iter());
        session.execute(open).await?;
    }
}

/// The drafts for which there is the room that they need, one component after the other; and the usage that they
/// leave.
pub fn fitting<'d>(drafts: &[&'d Draft], used: SharedUse) -> (Vec<&'d Draft>, SharedUse) {
    let mut used = used;
    let fits = |component: &&[&Draft]| {
        let changes = component.iter().flat_map(|draft| &draft.shared);
        match after(&used, changes) {
            Some(after) => {
                used = after;
                true
            }
            None => false,
        }
    };
    let fitting = components(drafts).filter(fits);
    (fitting.flatten().copied().collect(), used)
}

/// Sets the usage of locked windows.
pub async fn change(session: &mut Session<'_>, used: &SharedUse) -> Result<(), LedgerError> {
    if used.is_empty() {
        return Ok(());
    }
    let change = with_keys(CHANGE, used.iter().map(|(key, used)| (key, *used)));
    session.execute(change).await
}
