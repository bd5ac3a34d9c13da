//! The fence of a burst: it shows that the ledger has not gone back in time.
//!
//! A burst appends entries after last lines that this process knows to be committed. A restored
//! copy of the ledger, or a standby that missed commits before it was promoted, may lack those
//! lines: number N is free there, and so is N − 1. So each burst carries a fence, and the ledger
//! checks it in the same transaction.

use std::collections::HashSet;

use chrono::{DateTime, Utc};

use crate::domain::identity::AccountId;

/// What tells a ledger's server, database and table from their copies. SQLite's server is the
/// process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LedgerPlace {
    /// When the server was started. A standby, and a server restored from a backup, have another
    /// start than the server that they are copies of.
    pub started_at: DateTime<Utc>,
    /// A hash of the file that holds the entries. Another database of the same server, and a table
    /// that was made or emptied again, have another file. On SQLite a part of the ledger's id.
    pub file: i64,
    /// How often accounts had got other ids, since their subjects were erased: a last line that was
    /// read before is perhaps no line of its account any more.
    pub erasures: i64,
}

impl LedgerPlace {
    /// Whether it is the same server with the same table, whatever was erased meanwhile.
    pub fn is_same_server(&self, other: &Self) -> bool {
        (self.started_at, self.file) == (other.started_at, other.file)
    }
}

/// What a server must show before it takes a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence {
    /// It is this one, with this table.
    pub place: LedgerPlace,
    /// It has ended every transaction with a number below this one. A server whose memory and
    /// disk were set back together has its old start, and has not. On SQLite it has the entry with
    /// this `xact`: a file that was set back while a process has it open has not.
    pub horizon: i64,
}

impl Fence {
    /// The fence after a server has shown a newer one.
    pub fn advance(&mut self, newer: Self) {
        debug_assert_eq!(self.place, newer.place);
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Burst {
    /// Every entry is committed. A server that has them all shows this fence.
    Committed(Fence),
    /// Nothing was written: these accounts were taken to be new, and are not.
    Exist(Vec<AccountId>),
    /// Nothing was written: an account has another last line, or a key is taken.
    Conflict,
    /// Nothing was written: the server does not show the fence. Forget every last line that was
    /// known.
    Behind,
}
