//! The entries of one account: its holds, its keys, and the entries themselves.

use chrono::{DateTime, Utc};

use crate::boxed;
use crate::entry_rows::decode_entry;
use crate::query::query;
use crate::row::{StoredRow, only};
use crate::{ClaimTables, LedgerError, RecordTables};
use domain::correction::{Hold, Holds};
use domain::forecast::{HOLDS_MOST, HoldsAhead};
use domain::grant::{Entry, Line};
use domain::identity::{AccountId, KeyId};
use domain::line_text::top_ups_of;

/// How many open holds are read in addition to those that have lapsed.
const HOLDS_AHEAD: u32 = 64;

fn decode_hold(row: &StoredRow<'_>) -> Result<Hold, LedgerError> {
    Ok(Hold {
        grant: row.get("id")?,
        units: row.get("units")?,
        granted: row.get("granted")?,
        top_ups: top_ups_of(&row.get::<String>("totals")?)?,
        until: row.get("held_until")?,
        version: row.get("version")?,
    })
}

// The holds of the account $1 from the instant $3 on that no entry up to the line $2 has ended, with the units
// that none of these entries gave back.
const LAPSED_HOLDS: &str = "SELECT hold.id, hold.held_until, e.units - (
        SELECT CAST(COALESCE(SUM(part.units), 0) AS bigint) FROM partial_reversals AS part
        WHERE part.of_grant = hold.id AND part.number <= $2
    ) AS units, e.units AS granted, e.totals, e.policy_version AS version
    FROM entry_details AS hold
    JOIN entries AS e ON e.account = hold.account AND e.number = hold.number
    WHERE hold.account = $1 AND hold.number <= $2 AND hold.held_until >= $3 AND hold.held_until <= $4
        AND NOT EXISTS (
            SELECT 1 FROM entry_details WHERE of_grant = hold.id AND number <= $2
                AND kind IN (SELECT kind FROM entry_kinds WHERE ends_hold)
        )
    ORDER BY hold.held_until, hold.id LIMIT $5";
const NEXT_HOLDS: &str = "SELECT hold.id, hold.held_until, e.units - (
        SELECT CAST(COALESCE(SUM(part.units), 0) AS bigint) FROM partial_reversals AS part
        WHERE part.of_grant = hold.id AND part.number <= $2
    ) AS units, e.units AS granted, e.totals, e.policy_version AS version
    FROM entry_details AS hold
    JOIN entries AS e ON e.account = hold.account AND e.number = hold.number
    WHERE hold.account = $1 AND hold.number <= $2 AND hold.held_until >= $3 AND hold.held_until > $4
        AND NOT EXISTS (
            SELECT 1 FROM entry_details WHERE of_grant = hold.id AND number <= $2
                AND kind IN (SELECT kind FROM entry_kinds WHERE ends_hold)
        )
    ORDER BY hold.held_until, hold.id LIMIT $5";
const HOLDS_TO_COME: &str = "SELECT hold.id, hold.held_until, e.units - (
        SELECT CAST(COALESCE(SUM(part.units), 0) AS bigint) FROM partial_reversals AS part
        WHERE part.of_grant = hold.id AND part.number <= $2
    ) AS units, e.units AS granted, e.totals, e.policy_version AS version
    FROM entry_details AS hold
    JOIN entries AS e ON e.account = hold.account AND e.number = hold.number
    WHERE hold.account = $1 AND hold.number <= $2 AND hold.held_until >= $3
        AND NOT EXISTS (
            SELECT 1 FROM entry_details WHERE of_grant = hold.id AND number <= $2
                AND kind IN (SELECT kind FROM entry_kinds WHERE ends_hold)
        )
    ORDER BY hold.held_until, hold.id LIMIT $4";
const LAST_END: &str = "SELECT hold.held_until
    FROM entry_details AS hold
    JOIN entries AS e ON e.account = hold.account AND e.number = hold.number
    WHERE hold.account = $1 AND hold.number <= $2 AND hold.held_until >= $3
        AND NOT EXISTS (
            SELECT 1 FROM entry_details WHERE of_grant = hold.id AND number <= $2
                AND kind IN (SELECT kind FROM entry_kinds WHERE ends_hold)
        )
    ORDER BY hold.held_until DESC LIMIT 1";

