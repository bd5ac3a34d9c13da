//! Cuts: up to which position entries are archived and may be dropped, and which entries are kept.

use std::collections::HashSet;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::acts::{Act, add_act_in};
use super::record::HOLD_POSITIONS;
use super::replacements::HOLD_LEDGER;
use crate::access::Ending;
use crate::boxed;
use crate::query::{Session, Texts, query};
use crate::row::{StoredRow, only};
use crate::service_role::Ownership;
use crate::sessions::answered;
use crate::{ClaimTables, LedgerError, RecordTables};
use domain::identity::{AccountId, BundleId, EntryId};
use domain::keeping::needed_days;
use domain::policy::{Policy, PolicyId};
use domain::record::{Mark, RecordPlace};
use host::faults::reach;

/// How many entries one transaction drops.
const ENTRIES_MOST: u64 = 500;
/// How many accounts are read to find them.
const ACCOUNTS_MOST: u32 = 500;

/// The text of the act of a cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutText {
    /// The cut is about what was recorded before this instant.
    pub before: DateTime<Utc>,
    /// Entries up to this position may be dropped.
    pub last_position: u64,
    /// The cut is recorded this long after `before`, or later. Policies that need their entries for more days keep more
    /// of them: see [`CutText::end_of`].
    pub age_days: u32,
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
    /// The place of the act.
    pub own: RecordPlace,
    pub text: CutText,
}

impl CutText {
    /// Entries of a policy may be dropped if they were recorded before this instant: `before`, or an earlier one if the
    /// policy needs its entries for more days than the cut is old. `versions` are those that are older than the cut.
    pub fn end_of(&self, versions: &[Policy]) -> DateTime<Utc> {
        let at = self.before + TimeDelta::days(self.age_days.into());
        let needed = TimeDelta::days(needed_days(versions, at).into());
        self.before.min(at - needed)
    }
}

const CUTS: &str =
    "SELECT revision, about, xact FROM acts WHERE kind = 'cut' ORDER BY revision DESC";
/// Whether a policy has changed since a revision.
const POLICY_CHANGED: &str = "SELECT EXISTS (SELECT 1 FROM policy_versions WHERE revision > $1)";
const IS_DROPPED: &str = "SELECT EXISTS (SELECT 1 FROM dropped_entries WHERE id = $1)";
const IS_CUT: &str = "SELECT EXISTS (SELECT 1 FROM dropped_entries WHERE bundle = $1)";

/// How often accounts have got random ids, and whether one gets its random id at the moment: its
/// entries are then under two ids.
const MOVES: &str = "SELECT erasures, (
        SELECT EXISTS (SELECT 1 FROM erasing_accounts WHERE step = 2 AND done > 0)
    ) AS is_moving FROM ledger";
const IS_MOVING: &str =
    "SELECT EXISTS (SELECT 1 FROM erasing_accounts WHERE step = 2 AND done > 0)";
const COUNT: &str = "SELECT count(*) FROM entries WHERE xact <= $1 AND (xact, id) <= ($1, $2)";
/// Accounts from $1 on. Of each one: its first entry, for the account $1 not below the number $2; and
/// among the next $6 entries the first one after the place ($3, $4), the last one, and the first hold that
/// no entry up to the place ends. So a look reads few entries of an account, however long it is.
const ACCOUNTS: &str = "SELECT account, policy, first, (
         SELECT MIN(e.number) FROM entries AS e
         WHERE e.account = opened.account AND e.number >= first AND e.number <= first + $6
             AND (e.xact, e.id) > ($3, $4)
     ) AS newer, (
         SELECT MAX(e.number) FROM entries AS e
         WHERE e.account = opened.account AND e.number <= first + $6
     ) AS last, (
         SELECT MIN(hold.number) FROM entry_details AS hold
         WHERE hold.account = opened.account AND hold.number >= first
             AND hold.number <= first + $6 AND hold.held_until IS NOT NULL AND NOT EXISTS (
                 SELECT 1 FROM entry_details AS named
                 JOIN entries AS e ON e.account = named.account AND e.number = named.number
                 WHERE named.of_grant = hold.id
                     AND named.kind IN (SELECT kind FROM entry_kinds WHERE ends_hold) AND (e.xact, e.id) <= ($3, $4)
             )
     ) AS hold FROM (
         SELECT id AS account, policy, (
             SELECT MIN(number) FROM entries
             WHERE account = accounts.id
                 AND number >= CASE WHEN accounts.id = $1 THEN $2 ELSE 0 END
         ) AS first FROM accounts WHERE id >= $1 ORDER BY id LIMIT $5
     ) AS opened ORDER BY account";

