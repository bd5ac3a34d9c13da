//! Cuts: up to which position entries are archived and may be dropped, and which entries are kept.

use chrono::{DateTime, Days, NaiveDate, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::acts::{Act, add_act_in};
use super::record::HOLD_POSITIONS;
use super::replacements::HOLD_LEDGER;
use crate::domain::identity::{AccountId, EntryId};
use crate::domain::record::RecordPlace;
use crate::ledger::access::Ending;
use crate::ledger::encoding::kind;
use crate::ledger::query::{Session, query};
use crate::ledger::row::StoredRow;
use crate::ledger::service_role::Ownership;
use crate::ledger::{Ledger, LedgerError};

/// How many entries one transaction drops.
const ENTRIES_MOST: u64 = 500;
/// How many accounts one transaction looks at.
const ACCOUNTS_MOST: u32 = 50;

/// The text of the act of a cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutText {
    /// The cut is about what was recorded before this instant.
    pub before: DateTime<Utc>,
    /// Entries up to this position may be dropped.
    pub last_position: u64,
    /// How many entries up to that position are kept.
    pub kept_entries: u64,
    /// The origin of the log of seals, and the root of the tree of the archive's leaves, in Base64.
    pub origin: String,
    pub root: String,
}

/// A cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    pub revision: u64,
    pub text: CutText,
    /// The place of the last position.
    pub place: RecordPlace,
}

impl Cut {
    /// What was recorded less than this long before a cut is kept. It is longer than every window,
    /// and than the life of keys.
    pub const KEPT_TIME: TimeDelta = TimeDelta::days(400);

    /// The error for a request that needs entries which may be dropped.
    pub fn refusal(&self) -> LedgerError {
        let (last, before) = (self.text.last_position, self.text.before.date_naive());
        // Two days later: true in every zone, and for clocks that differ.
        let later = before + Days::new(2);
        LedgerError::Archived(format!(
            "this needs entries that were archived and dropped: those up to position {last}, \
             recorded before {before}. Look for them in the archive, or ask for later entries, \
             for example with after={last} or from={later}"
        ))
    }
}

const LAST_CUTS: &str =
    "SELECT revision, about, xact FROM acts WHERE kind = 'cut' ORDER BY revision DESC LIMIT 8";
const IS_DROPPED: &str = "SELECT EXISTS (SELECT 1 FROM dropped_entries WHERE id = $1)";

/// The first hold of the account `$account` that no entry up to the number `$last` ends.
macro_rules! first_open_hold {
    ($account:literal, $last:literal) => {
        concat!(
            "SELECT MIN(hold.number) FROM entry_details AS hold
             WHERE hold.account = ",
            $account,
            " AND hold.held_until IS NOT NULL AND hold.number <= ",
            $last,
            " AND NOT EXISTS (
                 SELECT 1 FROM entry_details AS named
                 WHERE named.of_grant = hold.id AND named.kind <> ",
            kind!(PARTIAL_REVERSAL),
            " AND named.number <= ",
            $last,
            ")"
        )
    };
}

/// Whether the account gets its random id at the moment: its entries are then under two ids.
macro_rules! is_moving {
    () => {
        "SELECT EXISTS (SELECT 1 FROM erasing_accounts WHERE step = 2 AND done > 0)"
    };
}

const IS_MOVING: &str = is_moving!();
/// How many entries are kept of those up to ($1, $2).
const KEPT: &str = concat!(
    "SELECT CAST(COALESCE(SUM(cut.last - COALESCE((",
    first_open_hold!("cut.account", "cut.last"),
    "), cut.last) + 1), 0) AS bigint) AS kept, (",
    is_moving!(),
    ") AS is_moving FROM (
         SELECT account, MAX(number) AS last FROM entries WHERE (xact, id) <= ($1, $2)
         GROUP BY account
     ) AS cut"
);
/// Accounts after $1 with entries up to ($2, $3), and the first and last number of these entries.
const ACCOUNTS: &str = "SELECT account, MIN(number) AS first, MAX(number) AS last FROM entries
    WHERE account > $1 AND (xact, id) <= ($2, $3)
    GROUP BY account ORDER BY account LIMIT $4";
const FIRST_OPEN_HOLD: &str = first_open_hold!("$1", "$2");

// Stores the places of the entries below the number $2 of the account $1, for the cut $3.
const NOTE_PLACES: &str = "INSERT INTO dropped_entries (xact, id, revision)
    SELECT xact, id, $3 FROM entries WHERE account = $1 AND number < $2";
const FORGET_CUT: &str = "DELETE FROM cuts WHERE entry IN (
        SELECT id FROM entries WHERE account = $1 AND number < $2
    )";
const ADD_CUT: &str = "INSERT INTO cuts (entry, at, revision)
    SELECT kept.id, gone.at, $3 FROM entries AS kept
    JOIN entries AS gone ON gone.account = kept.account AND gone.number = kept.number - 1
    WHERE kept.account = $1 AND kept.number = $2";
const DROP_DETAILS: &str = "DELETE FROM entry_details WHERE account = $1 AND number < $2";
const DROP_ENTRIES: &str = "DELETE FROM entries WHERE account = $1 AND number < $2";
const KEEP_FIGURES: &str = "UPDATE day_figures_mark SET kept_to = $1
    WHERE kept_to IS NULL OR kept_to < $1";

/// An account with entries that may be dropped.
struct CutAccount {
    account: AccountId,
    first: u64,
    last: u64,
}

/// The result of one transaction.
#[derive(Debug)]
pub struct Dropped {
    pub entries: u64,
    /// The account after which the next transaction continues; `None` at the end.
    pub next: Option<AccountId>,
}

