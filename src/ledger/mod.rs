//! The ledger: the append-only record of grants, the truth. On SQLite or on PostgreSQL.
//!
//! `tables/` has the code that both stores share. The stores differ in how they append, in how the
//! claims' way reads, and in their connections: there they are twins, the same files with the same
//! names.

mod access;
mod batched;
mod cluster;
mod connections;
mod encoding;
mod entry_rows;
mod error;
mod fence;
mod file;
mod look;
mod postgres;
mod query;
mod row;
mod schema;
mod service_role;
mod sqlite;
mod tables;
mod values;

use std::borrow::Borrow;
use std::collections::HashSet;
use std::fs::File;
use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::domain::identity::{AccountId, Identity};

pub use access::Snapshot;
pub use error::{LedgerError, OpenError};
pub use fence::{Appended, Burst, Fence, LedgerPlace};
pub use look::{Draft, LedgerView, Look};
pub use service_role::{RoleName, RoleNameError, ServiceRoleError};
pub use tables::acts::{Act, ActKind};
pub use tables::audit::Audited;
pub use tables::changes::{ChangeKind, PastChange};
pub use tables::cuts::{Cut, CutText, Dropped};
pub use tables::erasures::NewErasure;
pub use tables::grants::{GrantFilter, GrantScope, ProvisionalScope};
pub use tables::history::{CountedSpan, EntryFilter, ListedEntry};
pub use tables::keys::{KeyVersion, SecretHash};
pub use tables::past::check_window;
pub use tables::policies::{PolicyTerms, Standing};
pub use tables::record::Horizon;
pub use tables::seals::{Seal, SealOrigin};
pub use tables::statistics::{EarlierEntry, FigureFilter, PolicyDay};
pub use tables::versions::{Change, ChangeFilter, Changed, Edited};

use file::LedgerFile;

/// How many reads there are at once for those who ask.
pub const READS_MOST: u32 = 8;
/// How many snapshots there are at once. Each holds a connection.
pub const SNAPSHOTS_MOST: u32 = 4;

/// A connection to a ledger. Cheap to clone.
#[derive(Clone)]
pub enum Ledger {
    /// On PostgreSQL: many instances may share it.
    Postgres(postgres::Store),
    /// On SQLite: embedded, for one process.
    Sqlite(sqlite::Store),
}

/// How to reach a ledger.
#[derive(Debug, Clone)]
pub struct LedgerOptions {
    /// `sqlite:…` or `postgres://…`.
    pub url: String,
    /// The longest that a statement of the claim path may take. Below the claims' deadline,
    /// so that an instance that stops in mid-commit blocks nobody for long.
    pub claim_timeout: Duration,
    /// The longest that a list or an edit may take. Its connection is waited for a quarter of it.
    pub query_timeout: Duration,
}

/// What an opening does with a ledger that is missing, or older than the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// It makes the ledger, or brings it up to date.
    Make,
    /// It refuses.
    Find,
}

/// The accounts whose turn it is here: other instances that want them too wait until this is
/// dropped.
pub enum Turn {
    /// Holds PostgreSQL's advisory locks.
    Postgres(postgres::Turn),
    /// SQLite has one writer: it is always its turn.
    Sqlite,
}

/// Calls a method of the same name on either store.
macro_rules! store {
    ($ledger:expr, $store:ident => $call:expr) => {
        match $ledger {
            Ledger::Postgres($store) => $call,
            Ledger::Sqlite($store) => $call,
        }
    };
}

impl Ledger {
    /// The names of the stores.
    pub const STORE_NAMES: [&str; 2] = ["PostgreSQL", "SQLite"];

    /// Opens the ledger that the URL names, makes it or brings it up to date, and learns who
    /// it is. `now` is when a new ledger is made.
    ///
    /// # Errors
    /// [`OpenError`], each with what to do.
    pub async fn open(options: &LedgerOptions, now: DateTime<Utc>) -> Result<Self, OpenError> {
        Self::open_as(options, Opening::Make, now).await
    }

    /// Opens a ledger that exists and is up to date, as [`Ledger::open`] does.
    ///
    /// # Errors
    /// [`OpenError`], each with what to do; [`OpenError::Missing`] and [`OpenError::Older`] where
    /// [`Ledger::open`] would make a ledger or bring it up to date.
    pub async fn open_existing(
        options: &LedgerOptions,
        now: DateTime<Utc>,
    ) -> Result<Self, OpenError> {
        Self::open_as(options, Opening::Find, now).await
    }

    async fn open_as(
        options: &LedgerOptions,
        opening: Opening,
        now: DateTime<Utc>,
    ) -> Result<Self, OpenError> {
        let (scheme, _) = options.url.split_once(':').ok_or(OpenError::UnknownUrl)?;
        match scheme {
            "postgres" | "postgresql" => Ok(Self::Postgres(
                postgres::Store::open(options, opening, now).await?,
            )),
            "sqlite" => Ok(Self::Sqlite(
                sqlite::Store::open(options, opening, now).await?,
            )),
            _ => Err(OpenError::UnknownUrl),
        }
    }

