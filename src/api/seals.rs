//! Seals.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::page::page;
use super::reading::flattened;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SealBody {
    /// The first line of the note. A restart begins another log.
    #[schema(example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42")]
    pub origin: String,
    /// The positions up to this one are sealed.
    #[schema(example = 1842)]
    pub size: u64,
    /// The signed checkpoint (C2SP tlog-checkpoint). Keep a copy of it in another place.
    #[schema(
        example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42\n1842\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n— …\n"
    )]
    pub note: String,
    pub sealed_at: DateTime<Utc>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LatestSeal {
    #[serde(flatten, deserialize_with = "flattened")]
    pub seal: SealBody,
    /// The public key of this instance (C2SP signed-note). To check a seal, get the key from another source,
    /// such as the person who made it.
    #[schema(
        example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    )]
    pub verifier_key: Option<String>,
}

page!(SealList of SealBody);

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SealConsistency {
    #[schema(example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42")]
    pub origin: String,
    #[schema(example = 1842)]
    pub from: u64,
    #[schema(example = 2001)]
    pub to: u64,
    /// In Base64, in the order of RFC 6962, section 2.1.2.
    #[schema(example = json!(["47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="]))]
    pub hashes: Vec<String>,
}