// The next statements are about the entries `gone` of the spans in the JSON array $1: an account, and the
// number below which its entries are dropped.

/// Stores the places of the entries, for the cut $2.
const NOTE_PLACES: Texts = Texts {
    postgres: "INSERT INTO dropped_entries (xact, id, revision, policy, bundle)
        SELECT gone.xact, gone.id, $2, gone.policy, d.bundle FROM (SELECT CAST(s ->> 0 AS uuid) AS account, CAST(s ->> 1 AS bigint) AS below
            FROM json_array_elements(CAST($1 AS json)) AS s) AS span
        CROSS JOIN entries AS gone
        LEFT JOIN entry_details AS d ON d.account = gone.account AND d.number = gone.number
        WHERE gone.account = span.account AND gone.number < span.below
        RETURNING id",
    sqlite: "INSERT INTO dropped_entries (xact, id, revision, policy, bundle)
        SELECT gone.xact, gone.id, $2, gone.policy, d.bundle FROM (SELECT unhex(value ->> 0) AS account, value ->> 1 AS below
            FROM json_each($1)) AS span
        CROSS JOIN entries AS gone
        LEFT JOIN entry_details AS d ON d.account = gone.account AND d.number = gone.number
        WHERE gone.account = span.account AND gone.number < span.below
        RETURNING id",
};
const ADD_CUTS: Texts = Texts {
    postgres: "INSERT INTO cuts (entry, at, revision) SELECT kept.id, gone.at, $2
        FROM (SELECT CAST(d ->> 0 AS uuid) AS account, CAST(d ->> 1 AS bigint) AS below
            FROM json_array_elements(CAST($1 AS json)) AS d) AS span
        CROSS JOIN entries AS kept CROSS JOIN entries AS gone
        WHERE kept.account = span.account AND kept.number = span.below
            AND gone.account = span.account AND gone.number = span.below - 1",
    sqlite: "INSERT INTO cuts (entry, at, revision) SELECT kept.id, gone.at, $2
        FROM (SELECT unhex(value ->> 0) AS account, value ->> 1 AS below
            FROM json_each($1)) AS span
        CROSS JOIN entries AS kept CROSS JOIN entries AS gone
        WHERE kept.account = span.account AND kept.number = span.below
            AND gone.account = span.account AND gone.number = span.below - 1",
};
const FORGET_CUTS: Texts = Texts {
    postgres: "DELETE FROM cuts WHERE entry IN (SELECT gone.id
        FROM (SELECT CAST(d ->> 0 AS uuid) AS account, CAST(d ->> 1 AS bigint) AS below
            FROM json_array_elements(CAST($1 AS json)) AS d) AS span
        CROSS JOIN entries AS gone
        WHERE gone.account = span.account AND gone.number < span.below)",
    sqlite: "DELETE FROM cuts WHERE entry IN (SELECT gone.id
        FROM (SELECT unhex(value ->> 0) AS account, value ->> 1 AS below
            FROM json_each($1)) AS span
        CROSS JOIN entries AS gone
        WHERE gone.account = span.account AND gone.number < span.below)",
};
const DROP_DETAILS: Texts = Texts {
    postgres:
        "DELETE FROM entry_details WHERE (account, number) IN (SELECT gone.account, gone.number
        FROM (SELECT CAST(d ->> 0 AS uuid) AS account, CAST(d ->> 1 AS bigint) AS below
            FROM json_array_elements(CAST($1 AS json)) AS d) AS span
        CROSS JOIN entry_details AS gone
        WHERE gone.account = span.account AND gone.number < span.below)",
    sqlite: "DELETE FROM entry_details WHERE (account, number) IN (SELECT gone.account, gone.number
        FROM (SELECT unhex(value ->> 0) AS account, value ->> 1 AS below
            FROM json_each($1)) AS span
        CROSS JOIN entry_details AS gone
        WHERE gone.account = span.account AND gone.number < span.below)",
};
const DROP_ENTRIES: Texts = Texts {
    postgres: "DELETE FROM entries WHERE (account, number) IN (SELECT gone.account, gone.number
        FROM (SELECT CAST(d ->> 0 AS uuid) AS account, CAST(d ->> 1 AS bigint) AS below
            FROM json_array_elements(CAST($1 AS json)) AS d) AS span
        CROSS JOIN entries AS gone
        WHERE gone.account = span.account AND gone.number < span.below)",
    sqlite: "DELETE FROM entries WHERE (account, number) IN (SELECT gone.account, gone.number
        FROM (SELECT unhex(value ->> 0) AS account, value ->> 1 AS below
            FROM json_each($1)) AS span
        CROSS JOIN entries AS gone
        WHERE gone.account = span.account AND gone.number < span.below)",
};
const KEEP_FIGURES: &str = "UPDATE day_figures_mark SET kept_to = $1
    WHERE kept_to IS NULL OR kept_to < $1";

