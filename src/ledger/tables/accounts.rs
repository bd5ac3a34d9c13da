//! One account's entries: their sums, their holds, their keys, and the entries themselves.

use chrono::{DateTime, SecondsFormat, Utc};

use crate::domain::account::Sums;
use crate::domain::correction::{Hold, Holds};
use crate::domain::grant::{Entry, Line};
use crate::domain::identity::{AccountId, EntryId, KeyId};
use crate::domain::window::Window;
use crate::ledger::encoding::kind;
use crate::ledger::entry_rows::{decode_entry, entry_columns, with_details};
use crate::ledger::query::query;
use crate::ledger::row::{StoredRow, only};
use crate::ledger::{Ledger, LedgerError};

/// How many open holds are read beyond those that have lapsed.
const HOLDS_AHEAD: u32 = 64;

fn decode_hold(row: &StoredRow<'_>) -> Result<Hold, LedgerError> {
    Ok(Hold {
        grant: row.get("id")?,
        units: row.get("units")?,
        until: row.get("held_until")?,
    })
}

/// A query for the holds of an account, from an instant on, that nothing up to a line has ended,
/// in the order of their ends.
macro_rules! open_holds {
    ($condition:literal) => {
        concat!(
            "SELECT hold.id, e.units, hold.held_until FROM entry_details AS hold
             JOIN entries AS e ON e.account = hold.account AND e.number = hold.number
             WHERE hold.account = $1 AND hold.number <= $2 AND hold.held_until >= $3 AND ",
            $condition,
            " AND NOT EXISTS (
                 SELECT 1 FROM entry_details WHERE of_grant = hold.id AND number <= $2
             )
             ORDER BY hold.held_until, hold.id LIMIT $5"
        )
    };
}

const LAPSED_HOLDS: &str = open_holds!("hold.held_until <= $4");
const NEXT_HOLDS: &str = open_holds!("hold.held_until > $4");

/// The running sum of what an account's entries add and give back, raised by what it would have
/// fallen below zero.
const SUM: &str = concat!(
    "SELECT CAST(COALESCE(
         SUM(added) - CASE WHEN MIN(so_far) < 0 THEN MIN(so_far) ELSE 0 END, 0
     ) AS bigint) FROM (
         SELECT added, SUM(added) OVER (ORDER BY number) AS so_far FROM (
             SELECT e.number, CASE WHEN e.kind IN (",
    kind!(GRANT),
    ", ",
    kind!(ADJUSTMENT_UP),
    ") THEN e.units ELSE -e.units END AS added
             FROM entries AS e",
    with_details!(),
    "WHERE e.account = $1 AND e.number <= $2 AND e.kind <> ",
    kind!(CONFIRMATION),
    " AND COALESCE(d.of_grant, e.id) >= $3 AND COALESCE(d.of_grant, e.id) < $4
         ) AS steps
     ) AS sums"
);

/// The instant of the last line that the account $1 has lost to a cut.
const CUT_AT: &str = "SELECT at FROM cuts WHERE entry = (
        SELECT id FROM entries WHERE account = $1 ORDER BY number LIMIT 1
    )";

const KEYS: &str = "
    SELECT key FROM entries WHERE account = $1 AND at >= $2 AND key IS NOT NULL
    ORDER BY number DESC LIMIT $3";

const ENTRIES: &str = concat!(
    "SELECT ",
    entry_columns!(),
    " FROM entries AS e",
    with_details!(),
    "WHERE e.account = $1 AND e.number < $2 ORDER BY e.number DESC LIMIT $3"
);

impl Ledger {
    /// The units used inside each window, as the sum of an account's entries up to its line
    /// `last`: in the order of their numbers, and never below zero on the way.
    ///
    /// # Errors
    /// [`LedgerError::Archived`] where entries were dropped that may count in one of them.
    pub async fn sums(
        &self,
        account: AccountId,
        last: Option<&Line>,
        windows: &[Window],
    ) -> Result<Sums, LedgerError> {
        let mut sums = Sums::default();
        for window in windows {
            let units = match last {
                Some(line) => self.sum(account, line.number, *window).await?,
                None => 0,
            };
            sums.insert(*window, units);
        }
        Ok(sums)
    }

    async fn sum(
        &self,
        account: AccountId,
        number: u64,
        window: Window,
    ) -> Result<u64, LedgerError> {
        let sum = query(SUM)
            .bind(account)
            .bind(number)
            .bind(EntryId::first_at(window.start))
            .bind(EntryId::first_at(window.end));
        self.in_time(async |mut session| {
            let cut = session.first(query(CUT_AT).bind(account), only).await?;
            check_window(cut, window)?;
            session.one(sum).await
        })
        .await
    }

    /// The instant of the last line that an account has lost to a cut.
    pub async fn cut_at(&self, account: AccountId) -> Result<Option<DateTime<Utc>>, LedgerError> {
        let cut = query(CUT_AT).bind(account);
        self.reads().await?.lend().first(cut, only).await
    }

    /// The holds that an account's entries up to its line `last` leave open, as they are at an
    /// instant; of those that have lapsed at most `lapsed_most`.
    pub async fn holds(
        &self,
        account: AccountId,
        last: &Line,
        at: DateTime<Utc>,
        lapsed_most: u32,
    ) -> Result<Holds, LedgerError> {
        let Some(from) = last.lapses_at else {
            return Ok(Holds::default());
        };
        let holds = |text: &'static str, most: u32| {
            query(text)
                .bind(account)
                .bind(last.number)
                .bind(from)
                .bind(at)
                .bind(most)
        };
        let lapsed = holds(LAPSED_HOLDS, lapsed_most);
        let next = holds(NEXT_HOLDS, HOLDS_AHEAD);
        let found = self
            .in_time(async |mut session| {
                let mut found = session.all(lapsed, decode_hold).await?;
                found.append(&mut session.all(next, decode_hold).await?);
                Ok(found)
            })
            .await?;
        let [lapsed_most, ahead_most] = [lapsed_most, HOLDS_AHEAD].map(|most| most as usize);
        Ok(Holds::at(at, found, lapsed_most, ahead_most))
    }

    /// The keys of an account's entries since an instant, newest first, at most `limit`.
    pub async fn keys_of(
        &self,
        account: AccountId,
        since: DateTime<Utc>,
        limit: u32,
    ) -> Result<Vec<KeyId>, LedgerError> {
        let keys = query(KEYS).bind(account).bind(since).bind(limit);
        self.in_time(async |mut session| session.all(keys, only).await)
            .await
    }

    /// An account's entries with numbers below `before`, newest first, at most `limit`.
    pub async fn entries(
        &self,
        account: AccountId,
        before: u64,
        limit: u32,
    ) -> Result<Vec<Entry>, LedgerError> {
        let entries = query(ENTRIES).bind(account).bind(before).bind(limit);
        self.reads().await?.lend().all(entries, decode_entry).await
    }
}

/// Whether all entries are there that count in a window.
///
/// # Errors
/// [`LedgerError::Archived`].
pub fn check_window(cut_at: Option<DateTime<Utc>>, window: Window) -> Result<(), LedgerError> {
    match cut_at {
        Some(at) if window.start <= at => Err(LedgerError::Archived(format!(
            "entries of this account that count in the window from {} on were archived and dropped: \
             look into the archive",
            window.start.to_rfc3339_opts(SecondsFormat::AutoSi, true)
        ))),
        Some(_) | None => Ok(()),
    }
}
