//! API keys: their versions, and the hashes of their secrets.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::versions::{Accepted, Change, ChangeFilter, Changed, next_revision, nothing};
use crate::access::Ending;
use crate::boxed;
use crate::encoding::encode_names;
use crate::query::{Session, Texts, query};
use crate::row::{StoredRow, only};
use crate::{AdminTables, LedgerError};
use domain::key::{Key, KeyNumber, KeyRule, SupportBounds, UsedKey};

/// The hash of a key's secret.
pub type SecretHash = [u8; 32];

/// A version of a key, with the fields that are the same in all versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyVersion {
    pub key: Key,
    /// The number that entries store for the key.
    pub number: KeyNumber,
    /// The hash that recognises the secret.
    pub secret_hash: SecretHash,
}

/// A key and the key that takes its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyReplacement {
    /// The last version of the key that is replaced. It is a new version unless the key ends as early anyway.
    pub replaced: Key,
    /// The first version of the new key.
    pub key: Key,
}

fn decode_bounds(row: &StoredRow<'_>) -> Result<Option<SupportBounds>, LedgerError> {
    let text: Option<String> = row.get("bounds")?;
    let bounds = text.map(|text| serde_json::from_str(&text)).transpose();
    bounds.map_err(|error| LedgerError::Corrupt(format!("the bounds of a key: {error}")))
}

fn encode_bounds(bounds: &SupportBounds) -> String {
    serde_json::to_string(bounds).expect("two numbers are written as JSON")
}

fn decode(row: &StoredRow<'_>) -> Result<Key, LedgerError> {
    Ok(Key {
        id: row.get("id")?,
        version: row.get("version")?,
        rule: KeyRule {
            name: row.get("name")?,
            role: row.get("role")?,
            policies: row.get("policies")?,
            bounds: decode_bounds(row)?,
            ends_at: row.get("ends_at")?,
            revoked: row.get("revoked")?,
        },
        created_at: row.get("created_at")?,
        changed_at: row.get("changed_at")?,
        changed_by: row.get("changed_by")?,
        reason: row.get("reason")?,
    })
}

fn decode_used(row: &StoredRow<'_>) -> Result<UsedKey, LedgerError> {
    Ok(UsedKey {
        key: decode(row)?,
        last_used_on: row.get("last_used_on")?,
    })
}

fn decode_version(row: &StoredRow<'_>) -> Result<KeyVersion, LedgerError> {
    Ok(KeyVersion {
        key: decode(row)?,
        number: row.get("number")?,
        secret_hash: row.get("secret_hash")?,
    })
}

/// The changes of keys: see [`ChangeFilter::bind`]. A key belongs to no policy.
const HISTORY: &str = "SELECT listed.revision AS listed,
        k.id, k.number, k.secret_hash, k.created_at, v.version, v.name, v.role,
        v.policies, v.bounds, v.ends_at, v.revoked, v.changed_at, v.changed_by, v.reason
    FROM (
        SELECT key, version, revision FROM key_versions
        WHERE revision < $1 AND ($2 IS NULL OR changed_at >= $2) AND ($3 IS NULL OR changed_at < $3)
            AND ($6 IS NULL OR changed_by = $6) AND $5 IS NULL
        ORDER BY revision DESC LIMIT $4
    ) AS listed
    JOIN key_versions AS v ON v.key = listed.key
        AND v.version IN (listed.version, listed.version - 1)
    JOIN keys AS k ON k.id = v.key
    ORDER BY listed.revision DESC, v.version DESC";
/// Versions of keys, with the fields that are the same in all of them.
macro_rules! versions {
    ($which:literal) => {
        concat!(
            "SELECT k.id, k.number, k.secret_hash, k.created_at, v.version, v.name, v.role,
                v.policies, v.bounds, v.ends_at, v.revoked, v.changed_at, v.changed_by, v.reason
            FROM key_versions AS v JOIN keys AS k ON k.id = v.key
            WHERE ",
            $which
        )
    };
}

const BETWEEN: &str = versions!("v.revision > $1 AND v.revision <= $2 ORDER BY v.revision");
const LAST: &str = versions!("k.id = $1 ORDER BY v.version DESC LIMIT 1");
const OF_SECRET: &str = versions!("k.secret_hash = $1 ORDER BY v.version DESC LIMIT 1");
const SHOWN: &str =
    "SELECT k.id, k.created_at, v.version, v.name, v.role, v.policies, v.bounds, v.ends_at,
        v.revoked, v.changed_at, v.changed_by, v.reason,
        (SELECT MAX(used_on) FROM key_uses WHERE key = k.id) AS last_used_on
    FROM key_versions AS v JOIN keys AS k ON k.id = v.key
    WHERE k.id = $1 ORDER BY v.version DESC LIMIT 1";
