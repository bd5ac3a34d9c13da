//! A person, as the provider's claims describe them.

use super::settings::{RoleOfGroup, SignOnSettings};
use super::token::TokenClaims;

const PURPOSE: &str = "perdiem 2026-11-28 keys of persons";
/// The length of a seed: as many random bytes as the secret of a key has.
pub const SEED_LENGTH: usize = 20;

/// Somebody who signed in.
#[derive(Debug)]
pub struct Person {
    /// The address of mail, or what the provider calls them.
    pub name: String,
    /// The role of their first group that has one; `None` for a person who may not use perdiem.
    pub role: Option<RoleOfGroup>,
    /// Who signed them in.
    pub issuer: String,
    /// The same at each sign-in, and secret: it comes from the secret of the client, which the ledger does
    /// not have.
    pub seed: [u8; SEED_LENGTH],
}

impl Person {
    pub(super) fn of(claims: &TokenClaims, settings: &SignOnSettings) -> Self {
        let groups = claims.groups(&settings.groups_claim).unwrap_or_default();
        let mut roles = settings.roles.iter();
        Self {
            name: claims.name(),
            role: roles.find(|role| groups.contains(&&*role.group)).cloned(),
            issuer: settings.issuer.clone(),
            seed: seed(settings, claims.subject()),
        }
    }
}

fn seed(settings: &SignOnSettings, subject: &str) -> [u8; SEED_LENGTH] {
    let key = blake3::derive_key(PURPOSE, settings.client_secret.as_bytes());
    let mut hasher = blake3::Hasher::new_keyed(&key);
    for part in [&settings.issuer, &settings.client_id, subject] {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    let mut seed = [0; SEED_LENGTH];
    hasher.finalize_xof().fill(&mut seed);
    seed
}
