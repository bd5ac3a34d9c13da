//! Holds that ended without a confirmation: whose lapses are due, and how far they were recorded.

use chrono::{DateTime, Utc};

use crate::access::Ending;
use crate::boxed;
use crate::query::query;
use crate::row::{StoredRow, only};
use crate::{ClaimTables, LedgerError};
use domain::identity::{AccountId, EntryId};
use domain::policy::PolicyId;

/// A hold that has ended.
#[derive(Debug, Clone, Copy)]
pub struct EndedHold {
    pub account: AccountId,
    pub grant: EntryId,
    pub held_until: DateTime<Utc>,
    /// The policy of a hold whose lapse is due; `None` if an entry says what became of the hold.
    pub due_of: Option<PolicyId>,
}

/// How far lapses were recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LapsesMark {
    /// The lapses of holds that ended up to here were recorded once.
    pub until: DateTime<Utc>,
    /// How many turns instances have taken. One instance at a time records lapses.
    pub turn: i64,
}

/// The holds that ended after ($1, $2) and up to $3. The index has the ends in this order. The limit is
/// on the holds that are read, not on those that are due: millions can be read before one is due.
const ENDED: &str = "SELECT hold.account, hold.id, hold.held_until,
        CASE WHEN NOT EXISTS (SELECT 1 FROM entry_details WHERE of_grant = hold.id
            AND kind IN (SELECT kind FROM entry_kinds WHERE ends_hold)) THEN (SELECT policy FROM entries
            WHERE account = hold.account AND number = hold.number) END AS due_of
    FROM (SELECT account, number, id, held_until FROM entry_details
        WHERE held_until >= $1 AND held_until <= $3 AND (held_until > $1 OR id > $2)
        ORDER BY held_until, id LIMIT $4) AS hold
    ORDER BY hold.held_until, hold.id";
const MARK: &str = "SELECT recorded_until, turn FROM lapses_mark";
const TAKE_TURN: &str = "UPDATE lapses_mark SET turn = $1 + 1 WHERE turn = $1 RETURNING turn";
const MOVE_MARK: &str = "UPDATE lapses_mark SET recorded_until = $2 WHERE turn = $1 RETURNING turn";

fn decode_ended(row: &StoredRow<'_>) -> Result<EndedHold, LedgerError> {
    Ok(EndedHold {
        account: row.get("account")?,
        grant: row.get("id")?,
        held_until: row.get("held_until")?,
        due_of: row.get("due_of")?,
    })
}

fn decode_mark(row: &StoredRow<'_>) -> Result<LapsesMark, LedgerError> {
    Ok(LapsesMark {
        until: row.get("recorded_until")?,
        turn: row.get("turn")?,
    })
}

impl ClaimTables {
    #[boxed]
    pub async fn lapses_mark(&self) -> Result<LapsesMark, LedgerError> {
        let mark = self
            .ledger
            .own()
            .await?
            .lend()
            .first(query(MARK), decode_mark)
            .await?;
        mark.ok_or_else(|| LedgerError::Corrupt("lapses_mark has no row".to_owned()))
    }

    /// The holds that ended after a hold, or after an instant, and up to another instant; the
    /// earliest end first, at most `limit`.
    #[boxed]
    pub async fn ended_holds(
        &self,
        (after, grant): (DateTime<Utc>, EntryId),
        until: DateTime<Utc>,
        limit: u32,
    ) -> Result<Vec<EndedHold>, LedgerError> {
        let ended = query(ENDED).bind(after).bind(grant).bind(until).bind(limit);
        self.ledger
            .own()
            .await?
            .lend()
            .all(ended, decode_ended)
            .await
    }

    /// Takes the next turn. Returns whether no other instance took it first.
    #[boxed]
    pub async fn take_lapses_turn(&self, turn: i64) -> Result<bool, LedgerError> {
        let taking = query(TAKE_TURN).bind(turn);
        self.ledger
            .own_edit(async |mut session| {
                let taking = session.first(taking, only::<i64>).await?;
                Ok(Ending::Commit(taking.is_some()))
            })
            .await
    }

    /// Notes how far lapses were recorded, unless another instance has taken a turn since.
    #[boxed]
    pub async fn move_lapses_mark(&self, mark: LapsesMark) -> Result<(), LedgerError> {
        let moved = query(MOVE_MARK).bind(mark.turn).bind(mark.until);
        self.ledger
            .own_edit(async |mut session| {
                session.first(moved, only::<i64>).await?;
                Ok(Ending::Commit(()))
            })
            .await
    }
}
