//! Erasures: which accounts are being erased, and the first step, which erases texts.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::acts::{self, Act};
use super::record::HOLD_POSITIONS;
use super::versions::next_revision;
use crate::access::Ending;
use crate::boxed;
use crate::entry_rows::decode_line;
use crate::query::{Session, Texts, query};
use crate::row::{StoredRow, only};
use crate::{AdminTables, LedgerError};
use domain::claim::Subject;
use domain::erasure::{ErasingAccount, ErasureStep, over_at, without_subject};
use domain::grant::Line;
use domain::identity::{AccountId, KeyId};
use domain::policy::PolicyId;
use domain::seal::leaf::{
    LeafId, PrivatePart, act_private_json, entry_private_json, hex, override_private_json,
};

/// How many entries one transaction erases.
pub(super) const ENTRIES_MOST: u32 = 1000;

fn decode(row: &StoredRow<'_>) -> Result<ErasingAccount, LedgerError> {
    let number: i64 = row.get("step")?;
    let step = usize::try_from(number - 1).ok();
    let step = step.and_then(|index| ErasureStep::ALL.get(index).copied());
    Ok(ErasingAccount {
        account: row.get("account")?,
        replacement: row.get("replacement")?,
        policy: row.get("policy")?,
        revision: row.get("revision")?,
        step: step.ok_or_else(|| LedgerError::Corrupt(format!("an erasure's step {number}")))?,
        done: row.get("done")?,
        override_ended: row.get("override_ended")?,
    })
}

const DUE: &str =
    "SELECT replacement, account, policy, revision, step, done, override_ended FROM erasing_accounts
    WHERE due_at <= $1 ORDER BY due_at LIMIT $2";
/// Takes the row of one erasure. The transaction that has the row does the step. SQLite has one
/// writer.
const ONE: Texts = Texts {
    postgres: "SELECT replacement, account, policy, revision, step, done, override_ended
        FROM erasing_accounts WHERE replacement = $1 FOR UPDATE",
    sqlite: "SELECT replacement, account, policy, revision, step, done, override_ended
        FROM erasing_accounts WHERE replacement = $1",
};
const OF_REVISION: &str =
    "SELECT replacement, account, policy, revision, step, done, override_ended FROM erasing_accounts
    WHERE revision = $1";
/// Whether the name is hidden. An account with a random id is no longer found under the old id,
/// which another account may use now.
const HIDDEN: Texts = Texts {
    postgres: "SELECT account FROM erasing_accounts WHERE account = ANY($1) AND step < 3",
    sqlite: "SELECT account FROM erasing_accounts
        WHERE account IN (SELECT unhex(value) FROM json_each($1)) AND step < 3",
};

/// Accounts whose texts are being erased already continue as they are.
const NAMED: Texts = Texts {
    postgres: "SELECT account, policy FROM (
            SELECT id AS account, policy FROM accounts WHERE subject IS NOT NULL AND id = ANY($1)
            UNION
            SELECT account, policy FROM overrides WHERE subject IS NOT NULL AND account = ANY($1)
        ) AS named
        WHERE NOT EXISTS (
            SELECT 1 FROM erasing_accounts AS e WHERE e.account = named.account AND e.step = 1
        )",
    sqlite: "SELECT account, policy FROM (
            SELECT id AS account, policy FROM accounts
            WHERE subject IS NOT NULL AND id IN (SELECT unhex(value) FROM json_each($1))
            UNION
            SELECT account, policy FROM overrides
            WHERE subject IS NOT NULL AND account IN (SELECT unhex(value) FROM json_each($1))
        ) AS named
        WHERE NOT EXISTS (
            SELECT 1 FROM erasing_accounts AS e WHERE e.account = named.account AND e.step = 1
        )",
};
const HAS_DENIALS: Texts = Texts {
    postgres: "SELECT EXISTS (SELECT 1 FROM first_denials WHERE account = ANY($1))",
    sqlite: "SELECT EXISTS (
            SELECT 1 FROM first_denials WHERE account IN (SELECT unhex(value) FROM json_each($1))
        )",
};
const FORGET_DENIALS: Texts = Texts {
    postgres: "DELETE FROM first_denials WHERE account = ANY($1)",
    sqlite: "DELETE FROM first_denials
        WHERE account IN (SELECT unhex(value) FROM json_each($1))",
};
const BEGUN_BEFORE: Texts = Texts {
    postgres: "SELECT MAX(revision) FROM erasing_accounts WHERE step < 3 AND account = ANY($1)",
    sqlite: "SELECT MAX(revision) FROM erasing_accounts
        WHERE step < 3 AND account IN (SELECT unhex(value) FROM json_each($1))",
};

