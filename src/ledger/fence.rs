//! The fence of a burst: it shows that the ledger has not gone back in time.
//!
//! A burst appends entries after last lines that this process knows to be committed. A restored
//! copy of the ledger, or a standby that missed commits before its promotion, may not have those
//! lines. There number N is free, and so is N − 1. So each burst carries a fence, and the ledger
//! checks the fence in the same transaction.
//!
//! Invariant: a burst is committed only on a ledger that has every line that its drafts follow.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};

use domain::identity::AccountId;

/// Identifies a server, database and table, and tells them from their copies. On SQLite the process
/// is the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LedgerPlace {
    /// When the server was started. A standby, and a server restored from a backup, have another
    /// start time than the original.
    pub started_at: DateTime<Utc>,
    /// A hash of the name of the file that has the entries. Another database of the same server,
    /// and a table that was made or emptied again, have another file. On SQLite: a part of the
    /// ledger's id.
    pub file: i64,
    /// How often accounts have got other ids after an erasure. A last line that was read before
    /// such a change may not belong to its account any more.
    pub erasures: i64,
}

impl LedgerPlace {
    /// Whether server and table are the same, whatever was erased in between.
    pub fn is_same_server(&self, other: &Self) -> bool {
        (self.started_at, self.file) == (other.started_at, other.file)
    }
}

/// What a server must show before it takes a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The server must be this one, with this table.
    pub place: LedgerPlace,
    /// The server must have ended every transaction with a number below this one. A server whose
    /// memory and disk were set back together (a snapshot of a machine) has its old start time, but
    /// a lower number. On SQLite: the newest entry must have this `xact` or a higher one. A file
    /// that was set back while a process has it open does not.
    pub horizon: i64,
}

impl Fence {
    /// The newer of two fences of the same server.
    pub fn advance(&mut self, newer: Self) {
        debug_assert_eq!(self.place, newer.place);
        self.horizon = self.horizon.max(newer.horizon);
    }
}

/// The result of an append.
#[derive(Debug, Default)]
pub struct Appended {
    /// The accounts whose entries are committed.
    pub accounts: HashSet<AccountId>,
    /// The result of the burst; `None` if there was no burst.
    pub burst: Option<Burst>,
    /// The accounts whose entries were refused because of their instants.
    pub untimely: Vec<(AccountId, Untimely)>,
}

/// Why the instants of a draft were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Untimely {
    /// The clock that decided the draft is off the clock of the store by this time: positive if it
    /// is ahead.
    Clock(TimeDelta),
    /// The last line of the account is at this instant, in the future. No line can be earlier.
    LastLine(DateTime<Utc>),
}

/// The result of a burst.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Burst {
    /// Every entry is committed. A server that has all of them shows this fence.
    Committed(Fence),
    /// Nothing was written: these accounts exist, but their drafts take them to be new.
    Exist(Vec<AccountId>),
    /// Nothing was written: an account has another last line, or a key is taken.
    Conflict,
    /// Nothing was written: the server does not show the fence. Forget every known last line.
    Behind,
    /// Nothing was written: an instant is too far from the clock of the store, which shows this.
    Untimely(DateTime<Utc>),
}