fn decode_account(row: &StoredRow<'_>) -> Result<CutAccount, LedgerError> {
    Ok(CutAccount {
        account: row.get("account")?,
        first: row.get("first")?,
        last: row.get("last")?,
    })
}

impl Ledger {
    /// The newest cut whose own place is at or below a place.
    pub async fn last_cut(&self, up_to: RecordPlace) -> Result<Option<Cut>, LedgerError> {
        let decode = |row: &StoredRow<'_>| {
            let place = RecordPlace {
                xact: row.get("xact")?,
                id: RecordPlace::OF_CHANGES,
                revision: row.get("revision")?,
            };
            Ok((place, row.get("about")?))
        };
        let mut held = self.reads().await?;
        let cuts: Vec<(RecordPlace, String)> = held.lend().all(query(LAST_CUTS), decode).await?;
        drop(held);
        let Some((own, about)) = cuts.into_iter().find(|(own, _)| *own <= up_to) else {
            return Ok(None);
        };
        let text: Result<CutText, _> = serde_json::from_str(&about);
        let text =
            text.map_err(|_| LedgerError::Corrupt("the act of a cut cannot be read".to_owned()))?;
        Ok(Some(Cut {
            revision: own.revision,
            place: self.mark_to(text.last_position).await?.place,
            text,
        }))
    }

    /// Whether an entry was archived and dropped.
    pub async fn is_dropped(&self, entry: EntryId) -> Result<bool, LedgerError> {
        let dropped = query(IS_DROPPED).bind(entry);
        self.reads().await?.lend().one(dropped).await
    }

    /// Whether this user may drop entries. On PostgreSQL only the owner of the tables may.
    pub async fn may_drop(&self) -> Result<bool, LedgerError> {
        match self.own().await?.lend() {
            Session::Postgres(connection) => Ok(Ownership::read(connection).await?.is_ours),
            Session::Sqlite(_) => Ok(true),
        }
    }

    /// How many entries up to a place are kept when the others are dropped. `None` while an account
    /// gets its random id.
    pub async fn kept_entries(&self, up_to: RecordPlace) -> Result<Option<u64>, LedgerError> {
        let kept = query(KEPT).bind(up_to.xact).bind(up_to.id);
        let decode = |row: &StoredRow<'_>| {
            let kept: u64 = row.get("kept")?;
            Ok((!row.get::<bool>("is_moving")?).then_some(kept))
        };
        let kept = self.own().await?.lend().first(kept, decode).await?;
        Ok(kept.flatten())
    }

    /// Adds the act of a cut. From then on the figures that were recorded up to `kept_to` are kept
    /// as they are.
    pub async fn add_cut(&self, act: &Act, kept_to: NaiveDate) -> Result<u64, LedgerError> {
        self.own_edit(async |mut session| {
            let revision = add_act_in(&mut session, act).await?;
            let keep = query(KEEP_FIGURES).bind(kept_to);
            session.execute(keep).await?;
            Ok(Ending::Commit(revision))
        })
        .await
    }

    /// Drops entries of some accounts after `after`, as the cut says. Returns `None` and drops
    /// nothing while an account gets its random id.
    pub async fn drop_entries(
        &self,
        cut: &Cut,
        after: AccountId,
    ) -> Result<Option<Dropped>, LedgerError> {
        self.own_edit(async |mut session| {
            // Every transaction takes these locks in the same order. No account gets another id
            // while this one is held.
            // 1. Lock the ledger and the positions.
            session.execute(query(HOLD_LEDGER)).await?;
            session.execute(query(HOLD_POSITIONS)).await?;
            if session.one::<bool>(query(IS_MOVING)).await? {
                return Ok(Ending::Rollback(None));
            }
            // 2. Read the next accounts with entries that may be dropped.
            let accounts = query(ACCOUNTS)
                .bind(after)
                .bind(cut.place.xact)
                .bind(cut.place.id)
                .bind(ACCOUNTS_MOST);
            let accounts = session.all(accounts, decode_account).await?;
            let mut dropped = Dropped {
                entries: 0,
                next: Some(after),
            };
            let is_end = accounts.len() < ACCOUNTS_MOST as usize;
            // 3. Drop their entries, as many as one transaction may.
            for account in accounts {
                let room = ENTRIES_MOST - dropped.entries;
                let lines = drop_lines(&mut session, &account, cut, room).await?;
                dropped.entries += lines;
                // The remaining entries of a long account come next.
                if lines == room {
                    return Ok(Ending::Commit(Some(dropped)));
                }
                dropped.next = Some(account.account);
            }
            if is_end {
                dropped.next = None;
            }
            Ok(Ending::Commit(Some(dropped)))
        })
        .await
    }
}

/// Drops the oldest entries of an account, at most `most`, and returns how many it dropped.
async fn drop_lines(
    session: &mut Session<'_>,
    of: &CutAccount,
    cut: &Cut,
    most: u64,
) -> Result<u64, LedgerError> {
    // 1. Keep the last entry, and every entry from the first open hold on.
    let hold = query(FIRST_OPEN_HOLD).bind(of.account).bind(of.last);
    let hold: Option<u64> = session.one(hold).await?;
    let kept = hold.unwrap_or(of.last);
    let kept = kept.min(of.first + most);
    if kept <= of.first {
        return Ok(0);
    }
    let below = |text: &'static str| query(text).bind(of.account).bind(kept);
    // 2. Store the places of the others and the cut, then drop them.
    for text in [NOTE_PLACES, ADD_CUT] {
        session.execute(below(text).bind(cut.revision)).await?;
    }
    for text in [FORGET_CUT, DROP_DETAILS, DROP_ENTRIES] {
        session.execute(below(text)).await?;
    }
    Ok(kept - of.first)
}
