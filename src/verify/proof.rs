//! Proofs that an entry or a change is in a log.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use serde_json::json;

use domain::seal::note::VerifierKey;
use domain::seal::proof::LogProof;

/// Checks a .tlog-proof, and tells what it proves.
///
/// # Errors
/// The file cannot be read, or proves nothing.
pub fn check_proof(file: &Path, key: &VerifierKey) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(file);
    let text = text.with_context(|| format!("{} cannot be read", file.display()))?;
    let proof = LogProof::parse(&text);
    let proof = proof.with_context(|| format!("{}", file.display()))?;
    let proven = proof.check(key);
    let proven = proven.with_context(|| format!("{}", file.display()))?;
    let checkpoint = &proof.checkpoint;
    let not_known = || {
        format!(
            "{}: the leaf is of another version of perdiem",
            file.display()
        )
    };
    let leaf: AnyLeaf = serde_json::from_value(proven.leaf.clone()).with_context(not_known)?;
    let mut told = vec![format!(
        "position {} of {}, sealed with {} others:",
        leaf.position,
        checkpoint.origin,
        checkpoint.size.saturating_sub(1)
    )];
    if leaf.kind != "entry" {
        told.push(format!("a change:\n{}", proof.opened.leaf));
        if let Some(private) = &proof.opened.private {
            told.push(format!("its private fields:\n{private}"));
        }
        return Ok(told);
    }
    let entry: EntryLeaf = serde_json::from_value(proven.leaf).with_context(not_known)?;
    told.push(format!(
        "{} {} of {} units under {} (version {}) at {}",
        entry.kind, entry.id, entry.units, entry.policy, entry.version, entry.at,
    ));
    match proven.private {
        Some(private) => {
            let private: EntryPrivate = serde_json::from_value(private).with_context(not_known)?;
            told.push(format!("subject {}", json!(private.subject)));
        }
        None => told
            .push("the proof has no subject: the subject was erased, or was left out".to_owned()),
    }
    Ok(told)
}

/// What every leaf has.
#[derive(Deserialize)]
struct AnyLeaf {
    position: u64,
    #[serde(rename = "type")]
    kind: String,
}

/// The leaf of an entry.
#[derive(Deserialize)]
struct EntryLeaf {
    kind: String,
    id: String,
    units: i64,
    policy: String,
    version: u32,
    at: String,
}

/// The private part of the leaf of an entry.
#[derive(Deserialize)]
struct EntryPrivate {
    subject: Option<String>,
}