/// Removes the name from the account at once. It is kept in this table until the texts are erased,
/// because the digests of the account's leaves need it. An account that was opened with a name
/// again begins again.
const BEGIN: &str = "INSERT INTO erasing_accounts
        (replacement, account, policy, revision, step, due_at, subject)
    VALUES ($1, $2, $3, $4, 1, $5, (SELECT subject FROM accounts WHERE id = $2))
    ON CONFLICT (account) WHERE step < 3 DO UPDATE SET step = 1, done = 0,
        revision = excluded.revision, override_ended = false, due_at = excluded.due_at,
        subject = excluded.subject";

/// The acts whose text may name a subject: exports with a filter that has the text $1, and reads of
/// the subject $2.
const NAMING_ACTS: Texts = Texts {
    postgres: "SELECT revision, about, reason, blind FROM acts
        WHERE kind = 'export' AND strpos(about, $1) > 0
        UNION ALL SELECT revision, about, reason, blind FROM acts
        WHERE kind = 'read' AND about::json #>> '{filters,subject}' = $2",
    sqlite: "SELECT revision, about, reason, blind FROM acts
        WHERE kind = 'export' AND instr(about, $1) > 0
        UNION ALL SELECT revision, about, reason, blind FROM acts
        WHERE kind = 'read' AND about ->> '$.filters.subject' = $2",
};

/// Keeps the digest of private texts. Each input is a leaf's id and its digest, in hexadecimal
/// digits. Only the first digest of a leaf is kept: it was made from all texts.
const KEEP_LEAVES: Texts = Texts {
    postgres: "INSERT INTO erased_leaves (id, private)
        SELECT left(leaf, 32)::uuid, decode(substr(leaf, 33), 'hex')
        FROM unnest($1::text[]) AS kept (leaf)
        ON CONFLICT (id) DO NOTHING",
    sqlite: "INSERT INTO erased_leaves (id, private)
        SELECT unhex(substr(value, 1, 32)), unhex(substr(value, 33)) FROM json_each($1)
        WHERE true ON CONFLICT (id) DO NOTHING",
};

const PRIVATE: &str = "SELECT e.number, e.id, e.key, e.metadata, d.reason FROM entries AS e
    LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
    WHERE e.account = $1 AND e.number > $2 ORDER BY e.number LIMIT $3";

pub(super) const LAST_LINE: &str =
    "SELECT number, at, policy_version, lapses_at, totals FROM entries
    WHERE account = $1 ORDER BY number DESC LIMIT 1";
pub(super) const HOLDS_END: &str = "SELECT MAX(held_until) FROM entry_details WHERE account = $1";

/// An erasure that begins.
pub struct NewErasure<'a> {
    pub subject: &'a Subject,
    /// All accounts that the subject may have.
    pub accounts: &'a [AccountId],
    /// The act, without its revision and its text.
    pub act: Act,
    /// Makes the text of the act from the number of erased accounts.
    pub about: fn(u64) -> String,
    /// From this instant on another instance continues, if this one does not.
    pub due_at: DateTime<Utc>,
}

/// The private part of an account's entry.
pub(super) struct PrivateEntry {
    pub number: u64,
    id: Uuid,
    key: Option<KeyId>,
    metadata: Option<String>,
    reason: Option<String>,
}

impl PrivateEntry {
    fn decode(row: &StoredRow<'_>) -> Result<Self, LedgerError> {
        Ok(Self {
            number: row.get("number")?,
            id: row.get("id")?,
            key: row.get("key")?,
            metadata: row.get("metadata")?,
            reason: row.get("reason")?,
        })
    }

    fn leaf(&self, account: AccountId, owner: &AccountOwner) -> (LeafId, String) {
        let private = entry_private_json(
            account.0,
            self.key.map(|key| key.0),
            self.metadata.as_deref(),
            self.reason.as_deref(),
            owner.subject.as_deref(),
        );
        (LeafId(self.id), private)
    }
}

/// While the texts of an account are being erased, its name is kept beside it, for digests.
const OWNER: &str = "SELECT blind, COALESCE(subject, (
        SELECT x.subject FROM erasing_accounts AS x WHERE x.account = id AND x.step = 1
    )) AS subject
    FROM accounts WHERE id = $1";

/// The owner of an account or an override.
pub(super) struct AccountOwner {
    pub subject: Option<String>,
    pub blind: Uuid,
}