/// What a cut may drop: entries of some policies up to a mark.
#[derive(Debug, Clone)]
pub struct DropScope {
    /// They were recorded before this instant.
    pub before: DateTime<Utc>,
    pub end: Mark,
    pub policies: HashSet<PolicyId>,
}

/// Where a drop goes on: at an account, from a number on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropCursor {
    account: AccountId,
    number: u64,
}

impl DropCursor {
    pub const FIRST: Self = Self {
        account: AccountId(Uuid::nil()),
        number: 0,
    };
}

/// The entries of an account that one transaction may drop, and what stays.
#[derive(Debug, Clone, Copy)]
struct CutAccount {
    account: AccountId,
    policy: PolicyId,
    /// The first entry; `None` if no entry is left.
    first: Option<u64>,
    /// The first entry after the cut.
    newer: Option<u64>,
    last: Option<u64>,
    /// The first hold that was open at the cut.
    hold: Option<u64>,
}

/// The oldest entries of an account: those below a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DropSpan {
    account: AccountId,
    below: u64,
}

/// What one transaction drops. Invariant: only the cut decides what is dropped, so a step that was found
/// before the transaction is still right in it.
#[derive(Debug, PartialEq, Eq)]
pub struct DropStep {
    spans: Vec<DropSpan>,
    pub entries: u64,
    /// Where the next step begins; `None` at the end.
    pub next: Option<DropCursor>,
}

fn decode_cut(row: &StoredRow<'_>) -> Result<Cut, LedgerError> {
    let text = serde_json::from_str(&row.get::<String>("about")?);
    let revision = row.get("revision")?;
    Ok(Cut {
        revision,
        own: RecordPlace {
            xact: row.get("xact")?,
            id: RecordPlace::OF_CHANGES,
            revision,
        },
        text: text
            .map_err(|_| LedgerError::Corrupt("the act of a cut cannot be read".to_owned()))?,
    })
}

fn decode_account(row: &StoredRow<'_>) -> Result<CutAccount, LedgerError> {
    Ok(CutAccount {
        account: row.get("account")?,
        policy: row.get("policy")?,
        first: row.get("first")?,
        newer: row.get("newer")?,
        last: row.get("last")?,
        hold: row.get("hold")?,
    })
}

impl CutAccount {
    /// The first entry that stays: the last one up to the cut, or the first open hold.
    fn kept(&self) -> Option<u64> {
        let last = self.newer.map(|newer| newer - 1).or(self.last)?;
        Some(self.hold.map_or(last, |hold| hold.min(last)))
    }
}

impl DropStep {
    /// As many entries of some accounts as one transaction may drop, of these policies alone. `has_more` says whether
    /// accounts follow.
    fn of(accounts: &[CutAccount], policies: &HashSet<PolicyId>, has_more: bool) -> Self {
        let mut step = Self {
            spans: Vec::new(),
            entries: 0,
            next: None,
        };
        let dropped = accounts.iter().filter(|it| policies.contains(&it.policy));
        for found in dropped {
            let (Some(first), Some(kept)) = (found.first, found.kept()) else {
                continue;
            };
            let below = kept.min(first + ENTRIES_MOST - step.entries);
            let account = found.account;
            if first < below {
                step.spans.push(DropSpan { account, below });
                step.entries += below - first;
            }
            // The remaining entries of a long account come next.
            if step.entries == ENTRIES_MOST {
                step.next = Some(DropCursor {
                    account,
                    number: below,
                });
                return step;
            }
        }
        step.next = accounts.last().filter(|_| has_more).map(|last| DropCursor {
            account: last.account,
            number: i64::MAX.cast_unsigned(),
        });
        step
    }