    /// Keeps a ledger on SQLite for this process: no other one gets it while what is returned
    /// lives. PostgreSQL is for many, and needs nothing.
    ///
    /// # Errors
    /// [`OpenError`], each with what to do.
    pub fn lock(url: &str) -> Result<Option<File>, OpenError> {
        match url.split_once(':') {
            Some(("sqlite", _)) => Ok(Some(LedgerFile::of(url)?.lock()?)),
            Some(_) | None => Ok(None),
        }
    }

    pub fn identity(&self) -> &Identity {
        store!(self, store => store.identity())
    }

    /// Which store it is on, for people: `PostgreSQL` or `SQLite`.
    pub fn store_name(&self) -> &'static str {
        let [postgres, sqlite] = Self::STORE_NAMES;
        match self {
            Self::Postgres(_) => postgres,
            Self::Sqlite(_) => sqlite,
        }
    }

    /// Reads what a decision wants to see.
    pub async fn look(&self, look: &Look) -> Result<LedgerView, LedgerError> {
        let mut view = store!(self, store => store.look(look).await)?;
        self.name_old_accounts(look, &mut view).await?;
        Ok(view)
    }

    /// Appends drafts in a burst, if there is a fence for it, and else or after a conflict as
    /// [`Ledger::append`]. Where the ledger does not show the fence, nothing is appended. The line
    /// before each draft is known to be committed, since this process appended it or read it from the
    /// ledger, and the fence is no older than that. Or the draft takes its account to be new: one that
    /// exists is left out.
    ///
    /// # Errors
    /// As [`Ledger::append`].
    pub async fn append_in_burst(
        &self,
        drafts: &[impl Borrow<Draft>],
        fence: Option<&Fence>,
    ) -> Result<Appended, LedgerError> {
        let Some(fence) = fence else {
            return Ok(Appended {
                accounts: self.append(drafts).await?,
                burst: None,
            });
        };
        let mut drafts: Vec<&Draft> = drafts.iter().map(Borrow::borrow).collect();
        let burst = loop {
            match self.burst(&drafts, fence).await? {
                Burst::Exist(existing) if existing.len() < drafts.len() => {
                    drafts.retain(|draft| !existing.contains(&draft.account));
                }
                ended => break ended,
            }
        };
        let accounts = match burst {
            Burst::Committed(_) => drafts.iter().map(|draft| draft.account).collect(),
            Burst::Exist(_) => HashSet::new(),
            Burst::Conflict => self.append(&drafts).await?,
            // They were decided by lines and policies of a server that is gone. The guard sees the
            // lines, and not that a version of the policy is gone too.
            Burst::Behind => HashSet::new(),
        };
        Ok(Appended {
            accounts,
            burst: Some(burst),
        })
    }

    /// Appends drafts in one transaction, all of them or none, as [`Ledger::append_in_burst`] tells.
    ///
    /// # Errors
    /// As [`Ledger::append`], but for [`LedgerError::Conflict`].
    pub async fn burst(
        &self,
        drafts: &[impl Borrow<Draft>],
        fence: &Fence,
    ) -> Result<Burst, LedgerError> {
        store!(self, store => store.burst(drafts, fence).await)
    }

    /// Appends drafts in one transaction, and returns the accounts whose entries now stand,
    /// committed to disk. An account's entries go in together or not at all; those of the
    /// others do not stand, since their last line is not the one assumed or a key is taken.
    ///
    /// # Errors
    /// On [`LedgerError::Conflict`] and [`LedgerError::Refused`] nothing was written. On
    /// [`LedgerError::Unavailable`] the transaction may or may not have been committed: look
    /// for the entries' ids, or append the same drafts again.
    pub async fn append(
        &self,
        drafts: &[impl Borrow<Draft>],
    ) -> Result<HashSet<AccountId>, LedgerError> {
        store!(self, store => store.append(drafts).await)
    }

    /// Appends drafts in one transaction, all of them or none. False when none stands, since some
    /// account's last line is not the one assumed.
    ///
    /// # Errors
    /// As [`Ledger::append`].
    pub async fn append_all(&self, drafts: &[Draft]) -> Result<bool, LedgerError> {
        store!(self, store => store.append_all(drafts).await)
    }

    /// Waits for its turn at accounts that several instances want at once.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`], also when the turn does not come in time.
    pub async fn turn(&self, accounts: &[AccountId]) -> Result<Turn, LedgerError> {
        match self {
            Self::Postgres(store) => Ok(Turn::Postgres(store.turn(accounts).await?)),
            Self::Sqlite(_) => Ok(Turn::Sqlite),
        }
    }

    /// Lets go of what was erased in the store's own log. On PostgreSQL that takes its course.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn truncate_log(&self) -> Result<(), LedgerError> {
        match self {
            Self::Postgres(_) => Ok(()),
            Self::Sqlite(store) => store.truncate_log().await,
        }
    }

    /// Closes its connections, after what is under way.
    pub async fn close(&self) {
        store!(self, store => store.close().await);
    }
}

/// 16 random bytes for each new account, for seals that survive the erasure of its subject. One call
/// to the system for all of them.
fn new_blinds(count: usize) -> Vec<Uuid> {
    let mut random = vec![0; 16 * count];
    getrandom::fill(&mut random).expect("the system has randomness");
    let (blinds, _) = random.as_chunks();
    blinds.iter().copied().map(Uuid::from_bytes).collect()
}

/// 16 random bytes for a new override or act.
fn new_blind() -> Uuid {
    new_blinds(1)[0]
}
