//! API keys: their versions, and the hashes of their secrets.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Ledger, LedgerError, store};
use crate::domain::key::{Key, KeyNumber, KeyRule};

/// The hash of a key's secret.
pub type SecretHash = [u8; 32];

/// A version of a key, and what does not change with versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyVersion {
    /// The version.
    pub key: Key,
    /// What entries keep of the key.
    pub number: KeyNumber,
    /// What recognises its secret.
    pub secret_hash: SecretHash,
}

/// What a change makes of a key.
#[derive(Debug)]
pub enum KeyChange {
    /// Nothing: it is so already.
    Keep,
    /// A new version.
    Version {
        /// What it says.
        rule: KeyRule,
        /// Why.
        reason: Option<String>,
    },
}

impl Ledger {
    /// Keeps a new key.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn add_key(&self, key: &Key, secret_hash: &SecretHash) -> Result<(), LedgerError> {
        store!(self, store => store.add_key(key, secret_hash).await)
    }

    /// Keeps the first key of a ledger. False when there is a key already, also when another
    /// instance was there first.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn add_first_key(
        &self,
        key: &Key,
        secret_hash: &SecretHash,
    ) -> Result<bool, LedgerError> {
        store!(self, store => store.add_first_key(key, secret_hash).await)
    }

    /// Changes a key as `decide` says, from the version that stands when no other change can
    /// come between, and from whether another admin key would stay for good. The outer error
    /// is the ledger's, the inner one is `decide`'s, and on both nothing was changed.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn edit_key<E: Send>(
        &self,
        id: Uuid,
        changed_by: &str,
        changed_at: DateTime<Utc>,
        decide: impl Fn(Option<&Key>, bool) -> Result<KeyChange, E> + Send + Sync,
    ) -> Result<Result<Key, E>, LedgerError> {
        store!(self, store => store.edit_key(id, changed_by, changed_at, decide).await)
    }

    /// The versions of keys that came after a revision and up to another, in order.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn keys_between(
        &self,
        after: u64,
        up_to: u64,
    ) -> Result<Vec<KeyVersion>, LedgerError> {
        store!(self, store => store.keys_between(after, up_to).await)
    }

    /// A key's last version.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn key(&self, id: Uuid) -> Result<Option<Key>, LedgerError> {
        store!(self, store => store.key(id).await)
    }

    /// The last versions of the keys below an id, newest key first, at most `limit`.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn keys(&self, before: Uuid, limit: u32) -> Result<Vec<Key>, LedgerError> {
        store!(self, store => store.keys(before, limit).await)
    }
}
