//! The fence of a burst: it shows that the ledger has not gone back in time.
//!
//! A burst appends entries after last lines that this process knows to be committed. A restored
//! copy of the ledger, or a standby that missed commits before it was promoted, may lack those
//! lines: number N is free there, and so is N − 1. So each burst carries a fence, and the ledger
//! checks it in the same transaction.

use std::collections::HashSet;

use chrono::{DateTime, Utc};

use crate::domain::identity::AccountId;

/// When the ledger's server was started. A restored copy and a standby have another start than
/// the server that they are copies of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerStart(pub DateTime<Utc>);

/// What a server must show before it takes a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence {
    /// It was started at this instant.
    pub start: ServerStart,
    /// It has ended every transaction with a number below this one. A server whose memory and
    /// disk were set back together has its old start, and has not.
    pub horizon: i64,
}

impl Fence {
    /// The fence after a server has shown a newer one.
    pub fn advance(&mut self, newer: Self) {
        debug_assert_eq!(self.start, newer.start);
        self.horizon = self.horizon.max(newer.horizon);
    }
}

/// What became of drafts.
#[derive(Debug)]
pub struct Appended {
    /// The accounts whose entries are committed.
    pub accounts: HashSet<AccountId>,
    /// What became of their burst; `None` where the ledger took none.
    pub burst: Option<Burst>,
}

/// What became of a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Burst {
    /// Every entry is committed. A server that has them all shows this fence.
    Committed(Fence),
    /// Nothing was written: an account has another last line, or a key is taken.
    Conflict,
    /// Nothing was written: the server does not show the fence. Forget every last line that was
    /// known.
    Behind,
}
