//! The versions of a policy, as the server has them.

use anyhow::Context;
use serde_json::Value;

use super::ServerArgs;
use super::client::{all_items, read};
use super::policies::path_of;
use api::policies::PolicyAnswer;

/// A version as the server answered it: as it came, and in its type.
pub struct KnownVersion {
    pub json: Value,
    pub version: PolicyAnswer,
}

/// The versions that are still to take effect, in this order.
pub async fn scheduled(
    server: &ServerArgs,
    newest: &PolicyAnswer,
) -> anyhow::Result<Vec<PolicyAnswer>> {
    let in_force = newest.in_force_version.unwrap_or(newest.version);
    if in_force == newest.version {
        return Ok(Vec::new());
    }
    let mut later: Vec<PolicyAnswer> = Vec::new();
    for known in all_versions(server, &newest.name).await? {
        let version = known.version;
        // A version that a higher one replaces before its time never takes effect.
        let is_replaced = |higher: &PolicyAnswer| higher.effective_at <= version.effective_at;
        if version.version > in_force && !later.iter().any(is_replaced) {
            later.push(version);
        }
    }
    later.reverse();
    Ok(later)
}

pub fn versions_of(policy: &str) -> String {
    format!("{}/versions?limit=1000", path_of(policy))
}

/// All versions of a policy, newest first.
pub async fn all_versions(server: &ServerArgs, policy: &str) -> anyhow::Result<Vec<KnownVersion>> {
    let items = all_items(server, &versions_of(policy)).await?;
    let known = items.into_iter().map(|json| {
        let version = read(&json)?;
        Ok(KnownVersion { json, version })
    });
    known.collect()
}

/// A version of a policy, as it came.
pub async fn version(server: &ServerArgs, policy: &str, number: u32) -> anyhow::Result<Value> {
    let versions = all_versions(server, policy).await?;
    Ok(find(&versions, policy, number)?.json.clone())
}

pub fn find<'v>(
    versions: &'v [KnownVersion],
    policy: &str,
    number: u32,
) -> anyhow::Result<&'v KnownVersion> {
    let mut found = versions.iter();
    let found = found.find(|known| known.version.version == number);
    found.with_context(|| {
        format!("{policy} has no version {number}: see `perdiem policy versions {policy}`")
    })
}
