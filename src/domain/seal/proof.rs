//! Proofs that the log has an entry (tlog-proof of C2SP). The extra data of a proof has the leaf,
//! and opens its private part.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::leaf::{Hash, hex, private_digest};
use super::note::{Checkpoint, NoteError, VerifierKey, decode_hash, encode_hash};
use super::tree::{leaf_hash, root_of_inclusion};

const HEADER: &str = "c2sp.org/tlog-proof@v1";

/// Why a proof is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    #[error("this is not a proof: {0} is missing or damaged")]
    Damaged(&'static str),
    #[error("the checkpoint of the proof cannot be used: {0}")]
    Note(#[from] NoteError),
    #[error("the leaf is not in the tree of the checkpoint: the proof was changed")]
    NotIncluded,
    #[error("the private fields do not match their digest in the leaf: they were changed")]
    Private,
}

/// The leaf of a proof, and the salt and fields that open its private part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenedLeaf {
    pub leaf: String,
    /// In hexadecimal digits. Absent if the texts were erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salt: Option<String>,
    /// The private fields, as one JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<String>,
}

impl OpenedLeaf {
    /// The subject among the private fields.
    pub fn subject(&self) -> Option<String> {
        let fields: Value = serde_json::from_str(self.private.as_deref()?).ok()?;
        fields["subject"].as_str().map(str::to_owned)
    }
}

/// A proof: the text of a `.tlog-proof`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogProof {
    pub opened: OpenedLeaf,
    /// The index of the leaf: its position minus one.
    pub index: u64,
    pub path: Vec<Hash>,
    pub checkpoint: Checkpoint,
}

/// The content of a valid proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proven {
    pub leaf: Value,
    /// `None` if the fields were erased.
    pub private: Option<Value>,
}

impl fmt::Display for LogProof {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opened = serde_json::to_vec(&self.opened).map_err(|_| fmt::Error)?;
        writeln!(formatter, "{HEADER}")?;
        writeln!(formatter, "extra {}", STANDARD.encode(opened))?;
        writeln!(formatter, "index {}", self.index)?;
        for hash in &self.path {
            writeln!(formatter, "{}", encode_hash(hash))?;
        }
        write!(formatter, "\n{}", self.checkpoint.note)
    }
}

impl LogProof {
    /// # Errors
    /// [`ProofError`].
    pub fn parse(text: &str) -> Result<Self, ProofError> {
        let damaged = |what| move || ProofError::Damaged(what);
        let (proof, note) = text
            .split_once("\n\n")
            .ok_or_else(damaged("the checkpoint"))?;
        let mut lines = proof.lines();
        let header = lines.next().filter(|line| *line == HEADER);
        header.ok_or_else(damaged("the first line"))?;
        let extra = lines.next().and_then(|line| line.strip_prefix("extra "));
        let extra = extra.and_then(|extra| STANDARD.decode(extra).ok());
        let opened = extra.and_then(|extra| serde_json::from_slice(&extra).ok());
        let index = lines.next().and_then(|line| line.strip_prefix("index "));
        let index = index.and_then(|index| {
            let number: u64 = index.parse().ok()?;
            (number.to_string() == index).then_some(number)
        });
        let path: Option<Vec<Hash>> = lines.map(decode_hash).collect();
        Ok(Self {
            opened: opened.ok_or_else(damaged("the line with the extra data"))?,
            index: index.ok_or_else(damaged("the line with the index"))?,
            path: path.ok_or_else(damaged("a hash"))?,
            checkpoint: Checkpoint::parse(note)?,
        })
    }

    /// Checks the signature of the checkpoint, that its tree has the leaf, and that the private
    /// fields match the leaf.
    ///
    /// # Errors
    /// [`ProofError`].
    pub fn check(&self, key: &VerifierKey) -> Result<Proven, ProofError> {
        // 1. The key signed the checkpoint.
        self.checkpoint.check(key)?;
        let Checkpoint { size, root, .. } = self.checkpoint;
        // 2. The path leads from the leaf to the root of the checkpoint.
        let hash = leaf_hash(self.opened.leaf.as_bytes());
        let found = root_of_inclusion(self.index, size, hash, &self.path);
        if found != Some(root) {
            return Err(ProofError::NotIncluded);
        }
        let leaf: Value =
            serde_json::from_str(&self.opened.leaf).map_err(|_| ProofError::Damaged("the leaf"))?;
        // 3. The digest in the leaf is the digest of the private fields.
        let private = match (&self.opened.salt, &self.opened.private) {
            (Some(salt), Some(fields)) => {
                let salt = decode_hex(salt).ok_or(ProofError::Private)?;
                if leaf["private"] != hex(&private_digest(&salt, fields)) {
                    return Err(ProofError::Private);
                }
                Some(serde_json::from_str(fields).map_err(|_| ProofError::Private)?)
            }
            (None, None) => None,
            _ => return Err(ProofError::Private),
        };
        Ok(Proven { leaf, private })
    }
}

fn decode_hex(text: &str) -> Option<Hash> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes?.try_into().ok().filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::note::SealKey;
    use crate::seal::tree::GrowingTree;

    fn proof() -> (LogProof, VerifierKey) {
        let key = SealKey::new("perdiem", [7; 32]).unwrap();
        let salt = [9; 32];
        let private = r#"{"subject":"member-42"}"#;
        let digest = hex(&private_digest(&salt, private));
        let leaf = format!(r#"{{"v":1,"position":2,"private":"{digest}"}}"#);
        let first = leaf_hash(b"first");
        let mut tree = GrowingTree::default();
        tree.push(first);
        tree.push(leaf_hash(leaf.as_bytes()));
        let note = key.sign("perdiem/1", 2, &tree.root());
        let proof = LogProof {
            opened: OpenedLeaf {
                leaf,
                salt: Some(hex(&salt)),
                private: Some(private.to_owned()),
            },
            index: 1,
            path: vec![first],
            checkpoint: Checkpoint::parse(&note).unwrap(),
        };
        (proof, key.verifier())
    }

    #[test]
    fn a_proof_comes_back_and_proves() {
        let (proof, key) = proof();
        let again = LogProof::parse(&proof.to_string()).unwrap();
        assert_eq!(again, proof);
        let proven = again.check(&key).unwrap();
        assert_eq!(proven.leaf["position"], 2);
        assert_eq!(proven.private.unwrap()["subject"], "member-42");
    }

    #[test]
    fn a_proof_with_a_changed_byte_proves_nothing() {
        let (proof, key) = proof();
        let text = proof.to_string();
        for index in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[index] ^= 1;
            let Ok(changed) = String::from_utf8(bytes) else {
                continue;
            };
            let checked = LogProof::parse(&changed).and_then(|proof| proof.check(&key));
            assert!(checked.is_err(), "{index}: {changed}");
        }
    }

    #[test]
    fn private_fields_are_those_of_the_leaf() {
        let (mut proof, key) = proof();
        proof.opened.private = Some(r#"{"subject":"member-43"}"#.to_owned());
        assert_eq!(proof.check(&key), Err(ProofError::Private));
        proof.opened.salt = None;
        assert_eq!(proof.check(&key), Err(ProofError::Private));
        proof.opened.private = None;
        assert_eq!(proof.check(&key).unwrap().private, None);
    }
}
