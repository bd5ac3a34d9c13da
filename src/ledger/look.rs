//! What a claim's way asks the ledger, what the ledger answers, and what the claim's way appends.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::fence::Fence;
use domain::claim::Subject;
use domain::grant::{Entry, EntryKind, Line};
use domain::identity::{AccountId, EntryId, KeyId};
use domain::policy::PolicyId;
use domain::shared::{SharedChange, SharedKey, SharedUse};

/// What a decision needs from the ledger.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// Accounts whose last lines are wanted.
    pub accounts: Vec<AccountId>,
    /// Keys whose entries are wanted, and the entries that name these.
    pub keys: Vec<KeyId>,
    /// Entries that may or may not be committed.
    pub entries: Vec<EntryId>,
    /// Grants whose confirmations, reversals and lapses are wanted.
    pub followers_of: Vec<EntryId>,
    /// Windows of shared limits whose usage is wanted.
    pub shared: BTreeSet<SharedKey>,
    /// Whether Redis may decide for the accounts: then erased ones are wanted.
    pub counts: bool,
}

/// The result of a [`Look`]. Everything in it is committed. An account without entries has no line.
#[derive(Debug, Default)]
pub struct LedgerView {
    /// The last lines. Invariant: they were read before the entries, so an entry that a line counts
    /// is among the entries.
    pub lines: HashMap<AccountId, Line>,
    /// The fence of the server that returned the lines, if it shows one.
    pub fence: Option<Fence>,
    /// The entries that have one of the keys or ids, or that follow one of the grants, in no order.
    pub entries: Vec<Entry>,
    /// The usage of the wanted windows of shared limits.
    pub shared: Arc<SharedUse>,
    /// Wanted accounts that have no line, but had entries until an erasure: a claim with a key of these entries is
    /// still a repetition.
    pub erased: HashSet<AccountId>,
}

/// The next entries of one account, in order, with the line that they were decided on.
#[derive(Debug, Clone)]
pub struct Draft {
    pub account: AccountId,
    /// The drafts of a component are appended all or none. It is named by one of their accounts, and most drafts
    /// are a component of their own. In a list of drafts those of a component stand together.
    pub component: AccountId,
    /// The policy of the account.
    pub policy: PolicyId,
    /// The subject's text, which is stored with entry 1. A draft without entry 1 needs none.
    pub subject: Option<Subject>,
    /// The assumed last line: `None` for an account without entries.
    pub after: Option<Line>,
    /// The entries, at least one. The first has the number after the assumed line.
    pub entries: Vec<Entry>,
    /// What the entries do to the limits that all subjects share. The entries are appended only if there is the
    /// room that the changes tell. One draft of a component has the changes of all, in the order of the decisions.
    pub shared: Vec<SharedChange>,
}

impl Draft {
    /// Whether the draft is appended together with others.
    pub fn is_joined(&self) -> bool {
        self.component != self.account
    }

    pub fn has_only_lapses(&self) -> bool {
        let mut kinds = self.entries.iter().map(|entry| entry.kind);
        kinds.all(|kind| matches!(kind, EntryKind::Lapse { .. }))
    }
}