    /// The spans as JSON, so that one statement drops all.
    fn encode(&self) -> String {
        let span = |span: &DropSpan| json!([span.account.0.simple(), span.below]);
        json!(self.spans.iter().map(span).collect::<Vec<_>>()).to_string()
    }
}

impl ClaimTables {
    /// Whether an entry was archived and dropped.
    #[boxed]
    pub async fn is_dropped(&self, entry: EntryId) -> Result<bool, LedgerError> {
        let dropped = query(IS_DROPPED).bind(entry);
        self.ledger.reads().await?.lend().one(dropped).await
    }

    /// Whether grants of a bundle were archived and dropped.
    #[boxed]
    pub async fn is_cut(&self, bundle: BundleId) -> Result<bool, LedgerError> {
        let cut = query(IS_CUT).bind(bundle);
        self.ledger.reads().await?.lend().one(cut).await
    }
}

impl RecordTables {
    /// The newest cut whose own place is at or below a place.
    #[boxed]
    pub async fn last_cut(&self, up_to: RecordPlace) -> Result<Option<Cut>, LedgerError> {
        let mut cuts = self.cuts().await?.into_iter();
        Ok(cuts.find(|cut| cut.own <= up_to))
    }

    /// All cuts, the newest first.
    #[boxed]
    pub async fn cuts(&self) -> Result<Vec<Cut>, LedgerError> {
        let mut held = self.ledger.reads().await?;
        held.lend().all(query(CUTS), decode_cut).await
    }

    /// Whether this user may drop entries. On PostgreSQL only the owner of the tables may.
    #[boxed]
    pub async fn may_drop(&self) -> Result<bool, LedgerError> {
        match self.ledger.own().await?.lend() {
            Session::Postgres(connection, patience) => {
                let ownership = answered(patience, Ownership::read(connection)).await?;
                Ok(ownership.is_ours)
            }
            Session::Sqlite(_) => Ok(true),
        }
    }