impl AccountOwner {
    pub fn decode(row: &StoredRow<'_>) -> Result<Self, LedgerError> {
        Ok(Self {
            subject: row.get("subject")?,
            blind: row.get::<Option<Uuid>>("blind")?.unwrap_or_default(),
        })
    }

    pub async fn of_account(
        session: &mut Session<'_>,
        account: AccountId,
    ) -> Result<Option<Self>, LedgerError> {
        let owner = query(OWNER).bind(account);
        session.first(owner, Self::decode).await
    }

    pub async fn of_override(
        session: &mut Session<'_>,
        account: AccountId,
    ) -> Result<Option<Self>, LedgerError> {
        let owner = query("SELECT subject, blind FROM overrides WHERE account = $1").bind(account);
        session.first(owner, Self::decode).await
    }
}

impl AdminTables {
    /// Begins to erase a subject, and returns the act. If an erasure is running and nothing else
    /// is left to erase, returns the act of that one. `None` if the subject is unknown.
    #[boxed]
    pub async fn begin_erasure(&self, new: &NewErasure<'_>) -> Result<Option<Act>, LedgerError> {
        self.ledger
            .edit(async |mut session| {
                // 1. Lock: the order of changes, then the positions.
                let revision = next_revision(&mut session).await?;
                session.execute(query(HOLD_POSITIONS)).await?;
                // 2. Find the denials, the accounts that have the name, and the acts that tell it.
                let has_denials = query(HAS_DENIALS).bind(new.accounts);
                let has_denials: bool = session.one(has_denials).await?;
                let named = query(NAMED).bind(new.accounts);
                let account = |row: &StoredRow<'_>| Ok((row.get("account")?, row.get("policy")?));
                let named: Vec<(AccountId, PolicyId)> = session.all(named, account).await?;
                let naming = naming_acts(&mut session, new.subject).await?;
                // 3. Nothing to erase: an earlier erasure may still be running.
                if named.is_empty() && !has_denials && naming.is_empty() {
                    let before = query(BEGUN_BEFORE).bind(new.accounts);
                    let before: Option<u64> = session.one(before).await?;
                    let act = match before {
                        Some(before) => acts::one(&mut session, before).await?,
                        None => None,
                    };
                    return Ok(Ending::Rollback(act));
                }
                // 4. Add the act of the erasure. Nothing is erased before it.
                let act = Act {
                    revision: revision.cast_unsigned(),
                    about: (new.about)(named.len() as u64),
                    ..new.act.clone()
                };
                acts::add(&mut session, &act, revision).await?;
                // 5. Delete the denials, and begin to erase each account: its name goes at once.
                let denials = query(FORGET_DENIALS).bind(new.accounts);
                session.execute(denials).await?;
                for (account, policy) in named {
                    let begin = query(BEGIN)
                        .bind(Uuid::new_v4())
                        .bind(account)
                        .bind(policy)
                        .bind(revision)
                        .bind(new.due_at);
                    session.execute(begin).await?;
                    erase_names(&mut session, account).await?;
                }
                for act in &naming {
                    erase_from_act(&mut session, act).await?;
                }
                Ok(Ending::Commit(Some(act)))
            })
            .await
    }

    /// The accounts of an erasure that are not erased yet.
    #[boxed]
    pub async fn erasing_of(&self, revision: u64) -> Result<Vec<ErasingAccount>, LedgerError> {
        let erasing = query(OF_REVISION).bind(revision);
        self.ledger.own().await?.lend().all(erasing, decode).await
    }

    /// The accounts whose next step is due, at most `limit`.
    #[boxed]
    pub async fn due_erasures(
        &self,
        now: DateTime<Utc>,
        limit: u32,
    ) -> Result<Vec<ErasingAccount>, LedgerError> {
        let due = query(DUE).bind(now).bind(limit);
        self.ledger.own().await?.lend().all(due, decode).await
    }

    /// Those of some accounts that still count, without their subjects' names.
    #[boxed]
    pub async fn hidden(&self, accounts: &[AccountId]) -> Result<HashSet<AccountId>, LedgerError> {
        let hidden = query(HIDDEN).bind(accounts);
        let hidden = self.ledger.reads().await?.lend().all(hidden, only).await;
        Ok(hidden?.into_iter().collect())
    }

