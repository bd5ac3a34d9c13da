//! Who may use the API: keys, of which only hashes are kept.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::BuildError;
use crate::domain::key::Role;
use crate::domain::policy::PolicyName;
use crate::ledger::{KeyRecord, Ledger};

/// The shortest admin key that is taken from the settings, in characters.
pub const SECRET_LEAST: usize = 16;

const PREFIX: &str = "perdiem_";
/// The name under which changes made with the key from the settings are kept.
const KEY_OF_SETTINGS: &str = "PERDIEM_ADMIN_KEY";
const ADMIN: &str = "admin";

/// Who a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The key's id, or where it was set. Stands beside the changes that it makes.
    pub key: Arc<str>,
    /// What the key is for.
    pub role: Role,
    /// The policies that it is confined to; `None` for all.
    pub policies: Option<Arc<[PolicyName]>>,
}

impl Principal {
    fn admin(key: Arc<str>) -> Self {
        Self {
            key,
            role: Role::Admin,
            policies: None,
        }
    }

    /// Whether a policy is among those that the key may be used for.
    pub fn may_use(&self, policy: &PolicyName) -> bool {
        let confined_to = self.policies.as_deref();
        confined_to.is_none_or(|policies| policies.contains(policy))
    }
}

/// The keys that are accepted, by the hashes of their secrets.
///
/// A look-up by hash tells nothing of a secret through its time: who guesses a secret cannot
/// choose its hash.
pub struct Access(HashMap<blake3::Hash, Principal>);

impl Access {
    /// Reads the keys. A ledger without any, on an instance that was given none, gets its
    /// first, whose secret is returned.
    ///
    /// # Errors
    /// [`BuildError::WeakAdminKey`] or [`BuildError::Read`].
    pub async fn open(
        ledger: &Ledger,
        admin_key: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<(Self, Option<String>), BuildError> {
        let mut secret = None;
        if admin_key.is_none() {
            let new_secret = generate_secret();
            let key = KeyRecord {
                id: new_id(now),
                name: ADMIN.to_owned(),
                role: ADMIN.to_owned(),
                secret_hash: *blake3::hash(new_secret.as_bytes()).as_bytes(),
                created_at: now,
            };
            if ledger.add_first_key(&key).await.map_err(BuildError::Read)? {
                secret = Some(new_secret);
            }
        }
        let keys = ledger.keys().await.map_err(BuildError::Read)?;
        let mut accepted: HashMap<blake3::Hash, Principal> = keys
            .into_iter()
            .map(|key| {
                let principal = Principal::admin(key.id.to_string().into());
                (blake3::Hash::from_bytes(key.secret_hash), principal)
            })
            .collect();
        if let Some(admin_key) = admin_key {
            if admin_key.chars().count() < SECRET_LEAST {
                return Err(BuildError::WeakAdminKey);
            }
            let principal = Principal::admin(KEY_OF_SETTINGS.into());
            accepted.insert(blake3::hash(admin_key.as_bytes()), principal);
        }
        Ok((Self(accepted), secret))
    }

    /// Whose secret it is.
    pub fn authenticate(&self, secret: &str) -> Option<Principal> {
        self.0.get(&blake3::hash(secret.as_bytes())).cloned()
    }
}

/// A new UUIDv7.
pub fn new_id(now: DateTime<Utc>) -> Uuid {
    let mut random = [0; 10];
    getrandom::fill(&mut random).expect("the system has randomness");
    let millis = now.timestamp_millis().cast_unsigned();
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

/// A new secret: a prefix that scanners recognise, 160 random bits and a checksum of 32 bits,
/// in hexadecimal.
pub fn generate_secret() -> String {
    let mut random = [0; 20];
    getrandom::fill(&mut random).expect("the system has randomness");
    let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let body = format!("{PREFIX}{random}");
    let checksum = blake3::hash(body.as_bytes()).to_hex();
    format!("{body}{}", &checksum[..8])
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
}