const LISTED: &str =
    "SELECT k.id, k.created_at, v.version, v.name, v.role, v.policies, v.bounds, v.ends_at,
        v.revoked, v.changed_at, v.changed_by, v.reason,
        (SELECT MAX(used_on) FROM key_uses WHERE key = k.id) AS last_used_on
    FROM key_versions AS v JOIN keys AS k ON k.id = v.key
    WHERE k.id < $1 AND v.version = (SELECT MAX(version) FROM key_versions WHERE key = v.key)
    ORDER BY k.id DESC LIMIT $2";
const ANOTHER_ADMIN_STAYS: &str = "SELECT EXISTS (
     SELECT 1 FROM key_versions AS v
     WHERE v.key <> $1 AND v.role = 'admin' AND NOT v.revoked AND v.ends_at IS NULL
     AND v.version = (SELECT MAX(version) FROM key_versions WHERE key = v.key)
 )";

const ADD_VERSION: Texts = Texts {
    postgres: "INSERT INTO key_versions (key, version, revision, name, role, policies, bounds,
            ends_at, revoked, changed_at, changed_by, reason)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
    sqlite: "INSERT INTO key_versions (key, version, revision, name, role, policies, bounds,
            ends_at, revoked, changed_at, changed_by, reason, xact)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
            (SELECT COALESCE(MAX(xact), 0) FROM entries))",
};

impl AdminTables {
    /// Stores a new key.
    #[boxed]
    pub async fn add_key(&self, key: &Key, secret_hash: &SecretHash) -> Result<(), LedgerError> {
        self.ledger
            .edit(async |mut session| {
                let revision = next_revision(&mut session).await?;
                insert_key(&mut session, key, secret_hash, revision).await?;
                Ok(Ending::Commit(()))
            })
            .await
    }

    /// Stores the first key of a ledger. Returns false if there is a key already, also if another
    /// instance was first.
    #[boxed]
    pub async fn add_first_key(
        &self,
        key: &Key,
        secret_hash: &SecretHash,
    ) -> Result<bool, LedgerError> {
        self.ledger
            .edit(async |mut session| {
                let revision = next_revision(&mut session).await?;
                let any = query("SELECT EXISTS (SELECT 1 FROM keys)");
                if session.one(any).await? {
                    return Ok(Ending::Rollback(false));
                }
                insert_key(&mut session, key, secret_hash, revision).await?;
                Ok(Ending::Commit(true))
            })
            .await
    }

