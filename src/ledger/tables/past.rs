//! What an account's last line does not have: sums over windows, and the entries after an instant.

use chrono::{DateTime, SecondsFormat, Utc};

use super::accounts::CUT_AT;
use crate::boxed;
use crate::encoding::decode_kind;
use crate::query::{Texts, query};
use crate::row::{StoredRow, only};
use crate::{ClaimTables, LedgerError};
use domain::claim::Units;
use domain::grant::Line;
use domain::identity::{AccountId, EntryId};
use domain::line_text::top_ups_of;
use domain::past::{LimitWindow, Movement, Past, WantedPast, WindowSum};
use domain::window::Window;

/// The running sum of what an account's entries add and give back. It never falls below zero on the
/// way.
///
/// A line with top-ups begins with a plus sign and the units of its entry that count in no window.
macro_rules! sum {
    ($aside:literal) => {
        concat!(
            "SELECT CAST(COALESCE(
                SUM(added) - CASE WHEN MIN(so_far) < 0 THEN MIN(so_far) ELSE 0 END, 0
            ) AS bigint) FROM (
                SELECT added, SUM(added) OVER (ORDER BY number) AS so_far FROM (
                    SELECT e.number, k.sign * (e.units - CASE
                        WHEN substr(e.totals, 1, 1) = '+' THEN CAST(",
            $aside,
            " AS bigint) ELSE 0 END) AS added
                    FROM entries AS e JOIN entry_kinds AS k ON k.kind = e.kind
                    LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
                    WHERE e.account = $1 AND e.number <= $2 AND COALESCE(d.of_grant, e.id) >= $3
                        AND COALESCE(d.of_grant, e.id) < $4
                ) AS steps
            ) AS sums"
        )
    };
}
const SUM: Texts = Texts {
    postgres: sum!("split_part(substr(e.totals, 2), ':', 1)"),
    sqlite: sum!("substr(e.totals, 2)"),
};

/// The last reset of the limit $5, up to the number $2, that counts in the window.
const RESET: &str = "SELECT id FROM entry_details
    WHERE account = $1 AND number <= $2 AND id >= $3 AND id < $4
        AND kind IN (SELECT kind FROM entry_kinds WHERE word = 'reset')
        AND (per IS NULL OR per = $5)
    ORDER BY number DESC LIMIT 1";

/// The entries that changed the usage of the account $1 after the instant $3, up to the number $2.
/// Instants never decrease as numbers increase.
const TAIL: &str =
    "SELECT e.number, e.id, e.kind, e.units, e.at, e.totals, d.of_grant, d.held_until, d.per
    FROM entries AS e
    LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
    WHERE e.account = $1 AND e.number <= $2 AND e.number > COALESCE((
        SELECT number FROM entries
        WHERE account = $1 AND number <= $2 AND at <= $3 ORDER BY number DESC LIMIT 1
    ), 0)
    ORDER BY e.number";

fn decode_movement(row: &StoredRow<'_>) -> Result<Movement, LedgerError> {
    let top_ups = top_ups_of(&row.get::<String>("totals")?)?;
    let aside = top_ups.map_or(0, |top_ups| top_ups.aside);
    let units: Units = row.get("units")?;
    Ok(Movement {
        number: row.get("number")?,
        id: row.get("id")?,
        kind: decode_kind(
            row.get("kind")?,
            row.get("of_grant")?,
            row.get("held_until")?,
            row.get("per")?,
        )?,
        units: units.get().saturating_sub(aside),
        at: row.get("at")?,
    })
}

impl ClaimTables {
    /// What a decision needs of an account's entries up to its line `last`.
    ///
    /// # Errors
    /// [`LedgerError::Archived`] if entries that may count were dropped.
    #[boxed]
    pub async fn past(
        &self,
        account: AccountId,
        last: Option<&Line>,
        wanted: &WantedPast,
    ) -> Result<Past, LedgerError> {
        let mut past = Past::default();
        for window in &wanted.windows {
            let sum = match last {
                Some(line) => self.sum(account, line.number, *window).await?,
                None => WindowSum::default(),
            };
            past.insert(*window, sum);
        }
        if let Some(since) = wanted.since {
            let movements = match last {
                Some(line) => self.tail(account, line.number, since).await?,
                None => Vec::new(),
            };
            past.insert_tail(since, movements);
        }
        Ok(past)
    }

    /// The units used inside a window: the sum over an account's entries up to a number, in the
    /// order of their numbers, never below zero on the way. It begins at the last reset.
    async fn sum(
        &self,
        account: AccountId,
        number: u64,
        window: LimitWindow,
    ) -> Result<WindowSum, LedgerError> {
        let LimitWindow { per, window } = window;
        let inside = |statement: Texts, start| {
            let statement = query(statement).bind(account).bind(number);
            let statement = statement.bind(EntryId::first_at(start));
            statement.bind(EntryId::first_at(window.end))
        };
        self.ledger
            .in_time(async |mut session| {
                let reset = inside(RESET.into(), window.start).bind(per.to_string());
                let reset: Option<EntryId> = session.first(reset, only).await?;
                let reset_at = reset.map(EntryId::at);
                let start = reset_at.unwrap_or(window.start);
                let used = session.one(inside(SUM, start)).await?;
                // After the sum: entries may be dropped between the two.
                let cut = session.first(query(CUT_AT).bind(account), only).await?;
                check_since(cut, start)?;
                Ok(WindowSum { used, reset_at })
            })
            .await
    }

    /// The entries that moved units after an instant, up to a number.
    async fn tail(
        &self,
        account: AccountId,
        number: u64,
        since: DateTime<Utc>,
    ) -> Result<Vec<Movement>, LedgerError> {
        let tail = query(TAIL).bind(account).bind(number).bind(since);
        self.ledger
            .in_time(async |mut session| {
                let tail = session.all(tail, decode_movement).await?;
                let cut = session.first(query(CUT_AT).bind(account), only).await?;
                check_since(cut, since)?;
                Ok(tail)
            })
            .await
    }
}

/// Checks that no entry that counts in a window was dropped.
///
/// # Errors
/// [`LedgerError::Archived`].
pub fn check_window(cut_at: Option<DateTime<Utc>>, window: Window) -> Result<(), LedgerError> {
    check_since(cut_at, window.start)
}

fn check_since(cut_at: Option<DateTime<Utc>>, since: DateTime<Utc>) -> Result<(), LedgerError> {
    match cut_at {
        Some(at) if since <= at => Err(LedgerError::Archived(format!(
            "entries of this account that count from {} on were archived and dropped: look for \
             them in the archive",
            since.to_rfc3339_opts(SecondsFormat::AutoSi, true)
        ))),
        Some(_) | None => Ok(()),
    }
}
