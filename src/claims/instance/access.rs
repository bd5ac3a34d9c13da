//! The API keys, as this instance knows them, so that a request does not read the ledger. Only
//! hashes of the secrets are stored.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use chrono::{DateTime, Utc};
use tokio::sync::watch;
use uuid::Uuid;

use super::last_use::LastUse;
use super::sign_ins::SignIns;
use domain::key::{Key, KeyNumber, KeyRule, Role, SupportBounds};
use domain::policy::PolicyName;
use domain::seal::leaf::hex;
use ledger::{AdminTables, KeyUse, KeyVersion, LedgerError, SecretHash};

/// The shortest admin key in the settings, in characters.
const SECRET_LEAST: usize = 16;

const PREFIX: &str = "perdiem_";
const RANDOM_DIGITS: usize = 40;
/// The number of random bytes in a secret.
pub const SEED_LENGTH: usize = RANDOM_DIGITS / 2;
const CHECKSUM_DIGITS: usize = 8;
/// The name that changes with the key of the settings are recorded under.
pub const KEY_OF_SETTINGS: &str = "PERDIEM_ADMIN_KEY";
/// The name of the first key of a ledger, and its creator.
const FIRST_KEY: &str = "admin";
const FIRST_START: &str = PERDIEM;
/// Who changed what no key changed.
pub const PERDIEM: &str = "perdiem";

/// The key that a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The id of the key, or the name of its setting. Changes that the key makes are recorded with
    /// it.
    pub key: Arc<str>,
    /// The number of the key. Entries store this number.
    pub number: KeyNumber,
    pub role: Role,
    /// The policies that the key is limited to; `None` for all.
    pub policies: Option<Arc<[PolicyName]>>,
    /// How far a support key may go.
    pub bounds: Option<SupportBounds>,
    /// The hash of the secret, to find the key again.
    secret: blake3::Hash,
}

impl Principal {
    /// Whether the key may be used for a policy.
    pub fn may_use(&self, policy: &PolicyName) -> bool {
        let confined_to = self.policies.as_deref();
        confined_to.is_none_or(|policies| policies.contains(policy))
    }
}

/// What a caller may know about its own key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnKey {
    /// `None` for the key of the settings, which the ledger does not have.
    pub id: Option<Uuid>,
    pub name: String,
    pub role: Role,
    /// The policies that the key is confined to; `None` for all.
    pub policies: Option<Arc<[PolicyName]>>,
    /// How far a support key may go.
    pub bounds: Option<SupportBounds>,
    /// From this instant on the key is not accepted.
    pub ends_at: Option<DateTime<Utc>>,
}

/// Why the admin key of the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AdminKeyError {
    /// The key is too short to be a secret.
    #[error(
        "PERDIEM_ADMIN_KEY has fewer than {SECRET_LEAST} characters: write a longer key, such as \
         the output of `openssl rand -hex 24`"
    )]
    Weak,
    /// No client could send the key in a header.
    #[error(
        "PERDIEM_ADMIN_KEY has a space, a control character or a character outside of ASCII, which \
         an Authorization header cannot carry: write another key, such as the output of \
         `openssl rand -hex 24`"
    )]
    Unfit,
}

pub struct AdminKey {
    principal: Principal,
}

impl AdminKey {
    /// The key with this secret. Blanks around the secret are ignored.
    ///
    /// # Errors
    /// [`AdminKeyError`].
    pub fn new(secret: &str) -> Result<Self, AdminKeyError> {
        let secret = secret.trim();
        if secret.chars().count() < SECRET_LEAST {
            return Err(AdminKeyError::Weak);
        }
        if !secret.chars().all(|character| character.is_ascii_graphic()) {
            return Err(AdminKeyError::Unfit);
        }
        let principal = Principal {
            key: KEY_OF_SETTINGS.into(),
            number: KeyNumber::OF_SETTINGS,
            role: Role::Admin,
            policies: None,
            bounds: None,
            secret: blake3::hash(secret.as_bytes()),
        };
        Ok(Self { principal })
    }
}

/// The meaning of a secret at this instance.
#[derive(Debug)]
pub enum Recognition {
    Valid(Principal),
    /// The text was never a secret, or its key is revoked.
    Wrong,
    /// The key is unknown here or has ended. Another instance may have created it, or changed its
    /// end.
    Unknown,
}

/// The keys, by the hashes of their secrets.
///
/// Hashes are compared in constant time (`==` of `blake3::Hash`). The time of a look-up by hash
/// reveals nothing: an attacker who guesses a secret cannot choose its hash.
pub struct Access {
    ledger: AdminTables,
    pub sign_ins: SignIns,
    /// Sign-ins with an account that have begun.
    pub attempts: SignIns,
    of_settings: Option<AdminKey>,
    known: ArcSwap<HashMap<blake3::Hash, Arc<CachedKey>>>,
    /// Every change up to this revision is known.
    revision: AtomicU64,
    /// Notified when keys have changed here.
    changed: watch::Sender<()>,
}

/// The newest known version of a key.
struct CachedKey {
    key: Key,
    principal: Principal,
    /// All versions of a key share it.
    last_use: Arc<LastUse>,
}

