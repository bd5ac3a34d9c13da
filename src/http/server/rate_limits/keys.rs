//! The `Idempotency-Key` of each claim of a question. It is made of the key of the question and of the subject, so
//! that a question is the same again if its descriptors come in another order, or one of them is missing.

use sha2::{Digest, Sha256};

use super::question::AskedClaim;
use crate::answer::ApiError;
use domain::claim::IdempotencyKey;
use domain::seal::leaf::hex;

/// The key of each claim.
///
/// # Errors
/// [`ApiError::Invalid`] for an empty key.
pub fn keys(
    of_question: Option<&[u8]>,
    claims: &[&AskedClaim],
) -> Result<Vec<Option<IdempotencyKey>>, ApiError> {
    let Some(of_question) = of_question else {
        return Ok(vec![None; claims.len()]);
    };
    if of_question.is_empty() {
        return Err(ApiError::invalid_body(
            "/idempotency_key",
            "the key is empty: let the proxy send a value",
        ));
    }
    let key = |(index, claim): (usize, &&AskedClaim)| {
        let is_same =
            |other: &&&AskedClaim| other.policy == claim.policy && other.subject == claim.subject;
        let before = claims[..index].iter().filter(is_same).count();
        let mut hash = Sha256::new();
        hash.update(of_question);
        hash.update([0]);
        hash.update(claim.subject.as_deref().unwrap_or_default());
        hash.update([0]);
        hash.update(before.to_le_bytes());
        let key = IdempotencyKey::parse(&format!("rate-limit-{}", hex(&hash.finalize())));
        key.map_err(|error| ApiError::invalid_body("/idempotency_key", error))
    };
    let keys = claims.iter().enumerate().map(key);
    keys.map(|key| key.map(Some)).collect()
}
