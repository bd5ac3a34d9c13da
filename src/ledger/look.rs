//! What a claim's way asks the ledger, what it is told, and what it wants to append.

use std::collections::HashMap;

use super::fence::Fence;
use crate::domain::claim::Subject;
use crate::domain::grant::{Entry, Line};
use crate::domain::identity::{AccountId, EntryId, KeyId};
use crate::domain::policy::PolicyId;

/// What a decision wants to see of the ledger.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// Accounts whose last lines are wanted.
    pub accounts: Vec<AccountId>,
    /// Keys whose entries are wanted.
    pub keys: Vec<KeyId>,
    /// Entries that may or may not have been committed.
    pub entries: Vec<EntryId>,
    /// Grants whose confirmations, reversals and lapses are wanted.
    pub followers_of: Vec<EntryId>,
}

/// What a [`Look`] found, all of it committed. An account without entries has no line.
#[derive(Debug, Default)]
pub struct LedgerView {
    /// The last lines. They were read before the entries: an entry that one of them counts
    /// is among the entries.
    pub lines: HashMap<AccountId, Line>,
    /// What the server shows that told the lines, where it shows anything.
    pub fence: Option<Fence>,
    /// The entries that bear one of the keys or ids, or follow one of the grants, in no order.
    pub entries: Vec<Entry>,
}

/// The next entries of one account, in order, after the line that they were decided on.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Whose entries they are.
    pub account: AccountId,
    /// The policy of the account.
    pub policy: PolicyId,
    /// The subject's text, which is written beside entry 1. A draft without entry 1 needs none.
    pub subject: Option<Subject>,
    /// The last line that was assumed: `None` for an account without entries.
    pub after: Option<Line>,
    /// The entries, numbered from the one after that line. At least one.
    pub entries: Vec<Entry>,
}