impl Access {
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn open(
        ledger: AdminTables,
        of_settings: Option<AdminKey>,
    ) -> Result<Arc<Self>, LedgerError> {
        let access = Self {
            sign_ins: SignIns::of_keys(ledger.identity()),
            attempts: SignIns::of_attempts(ledger.identity()),
            ledger,
            of_settings,
            known: ArcSwap::default(),
            revision: AtomicU64::new(0),
            changed: watch::Sender::default(),
        };
        let revision = access.ledger.revision().await?;
        access.refresh(revision).await?;
        Ok(Arc::new(access))
    }

    /// Whether no key is known. A key is never deleted, so the ledger is not read again.
    pub fn needs_first_key(&self) -> bool {
        self.of_settings.is_none() && self.known.load().is_empty()
    }

    /// Creates an admin key for a ledger without keys. Returns whether it did: another instance can
    /// be first.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn add_first_key(
        &self,
        secret: &str,
        now: DateTime<Utc>,
    ) -> Result<bool, LedgerError> {
        let rule = KeyRule {
            name: FIRST_KEY.to_owned(),
            role: Role::Admin,
            policies: None,
            bounds: None,
            ends_at: None,
            revoked: false,
        };
        let key = first_version(rule, None, FIRST_START, now);
        let added = self.ledger.add_first_key(&key, &hash(secret)).await?;
        if !added {
            return Ok(false);
        }
        // Nobody could read the secret again, so a failure here must not stop the start. The next
        // poll reads the key.
        if let Ok(revision) = self.ledger.revision().await {
            let _ = self.refresh(revision).await;
        }
        Ok(true)
    }

    /// Whether the settings of this instance have an admin key.
    pub fn has_key_of_settings(&self) -> bool {
        self.of_settings.is_some()
    }

    /// The owner of a secret, as far as this instance knows. A key that is valid was used then, also
    /// where the request is refused afterwards, for its role or for anything else.
    pub fn authenticate(&self, secret: &str, now: DateTime<Utc>) -> Recognition {
        let hash = blake3::hash(secret.as_bytes());
        if let Some(of_settings) = &self.of_settings
            && of_settings.principal.secret == hash
        {
            return Recognition::Valid(of_settings.principal.clone());
        }
        match self.known.load().get(&hash) {
            Some(known) if known.key.rule.is_valid(now) => {
                known.last_use.note(now);
                Recognition::Valid(known.principal.clone())
            }
            // A revoked key stays revoked.
            Some(known) if known.key.rule.revoked => Recognition::Wrong,
            Some(_) => Recognition::Unknown,
            None if is_whole(secret) => Recognition::Unknown,
            None => Recognition::Wrong,
        }
    }

    /// Reads the changes up to a revision.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn refresh(&self, revision: u64) -> Result<(), LedgerError> {
        let known = self.revision.load(Ordering::SeqCst);
        if revision > known {
            self.learn(self.ledger.keys_between(known, revision).await?);
            self.revision.fetch_max(revision, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Reads all keys up to a revision, and forgets all others.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn read_all(&self, revision: u64) -> Result<(), LedgerError> {
        let versions = self.known_keys(self.ledger.keys_between(0, revision).await?);
        self.known.store(Arc::new(versions.into_iter().collect()));
        self.revision.store(revision, Ordering::SeqCst);
        self.changed.send_replace(());
        Ok(())
    }

    /// Whether a key is valid and still has the rights of a principal.
    pub fn still_has(&self, principal: &Principal, now: DateTime<Utc>) -> bool {
        if principal.number == KeyNumber::OF_SETTINGS {
            return true;
        }
        let known = self.known.load();
        let known = known.get(&principal.secret);
        known.is_some_and(|known| known.key.rule.is_valid(now) && known.principal == *principal)
    }

    /// What the caller may know about its own key: that which this instance acts on, so it needs no
    /// ledger. `None` if this instance does not know the key any more.
    pub fn own_key(&self, principal: &Principal) -> Option<OwnKey> {
        if principal.number == KeyNumber::OF_SETTINGS {
            return Some(OwnKey {
                id: None,
                name: KEY_OF_SETTINGS.to_owned(),
                role: principal.role,
                policies: principal.policies.clone(),
                bounds: None,
                ends_at: None,
            });
        }
        let known = self.known.load();
        let Key { id, rule, .. } = &known.get(&principal.secret)?.key;
        Some(OwnKey {
            id: Some(*id),
            name: rule.name.clone(),
            role: rule.role,
            policies: rule.policies.clone(),
            bounds: rule.bounds,
            ends_at: rule.ends_at,
        })
    }

    /// Whether the key of a principal has an end.
    pub fn has_end(&self, principal: &Principal) -> bool {
        let known = self.known.load();
        let known = known.get(&principal.secret);
        known.is_some_and(|known| known.key.rule.ends_at.is_some())
    }

    /// Tells of every later change of a key.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Adds versions that are newer than the known versions.
    fn learn(&self, versions: Vec<KeyVersion>) {
        let versions = self.known_keys(versions);
        if versions.is_empty() {
            return;
        }
        self.known.rcu(|known| {
            let mut next = HashMap::clone(known);
            for (hash, version) in &versions {
                let newer = next
                    .get(hash)
                    .is_none_or(|known| known.key.version < version.key.version);
                if newer {
                    next.insert(*hash, version.clone());
                }
            }
            next
        });
        self.changed.send_replace(());
    }

    fn known_keys(&self, versions: Vec<KeyVersion>) -> Vec<(blake3::Hash, Arc<CachedKey>)> {
        let before = self.known.load();
        let known = |version: KeyVersion| {
            let hash = blake3::Hash::from_bytes(version.secret_hash);
            // A use that is not written yet must outlive a change of the key.
            let last_use = before.get(&hash).map(|known| known.last_use.clone());
            let last_use = last_use.unwrap_or_default();
            let known = CachedKey::new(version.key, version.number, hash, last_use);
            (hash, Arc::new(known))
        };
        versions.into_iter().map(known).collect()
    }

    /// The last uses of keys that are not written yet.
    pub fn unwritten_uses(&self) -> Vec<(KeyUse, Arc<LastUse>)> {
        let known = self.known.load();
        let unwritten = known.values().filter_map(|known| {
            let used_on = known.last_use.unwritten()?;
            let key = known.key.id;
            Some((KeyUse { key, used_on }, known.last_use.clone()))
        });
        unwritten.collect()
    }
}

impl CachedKey {
    fn new(key: Key, number: KeyNumber, secret: blake3::Hash, last_use: Arc<LastUse>) -> Self {
        let principal = Principal {
            key: key.id.to_string().into(),
            number,
            role: key.rule.role,
            policies: key.rule.policies.clone(),
            bounds: key.rule.bounds,
            secret,
        };
        Self {
            key,
            principal,
            last_use,
        }
    }
}

/// A hash for a text that belongs to the key of a principal.
pub fn proof(principal: &Principal, text: &str) -> blake3::Hash {
    let key = blake3::derive_key(
        "perdiem 2026-11-28 proofs of a key",
        principal.secret.as_bytes(),
    );
    blake3::keyed_hash(&key, text.as_bytes())
}

pub fn first_version(
    rule: KeyRule,
    reason: Option<String>,
    made_by: &str,
    now: DateTime<Utc>,
) -> Key {
    Key {
        id: new_id(now),
        version: 1,
        rule,
        created_at: now,
        changed_at: now,
        changed_by: made_by.to_owned(),
        reason,
    }
}

/// The hash that is stored of a secret.
pub fn hash(secret: &str) -> SecretHash {
    *blake3::hash(secret.as_bytes()).as_bytes()
}

pub fn new_id(now: DateTime<Utc>) -> Uuid {
    let mut random = [0; 10];
    getrandom::fill(&mut random).expect("the system has randomness");
    let millis = now.timestamp_millis().cast_unsigned();
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

/// A new secret: a prefix that scanners recognise, 160 random bits and a checksum of 32 bits, in
/// hexadecimal.
pub fn generate_secret() -> String {
    let mut random = [0; SEED_LENGTH];
    getrandom::fill(&mut random).expect("the system has randomness");
    secret_of(&random)
}

/// The secret with these bits, which nobody else may know.
pub fn secret_of(random: &[u8; SEED_LENGTH]) -> String {
    let body = format!("{PREFIX}{}", hex(random));
    let checksum = checksum(&body);
    format!("{body}{checksum}")
}

fn checksum(body: &str) -> String {
    blake3::hash(body.as_bytes()).to_hex()[..CHECKSUM_DIGITS].to_owned()
}

/// Whether a text has the form of [`generate_secret`]. A text without it was never a secret, or has
/// a typing error, and needs no look-up.
fn is_whole(secret: &str) -> bool {
    let split = secret.len().checked_sub(CHECKSUM_DIGITS);
    let parts = split.and_then(|split| secret.split_at_checked(split));
    parts.is_some_and(|(body, rest)| {
        body.len() == PREFIX.len() + RANDOM_DIGITS
            && body.starts_with(PREFIX)
            && rest == checksum(body)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_recognisable_and_differ() {
        let secret = generate_secret();
        assert!(secret.starts_with("perdiem_"));
        assert_eq!(secret.len(), 8 + 40 + 8);
        assert_ne!(secret, generate_secret());
    }

    #[test]
    fn a_secret_shows_by_itself_that_it_is_whole() {
        let secret = generate_secret();
        assert!(is_whole(&secret));
        for index in 0..secret.len() {
            let mut wrong = secret.clone().into_bytes();
            wrong[index] = if wrong[index] == b'0' { b'1' } else { b'0' };
            assert!(!is_whole(&String::from_utf8(wrong).unwrap()), "{index}");
            assert!(!is_whole(&secret[..index]));
        }
        let upper = secret.to_uppercase();
        for wrong in ["", "perdiem_", "ü", "perdiem_ü0000000", upper.as_str()] {
            assert!(!is_whole(wrong), "{wrong}");
        }
        assert!(!is_whole(&format!("{secret}0")));
    }
}