    /// How often accounts have got random ids. `None` while an account gets its random id.
    #[boxed]
    pub async fn account_moves(&self) -> Result<Option<u64>, LedgerError> {
        let decode = |row: &StoredRow<'_>| {
            let moves: u64 = row.get("erasures")?;
            Ok((!row.get::<bool>("is_moving")?).then_some(moves))
        };
        let moves = self
            .ledger
            .own()
            .await?
            .lend()
            .first(query(MOVES), decode)
            .await?;
        Ok(moves.flatten())
    }

    /// How many entries the ledger has up to a place.
    #[boxed]
    pub async fn count_entries(&self, up_to: RecordPlace) -> Result<u64, LedgerError> {
        let count = query(COUNT).bind(up_to.xact).bind(up_to.id);
        self.ledger.own().await?.lend().one(count).await
    }

    /// Adds the act of a cut. From then on the figures that were recorded up to `kept_to` are kept
    /// as they are.
    /// Returns `None` and adds nothing if a policy has changed since the revision `as_of`.
    #[boxed]
    pub async fn add_cut(
        &self,
        act: &Act,
        kept_to: NaiveDate,
        as_of: u64,
    ) -> Result<Option<Cut>, LedgerError> {
        let revision = self
            .ledger
            .own_edit(async |mut session| {
                // It holds the lock of all changes.
                let revision = add_act_in(&mut session, act).await?;
                if session.one(query(POLICY_CHANGED).bind(as_of)).await? {
                    return Ok(Ending::Rollback(None));
                }
                let keep = query(KEEP_FIGURES).bind(kept_to);
                session.execute(keep).await?;
                Ok(Ending::Commit(Some(revision)))
            })
            .await?;
        let cuts = self.cuts().await?;
        Ok(cuts.into_iter().find(|cut| Some(cut.revision) == revision))
    }

    /// The next entries that a cut drops. It takes no lock.
    #[boxed]
    pub async fn drop_step(
        &self,
        scope: &DropScope,
        from: DropCursor,
    ) -> Result<DropStep, LedgerError> {
        let accounts = query(ACCOUNTS)
            .bind(from.account)
            .bind(from.number)
            .bind(scope.end.place.xact)
            .bind(scope.end.place.id)
            .bind(ACCOUNTS_MOST)
            .bind(ENTRIES_MOST);
        let mut held = self.ledger.own().await?;
        let accounts = held.lend().all(accounts, decode_account).await?;
        let has_more = accounts.len() == ACCOUNTS_MOST as usize;
        Ok(DropStep::of(&accounts, &scope.policies, has_more))
    }

    /// Drops the entries of a step that are left, and returns how many it dropped. Returns `None` and
    /// drops nothing while an account gets its random id.
    #[boxed]
    pub async fn drop_entries(
        &self,
        cut: &Cut,
        step: &DropStep,
    ) -> Result<Option<u64>, LedgerError> {
        if step.entries == 0 {
            return Ok(Some(0));
        }
        let spans = step.encode();
        let of_spans = |texts: Texts| query(texts).bind(&*spans);
        self.ledger
            .own_edit(async |mut session| {
                // Every transaction takes these locks in the same order. No account gets another id
                // while this one is held.
                // 1. Lock the ledger and the positions.
                session.execute(query(HOLD_LEDGER)).await?;
                session.execute(query(HOLD_POSITIONS)).await?;
                if session.one::<bool>(query(IS_MOVING)).await? {
                    return Ok(Ending::Rollback(None));
                }
                // 2. Store the places of the entries and the cuts of the accounts.
                let places = of_spans(NOTE_PLACES).bind(cut.revision);
                let places: Vec<EntryId> = session.all(places, only).await?;
                session
                    .execute(of_spans(ADD_CUTS).bind(cut.revision))
                    .await?;
                // 3. Drop the entries.
                for texts in [FORGET_CUTS, DROP_DETAILS, DROP_ENTRIES] {
                    session.execute(of_spans(texts)).await?;
                }
                reach("drop.deleted");
                Ok(Ending::Commit(Some(places.len() as u64)))
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(number: u128) -> AccountId {
        AccountId(Uuid::from_u128(number))
    }

    fn found(number: u128, first: u64, newer: Option<u64>, hold: Option<u64>) -> CutAccount {
        CutAccount {
            account: account(number),
            policy: PolicyId(1),
            first: Some(first),
            newer,
            last: Some(newer.unwrap_or(first + ENTRIES_MOST)),
            hold,
        }
    }

    fn spans(step: &DropStep) -> Vec<(u128, u64)> {
        let spans = step.spans.iter();
        spans
            .map(|span| (span.account.0.as_u128(), span.below))
            .collect()
    }

    #[test]
    fn the_last_entry_and_open_holds_stay() {
        let gone = CutAccount {
            first: None,
            last: None,
            ..found(4, 1, None, None)
        };
        let accounts = [
            found(1, 1, Some(5), None),
            found(2, 3, Some(9), Some(4)),
            // All entries are after the cut.
            found(3, 7, Some(7), None),
            gone,
            // A hold alone.
            found(5, 2, Some(3), Some(2)),
        ];
        let all = HashSet::from([PolicyId(1)]);
        let step = DropStep::of(&accounts, &all, false);
        assert_eq!(spans(&step), [(1, 4), (2, 4)]);
        assert_eq!((step.entries, step.next), (4, None));
        let next = DropStep::of(&accounts, &all, true).next;
        assert_eq!(next.map(|next| next.account), Some(account(5)));
        // Nothing of another policy.
        let spared = DropStep::of(&accounts, &HashSet::new(), true);
        assert_eq!((spared.entries, spared.next), (0, next));
    }

    #[test]
    fn a_long_account_takes_several_steps() {
        let short = found(1, 1, Some(12), None);
        let all = HashSet::from([PolicyId(1)]);
        let step = DropStep::of(&[short, found(2, 1, None, None)], &all, false);
        assert_eq!(spans(&step), [(1, 11), (2, ENTRIES_MOST - 9)]);
        assert_eq!(step.entries, ENTRIES_MOST);
        let number = ENTRIES_MOST - 9;
        let next = DropCursor {
            account: account(2),
            number,
        };
        assert_eq!(step.next, Some(next));
        let step = DropStep::of(&[found(2, number, None, None)], &all, false);
        assert_eq!(spans(&step), [(2, number + ENTRIES_MOST)]);
    }
}
