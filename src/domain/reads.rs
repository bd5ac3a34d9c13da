//! Reads that show a named subject: who looked at whom.

use serde_json::{Map, Value, json};

use super::policy::PolicyName;

/// What a read showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadKind {
    Usage,
    /// How a claim of the subject is decided, or why a grant was granted.
    Explanation,
    Entries,
    Denials,
    Grants,
    Grant,
    /// The proof of a grant.
    Proof,
    Override,
    Block,
    Tier,
    /// Changes of the subject's exceptions, or reads of the subject.
    Changes,
}

impl ReadKind {
    pub const ALL: [Self; 11] = [
        Self::Usage,
        Self::Explanation,
        Self::Entries,
        Self::Denials,
        Self::Grants,
        Self::Grant,
        Self::Proof,
        Self::Override,
        Self::Block,
        Self::Tier,
        Self::Changes,
    ];

    /// The name in the HTTP contract and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Explanation => "explanation",
            Self::Entries => "entries",
            Self::Denials => "denials",
            Self::Grants => "grants",
            Self::Grant => "grant",
            Self::Proof => "proof",
            Self::Override => "override",
            Self::Block => "block",
            Self::Tier => "tier",
            Self::Changes => "changes",
        }
    }
}

/// A read that shows a subject.
#[derive(Debug, Clone, Copy)]
pub struct SubjectRead<'r> {
    pub kind: ReadKind,
    /// `None` for a list of all policies.
    pub policy: Option<&'r PolicyName>,
    pub subject: &'r str,
}

impl SubjectRead<'_> {
    /// The JSON of the act. The subject is a filter, as in an act of export, so that an erasure can
    /// remove it.
    pub fn about(&self) -> String {
        let mut filters = Map::new();
        if let Some(policy) = self.policy {
            filters.insert("policy".to_owned(), Value::from(policy.as_str()));
        }
        filters.insert("subject".to_owned(), Value::from(self.subject));
        json!({ "read": self.kind.as_str(), "filters": filters }).to_string()
    }
}
