//! Seals.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::page::page;
use super::reading::flattened;

/// A checkpoint of the log of all entries and changes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SealBody {
    /// The name of the log: the first line of the note. A restart begins another log.
    #[schema(example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42")]
    pub origin: String,
    /// The positions up to this one are sealed.
    #[schema(example = 1842)]
    pub size: u64,
    /// The signed checkpoint (C2SP tlog-checkpoint). Keep a copy of it in another place.
    pub note: String,
    pub sealed_at: DateTime<Utc>,
}

/// The newest seal, and the public key that checks it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LatestSeal {
    #[serde(flatten, deserialize_with = "flattened")]
    pub seal: SealBody,
    /// The public key of this instance, for this log (C2SP signed-note). To check a seal, get the
    /// public key from another source, such as the person who made the key. Null at an instance that
    /// only reads and has no key.
    #[schema(
        example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    )]
    pub verifier_key: Option<String>,
}

page! {
    /// A page of seals.
    SealList of SealBody
    /// The cursor of the next page; null on the last page. It stays valid while seals are made.
}

/// The proof that a log only grew.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SealConsistency {
    #[schema(example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42")]
    pub origin: String,
    #[schema(example = 1842)]
    pub from: u64,
    #[schema(example = 2001)]
    pub to: u64,
    /// The hashes in Base64, in the order of RFC 6962, section 2.1.2.
    pub hashes: Vec<String>,
}