    /// Changes a key as `decide` says. `decide` gets the last version while no other change is
    /// possible, and whether another lasting admin key would remain. The outer error is the
    /// ledger's, the inner one is `decide`'s. On both, and in a dry run, nothing is changed.
    pub async fn edit_key<E: Send>(
        &self,
        id: Uuid,
        changed_by: &str,
        changed_at: DateTime<Utc>,
        dry_run: bool,
        decide: impl Fn(Option<&Key>, bool) -> Result<Change<KeyRule>, E> + Send + Sync,
    ) -> Result<Result<Key, E>, LedgerError> {
        let edited = self.change(
            dry_run,
            async |session: &mut Session<'_>| {
                let another = query(ANOTHER_ADMIN_STAYS).bind(id);
                Ok((last_key(session, id).await?, session.one(another).await?))
            },
            |before, another_admin_stays| decide(before, *another_admin_stays),
            async |session: &mut Session<'_>, before, _, accepted| {
                let Accepted {
                    revision,
                    terms,
                    reason,
                } = accepted;
                let before = before.cloned().ok_or_else(nothing)?;
                let after = Key {
                    version: before.version + 1,
                    rule: terms,
                    changed_at,
                    changed_by: changed_by.to_owned(),
                    reason,
                    ..before
                };
                insert_version(session, &after, revision).await?;
                Ok(after)
            },
        );
        Ok(edited.await?.map(|edited| edited.after))
    }

    /// Replaces a key as `decide` says, in one transaction. `decide` gets the last version of the key while no
    /// other change is possible. The new key comes first, so at every revision there is a key that works. The
    /// errors and the dry run are those of [`AdminTables::edit_key`].
    pub async fn replace_key<E: Send>(
        &self,
        id: Uuid,
        secret_hash: &SecretHash,
        dry_run: bool,
        decide: impl FnOnce(Option<&Key>) -> Result<KeyReplacement, E> + Send,
    ) -> Result<Result<KeyReplacement, E>, LedgerError> {
        self.ledger
            .edit(async |mut session| {
                let revision = next_revision(&mut session).await?;
                let before = last_key(&mut session, id).await?;
                let replacement = match decide(before.as_ref()) {
                    Ok(replacement) => replacement,
                    Err(error) => return Ok(Ending::Rollback(Err(error))),
                };
                insert_key(&mut session, &replacement.key, secret_hash, revision).await?;
                if before.as_ref() != Some(&replacement.replaced) {
                    let revision = next_revision(&mut session).await?;
                    insert_version(&mut session, &replacement.replaced, revision).await?;
                }
                Ok(if dry_run {
                    Ending::Rollback(Ok(replacement))
                } else {
                    Ending::Commit(Ok(replacement))
                })
            })
            .await
    }

    /// Stores the next version of the key with a secret, or the first one, as `decide` says. `decide` gets the
    /// last version while no other change is possible, and whether another lasting admin key would remain. The
    /// inner error is that of `decide`; then nothing is changed.
    pub async fn keep_key<E: Send>(
        &self,
        secret_hash: &SecretHash,
        decide: impl FnOnce(Option<&Key>, bool) -> Result<Key, E> + Send,
    ) -> Result<Result<Key, E>, LedgerError> {
        self.ledger
            .edit(async |mut session| {
                let revision = next_revision(&mut session).await?;
                let of_secret = query(OF_SECRET).bind(secret_hash.as_slice());
                let before = session.first(of_secret, decode).await?;
                let id = before.as_ref().map_or(Uuid::nil(), |key| key.id);
                let another_admin_stays = session.one(query(ANOTHER_ADMIN_STAYS).bind(id)).await?;
                let key = match decide(before.as_ref(), another_admin_stays) {
                    Ok(key) => key,
                    Err(error) => return Ok(Ending::Rollback(Err(error))),
                };
                match before {
                    Some(_) => insert_version(&mut session, &key, revision).await?,
                    None => insert_key(&mut session, &key, secret_hash, revision).await?,
                }
                Ok(Ending::Commit(Ok(key)))
            })
            .await
    }

    /// The versions of keys after a revision and up to another, in order.
    #[boxed]
    pub async fn keys_between(
        &self,
        after: u64,
        up_to: u64,
    ) -> Result<Vec<KeyVersion>, LedgerError> {
        self.between(BETWEEN, after, up_to, decode_version).await
    }

    pub(super) async fn key_history(
        &self,
        filter: &ChangeFilter,
        limit: u32,
    ) -> Result<Vec<Changed<Key>>, LedgerError> {
        self.history(filter.bind(HISTORY, limit), decode).await
    }

    /// The number that entries store for a key.
    #[boxed]
    pub async fn key_number(&self, id: Uuid) -> Result<Option<KeyNumber>, LedgerError> {
        let number = query("SELECT number FROM keys WHERE id = $1").bind(id);
        self.ledger.reads().await?.lend().first(number, only).await
    }

    /// Who made a key.
    #[boxed]
    pub async fn key_maker(&self, id: Uuid) -> Result<Option<String>, LedgerError> {
        let maker = query("SELECT changed_by FROM key_versions WHERE key = $1 AND version = 1");
        let mut reads = self.ledger.reads().await?;
        reads.lend().first(maker.bind(id), only).await
    }

    /// A key's last version, and its last use.
    #[boxed]
    pub async fn key(&self, id: Uuid) -> Result<Option<UsedKey>, LedgerError> {
        let shown = query(SHOWN).bind(id);
        self.ledger
            .reads()
            .await?
            .lend()
            .first(shown, decode_used)
            .await
    }

    /// The last versions of the keys below an id, newest key first, at most `limit`.
    #[boxed]
    pub async fn keys(&self, before: Uuid, limit: u32) -> Result<Vec<UsedKey>, LedgerError> {
        let keys = query(LISTED).bind(before).bind(limit);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(keys, decode_used)
            .await
    }
}

async fn last_key(session: &mut Session<'_>, id: Uuid) -> Result<Option<Key>, LedgerError> {
    session.first(query(LAST).bind(id), decode).await
}

async fn insert_key(
    session: &mut Session<'_>,
    key: &Key,
    secret_hash: &SecretHash,
    revision: i64,
) -> Result<(), LedgerError> {
    let insert = query(
        "INSERT INTO keys (id, number, secret_hash, created_at)
         VALUES ($1, (SELECT COALESCE(MAX(number), 0) + 1 FROM keys), $2, $3)",
    )
    .bind(key.id)
    .bind(secret_hash.as_slice())
    .bind(key.created_at);
    session.execute(insert).await?;
    insert_version(session, key, revision).await
}

async fn insert_version(
    session: &mut Session<'_>,
    key: &Key,
    revision: i64,
) -> Result<(), LedgerError> {
    let insert = query(ADD_VERSION)
        .bind(key.id)
        .bind(key.version)
        .bind(revision)
        .bind(key.rule.name.as_str())
        .bind(key.rule.role.as_str())
        .bind(key.rule.policies.as_deref().map(encode_names))
        .bind(key.rule.bounds.as_ref().map(encode_bounds))
        .bind(key.rule.ends_at)
        .bind(key.rule.revoked)
        .bind(key.changed_at)
        .bind(key.changed_by.as_str())
        .bind(key.reason.as_deref());
    session.execute(insert).await
}