    /// Erases the texts of some entries of an account. Returns whether more are left. `margin` is
    /// how much clocks may differ.
    #[boxed]
    pub async fn erase_texts(
        &self,
        erasing: &ErasingAccount,
        margin: TimeDelta,
        now: DateTime<Utc>,
    ) -> Result<bool, LedgerError> {
        self.ledger
            .own_edit(async |mut session| {
                // 1. Every transaction takes its locks in this order: the ledger's row, the positions, the
                // erasure's row.
                session.execute(query(HOLD_POSITIONS)).await?;
                let Some(erasing) = take(&mut session, erasing, ErasureStep::Texts).await? else {
                    return Ok(Ending::Rollback(false));
                };
                // 2. Keep the digests of the next entries' texts, then erase the texts.
                let entries = private_entries(&mut session, &erasing).await?;
                let owner = AccountOwner::of_account(&mut session, erasing.account).await?;
                if let (Some(owner), Some(last)) = (&owner, entries.last()) {
                    keep_leaves_of_entries(&mut session, &erasing, &entries, owner).await?;
                    for texts in [ERASE_ENTRIES, ERASE_DETAILS] {
                        let erase = query(texts)
                            .bind(erasing.account)
                            .bind(erasing.done)
                            .bind(last.number);
                        session.execute(erase).await?;
                    }
                }
                // 3. If more entries are left, another transaction continues.
                let has_more = entries.len() == ENTRIES_MOST as usize;
                if let Some(last) = entries.last().filter(|_| has_more) {
                    note_done(&mut session, &erasing, last.number).await?;
                    return Ok(Ending::Commit(true));
                }
                // 4. Erase the name, and the denials.
                erase_names(&mut session, erasing.account).await?;
                let denials = query("DELETE FROM first_denials WHERE account = $1");
                session.execute(denials.bind(erasing.account)).await?;
                // 5. The next step is due when nothing counts in the account any more.
                let over = over(&mut session, erasing.account, margin).await?;
                go_on(
                    &mut session,
                    &erasing,
                    ErasureStep::Counts,
                    over.unwrap_or(now),
                )
                .await?;
                Ok(Ending::Commit(false))
            })
            .await
    }
}

// On PostgreSQL only functions of the owner may change what was appended.
const ERASE_ENTRIES: Texts = Texts {
    postgres: "SELECT erase_entries($1, $2, $3)",
    sqlite: "UPDATE entries SET metadata = NULL, flags = flags | 8
        WHERE account = $1 AND number > $2 AND number <= $3",
};
const ERASE_DETAILS: Texts = Texts {
    postgres: "SELECT erase_entry_details($1, $2, $3)",
    sqlite: "UPDATE entry_details SET reason = NULL
        WHERE account = $1 AND number > $2 AND number <= $3 AND reason IS NOT NULL",
};
const ERASE_NAMES: Texts = Texts {
    postgres: "SELECT erase_names($1)",
    sqlite: "UPDATE accounts SET subject = NULL WHERE id = $1;
        UPDATE override_versions SET reason = NULL WHERE account = $1;
        UPDATE overrides SET subject = NULL WHERE account = $1",
};
const ERASE_ACT: Texts = Texts {
    postgres: "SELECT erase_act($1, $2)",
    sqlite: "UPDATE acts SET about = $2 WHERE revision = $1",
};

/// Erases the name of an account, and the texts of its override.
async fn erase_names(session: &mut Session<'_>, account: AccountId) -> Result<(), LedgerError> {
    if let Some(owner) = AccountOwner::of_override(session, account).await? {
        keep_leaves_of_override(session, account, &owner).await?;
    }
    session.execute(query(ERASE_NAMES).bind(account)).await
}

/// Takes the erasure of an account. `None` if another instance has done the step.
pub(super) async fn take(
    session: &mut Session<'_>,
    erasing: &ErasingAccount,
    step: ErasureStep,
) -> Result<Option<ErasingAccount>, LedgerError> {
    let one = query(ONE).bind(erasing.replacement);
    let found = session.first(one, decode).await?;
    Ok(found.filter(|found| found.step == step))
}

pub(super) async fn note_done(
    session: &mut Session<'_>,
    erasing: &ErasingAccount,
    done: u64,
) -> Result<(), LedgerError> {
    let note = query("UPDATE erasing_accounts SET done = $2 WHERE replacement = $1");
    let note = note.bind(erasing.replacement).bind(done);
    session.execute(note).await
}

/// Sets the next step, and the instant from which it is due.
pub(super) async fn go_on(
    session: &mut Session<'_>,
    erasing: &ErasingAccount,
    step: ErasureStep,
    due_at: DateTime<Utc>,
) -> Result<(), LedgerError> {
    let number = ErasureStep::ALL.iter().position(|it| *it == step);
    let go_on = query(
        "UPDATE erasing_accounts SET step = $2, done = 0, due_at = $3, subject = NULL
         WHERE replacement = $1",
    );
    let go_on = go_on
        .bind(erasing.replacement)
        .bind(number.map_or(0, |number| number as u64 + 1))
        .bind(due_at);
    session.execute(go_on).await
}