/// The instant of the last entry that the account $1 has lost to a cut.
pub(super) const CUT_AT: &str = "SELECT at FROM cuts WHERE entry = (
        SELECT id FROM entries WHERE account = $1 ORDER BY number LIMIT 1
    )";

/// The keys of an account, and those of accounts that got its entries by an erasure.
const KEYS: &str = "SELECT key FROM (
        SELECT * FROM (
            SELECT 1 AS place, number, key FROM entries
            WHERE account = $1 AND at >= $2 AND key IS NOT NULL ORDER BY number DESC LIMIT $3
        ) AS own
        UNION ALL SELECT * FROM (
            SELECT 2, e.number, e.key
            FROM erasing_accounts AS erasing JOIN entries AS e ON e.account = erasing.replacement
            WHERE erasing.account = $1 AND e.at >= $2 AND e.key IS NOT NULL LIMIT $3
        ) AS erased
    ) AS found ORDER BY place, number DESC LIMIT $3";

const ENTRIES: &str =
    "SELECT * FROM entry_rows WHERE account = $1 AND number < $2 ORDER BY number DESC LIMIT $3";

impl ClaimTables {
    /// The holds that are open at an instant, after the account's entries up to its line `last`. Of
    /// those that have lapsed, at most `lapsed_most`.
    #[boxed]
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
            .ledger
            .in_time(async |mut session| {
                let mut found = session.all(lapsed, decode_hold).await?;
                found.append(&mut session.all(next, decode_hold).await?);
                Ok(found)
            })
            .await?;
        let [lapsed_most, ahead_most] = [lapsed_most, HOLDS_AHEAD].map(|most| most as usize);
        Ok(Holds::at(at, found, lapsed_most, ahead_most))
    }

    /// What a forecast needs of the holds that are open after an account's line `last`: the first of
    /// them, and the end of the last one if there are more.
    #[boxed]
    pub async fn holds_to_come(
        &self,
        account: AccountId,
        last: &Line,
    ) -> Result<HoldsAhead, LedgerError> {
        let Some(from) = last.lapses_at else {
            return Ok(HoldsAhead::default());
        };
        let of_account = |text| query(text).bind(account).bind(last.number).bind(from);
        let holds = of_account(HOLDS_TO_COME).bind(HOLDS_MOST as u32);
        let last_end = of_account(LAST_END);
        self.ledger
            .in_time(async |mut session| {
                let holds = session.all(holds, decode_hold).await?;
                let mut last_ends_at = None;
                if holds.len() >= HOLDS_MOST {
                    last_ends_at = session.first(last_end, only).await?;
                }
                Ok(HoldsAhead {
                    holds,
                    last_ends_at,
                })
            })
            .await
    }

    /// The keys of an account's entries since an instant, newest first, at most `limit`. Those of entries that an
    /// erasure gave to another account come last.
    #[boxed]
    pub async fn keys_of(
        &self,
        account: AccountId,
        since: DateTime<Utc>,
        limit: u32,
    ) -> Result<Vec<KeyId>, LedgerError> {
        let keys = query(KEYS).bind(account).bind(since).bind(limit);
        self.ledger
            .in_time(async |mut session| session.all(keys, only).await)
            .await
    }
}

impl RecordTables {
    /// The instant of the last entry that an account has lost to a cut.
    #[boxed]
    pub async fn cut_at(&self, account: AccountId) -> Result<Option<DateTime<Utc>>, LedgerError> {
        let cut = query(CUT_AT).bind(account);
        self.ledger.reads().await?.lend().first(cut, only).await
    }

    /// An account's entries with numbers below `before`, newest first, at most `limit`.
    #[boxed]
    pub async fn entries(
        &self,
        account: AccountId,
        before: u64,
        limit: u32,
    ) -> Result<Vec<Entry>, LedgerError> {
        let entries = query(ENTRIES).bind(account).bind(before).bind(limit);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(entries, decode_entry)
            .await
    }
}