/// The instant from which nothing counts in an account any more; `None` if nothing ever counted.
pub(super) async fn over(
    session: &mut Session<'_>,
    account: AccountId,
    margin: TimeDelta,
) -> Result<Option<DateTime<Utc>>, LedgerError> {
    let last = last_line(session, account).await?;
    let holds_end = session.one(query(HOLDS_END).bind(account)).await?;
    Ok(over_at(last.as_ref(), holds_end, margin))
}

pub(super) async fn last_line(
    session: &mut Session<'_>,
    account: AccountId,
) -> Result<Option<Line>, LedgerError> {
    session
        .first(query(LAST_LINE).bind(account), decode_line)
        .await
}

/// The next entries of an account to erase.
pub(super) async fn private_entries(
    session: &mut Session<'_>,
    erasing: &ErasingAccount,
) -> Result<Vec<PrivateEntry>, LedgerError> {
    let entries = query(PRIVATE)
        .bind(erasing.account)
        .bind(erasing.done)
        .bind(ENTRIES_MOST);
    session.all(entries, PrivateEntry::decode).await
}

pub(super) async fn keep_leaves_of_entries(
    session: &mut Session<'_>,
    erasing: &ErasingAccount,
    entries: &[PrivateEntry],
    owner: &AccountOwner,
) -> Result<(), LedgerError> {
    let leaves = entries
        .iter()
        .map(|entry| entry.leaf(erasing.account, owner));
    keep_leaves(session, owner.blind, leaves).await
}

/// Keeps the digests of the private parts of leaves. Each part is JSON.
async fn keep_leaves(
    session: &mut Session<'_>,
    blind: Uuid,
    leaves: impl Iterator<Item = (LeafId, String)>,
) -> Result<(), LedgerError> {
    let leaves = leaves.map(|(id, private)| {
        let digest = PrivatePart::new(blind, id, private).digest();
        hex(id.0.as_bytes()) + &hex(&digest)
    });
    let keep = query(KEEP_LEAVES).bind(leaves.collect::<Vec<String>>());
    session.execute(keep).await
}

/// Keeps the digests of an override's versions. Its texts can be erased then.
pub(super) async fn keep_leaves_of_override(
    session: &mut Session<'_>,
    account: AccountId,
    owner: &AccountOwner,
) -> Result<(), LedgerError> {
    let versions = query("SELECT revision, reason FROM override_versions WHERE account = $1");
    let leaf = |row: &StoredRow<'_>| {
        let reason: Option<String> = row.get("reason")?;
        let subject = owner.subject.as_deref();
        let private = override_private_json(account.0, reason.as_deref(), subject);
        Ok((LeafId::of_change(row.get("revision")?), private))
    };
    let leaves = session.all(versions.bind(account), leaf).await?;
    keep_leaves(session, owner.blind, leaves.into_iter()).await
}

/// An act that names a subject.
struct NamingAct {
    revision: u64,
    about: String,
    /// The text without the subject.
    erased: String,
    reason: Option<String>,
    blind: Uuid,
}

async fn naming_acts(
    session: &mut Session<'_>,
    subject: &Subject,
) -> Result<Vec<NamingAct>, LedgerError> {
    let text = serde_json::json!(subject.as_str()).to_string();
    let naming = query(NAMING_ACTS)
        .bind(text.trim_matches('"'))
        .bind(subject.as_str());
    let decode = |row: &StoredRow<'_>| {
        let about: String = row.get("about")?;
        let Some(erased) = without_subject(&about, subject) else {
            return Ok(None);
        };
        Ok(Some(NamingAct {
            revision: row.get("revision")?,
            about,
            erased,
            reason: row.get("reason")?,
            blind: row.get::<Option<Uuid>>("blind")?.unwrap_or_default(),
        }))
    };
    let found = session.all(naming, decode).await?;
    Ok(found.into_iter().flatten().collect())
}

async fn erase_from_act(session: &mut Session<'_>, act: &NamingAct) -> Result<(), LedgerError> {
    let private = act_private_json(&act.about, act.reason.as_deref());
    let leaf = (LeafId::of_change(act.revision), private);
    keep_leaves(session, act.blind, [leaf].into_iter()).await?;
    let erase = query(ERASE_ACT)
        .bind(act.revision)
        .bind(act.erased.as_str());
    session.execute(erase).await
}
