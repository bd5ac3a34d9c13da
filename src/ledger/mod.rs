//! The ledger: the append-only record of grants. It is the truth. It is on SQLite or on PostgreSQL.
//!
//! `tables/` has the code that both stores share. The stores differ in appending, in the reads of
//! the claims' way, and in their connections. For these there are two folders with the same file
//! names.

mod access;
mod advice;
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
mod sessions;
mod sqlite;
mod subject_encoding;
mod tables;
mod time_bounds;
mod url_parameters;
mod values;

use std::borrow::Borrow;
use std::collections::HashSet;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use crate::domain::identity::{AccountId, Identity};

pub use access::Snapshot;
pub use error::{LedgerError, OpenError};
pub use fence::{Appended, Burst, Fence, LedgerPlace, Untimely};
pub use look::{Draft, LedgerView, Look};
pub use service_role::{RoleName, RoleNameError, ServiceRoleError};
pub use tables::acts::{Act, ActKind};
pub use tables::audit::Audited;
pub use tables::changes::{ChangeKind, PastChange};
pub use tables::cuts::{Cut, CutText, DropCursor};
pub use tables::due_lapses::{EndedHold, LapsesMark};
pub use tables::entry_lists::EntryIndex;
pub use tables::erasures::NewErasure;
pub use tables::grant_lists::{FoundGrants, GrantFilter, GrantScope, ProvisionalScope};
pub use tables::history::{CountedSpan, EntryFilter, ListedEntry};
pub use tables::instances::ClockReading;
pub use tables::keys::{KeyVersion, SecretHash};
#[cfg(feature = "faults")]
pub use tables::list_texts;
pub use tables::overrides::StoredTerms;
pub use tables::past::check_window;
pub use tables::policies::{PolicyTerms, Standing};
pub use tables::policy_edits::EditedPolicy;
pub use tables::record::Horizon;
pub use tables::recount::{CountedDay, NamedDay, RecordedDay, StoredFigures};
pub use tables::replay::ReplayReading;
pub use tables::seals::{Seal, SealOrigin, SealedLog};
pub use tables::statistics::{EarlierEntry, FigureFilter, FiguresMark, PolicyDay};
pub use tables::versions::{Change, ChangeFilter, Changed, Edited};
pub use time_bounds::TimeBounds;

use file::LedgerFile;
use schema::{MigrationFile, migrator};

/// The most reads of requests at once.
pub const READS_MOST: u32 = 8;
/// The most snapshots at once. Each uses a connection.
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
    /// The longest time of a statement that a claim waits for. It is below the claims' deadline, so
    /// that an instance that stops in the middle of a commit does not block others for long.
    pub claim_timeout: Duration,
    /// The longest time of a list or an edit. The wait for a connection takes at most a quarter of
    /// it.
    pub query_timeout: Duration,
}

/// What to do with a ledger that does not exist, or is older than the program, or is a standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Make the ledger, or migrate it. Refuse a standby.
    Make,
    /// Refuse all of them.
    Find,
    /// Refuse all but a standby. Nothing is written, also if the standby becomes a primary.
    Read,
}

/// A turn at some accounts. Other instances that want the same accounts wait until it is dropped.
pub enum Turn {
    /// Holds PostgreSQL's advisory locks.
    Postgres(postgres::Turn),
    /// SQLite has one writer, so no turn is needed.
    Sqlite,
}

/// Calls the same method on either store.
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

    /// Opens the ledger of the URL, makes or migrates it if needed, and reads its identity. `now`
    /// is the time of creation of a new ledger.
    ///
    /// # Errors
    /// [`OpenError`]; each says what to do.
    pub async fn open(options: &LedgerOptions, now: DateTime<Utc>) -> Result<Self, OpenError> {
        Self::open_with(options, Opening::Make, &[], now).await
    }

    /// Opens a ledger that exists and has all migrations, as [`Ledger::open`] does.
    ///
    /// # Errors
    /// [`OpenError`]; each says what to do. [`OpenError::Missing`] and [`OpenError::Older`] where
    /// [`Ledger::open`] would make or migrate the ledger.
    pub async fn open_existing(
        options: &LedgerOptions,
        now: DateTime<Utc>,
    ) -> Result<Self, OpenError> {
        Self::open_with(options, Opening::Find, &[], now).await
    }

    /// Opens a ledger as [`Ledger::open_existing`] does, only to read it. The ledger may be a standby.
    /// On PostgreSQL every write is refused.
    ///
    /// # Errors
    /// As [`Ledger::open_existing`], except [`OpenError::Standby`].
    pub async fn open_to_read(
        options: &LedgerOptions,
        now: DateTime<Utc>,
    ) -> Result<Self, OpenError> {
        Self::open_with(options, Opening::Read, &[], now).await
    }

    /// Opens a ledger as the next version of perdiem will, for tests of migrations: `next` is the text
    /// of one more migration.
    ///
    /// # Errors
    /// [`OpenError`]; each says what to do.
    #[cfg(feature = "faults")]
    pub async fn open_with_next(
        options: &LedgerOptions,
        opening: Opening,
        next: &'static str,
        now: DateTime<Utc>,
    ) -> Result<Self, OpenError> {
        Self::open_with(options, opening, &[("9999_next", next)], now).await
    }

    /// `more` are migrations after those of this version.
    async fn open_with(
        options: &LedgerOptions,
        opening: Opening,
        more: &[MigrationFile],
        now: DateTime<Utc>,
    ) -> Result<Self, OpenError> {
        let (scheme, _) = options.url.split_once(':').ok_or(OpenError::UnknownUrl)?;
        let with_more = |files: &[MigrationFile]| migrator(&[files, more].concat());
        match scheme {
            "postgres" | "postgresql" => {
                let migrator = with_more(postgres::MIGRATIONS);
                let store = postgres::Store::open(options, opening, &migrator, now).await?;
                Ok(Self::Postgres(store))
            }
            "sqlite" => {
                let migrator = with_more(sqlite::MIGRATIONS);
                let store = sqlite::Store::open(options, opening, &migrator, now).await?;
                Ok(Self::Sqlite(store))
            }
            _ => Err(OpenError::UnknownUrl),
        }
    }

    /// Locks a ledger on SQLite for this process, for as long as the returned value lives.
    /// PostgreSQL serves many processes and needs no lock.
    ///
    /// # Errors
    /// [`OpenError`]; each says what to do.
    pub fn lock(url: &str) -> Result<Option<File>, OpenError> {
        match url.split_once(':') {
            Some(("sqlite", _)) => Ok(Some(LedgerFile::of(url)?.lock()?)),
            Some(_) | None => Ok(None),
        }
    }

    /// The path of a ledger on SQLite with some text at its end, for a file beside the ledger. `None` for a
    /// ledger on PostgreSQL.
    ///
    /// # Errors
    /// As [`Ledger::lock`].
    pub fn file_beside(url: &str, end: &str) -> Result<Option<PathBuf>, OpenError> {
        match url.split_once(':') {
            Some(("sqlite", _)) => Ok(Some(LedgerFile::of(url)?.beside(end))),
            Some(_) | None => Ok(None),
        }
    }

    /// The same ledger, which refuses entries whose instants are outside of the bounds.
    pub fn within(mut self, bounds: TimeBounds) -> Self {
        store!(&mut self, store => store.bounds = Some(bounds));
        self
    }

    fn bounds(&self) -> Option<&TimeBounds> {
        store!(self, store => store.bounds.as_ref())
    }

    pub fn identity(&self) -> &Identity {
        store!(self, store => store.identity())
    }

    /// The name of the store, for people: `PostgreSQL` or `SQLite`.
    pub fn store_name(&self) -> &'static str {
        let [postgres, sqlite] = Self::STORE_NAMES;
        match self {
            Self::Postgres(_) => postgres,
            Self::Sqlite(_) => sqlite,
        }
    }

    /// Reads what a decision needs.
    pub async fn look(&self, look: &Look) -> Result<LedgerView, LedgerError> {
        let mut view = store!(self, store => store.look(look).await)?;
        self.name_old_accounts(look, &mut view).await?;
        Ok(view)
    }

    /// Appends drafts in a burst if there is a fence. Without a fence, and after a conflict, it
    /// appends them as [`Ledger::append`] does. If the ledger does not show the fence, nothing is
    /// appended. If a draft takes its account to be new and the account exists, the draft is left
    /// out. A draft whose instants are too far from the clock of the store is left out too.
    ///
    /// Invariant: the line before each draft is known to be committed, because this process
    /// appended it or read it from the ledger, and the fence is not older than that line.
    ///
    /// # Errors
    /// As [`Ledger::append`].
    pub async fn append_in_burst(
        &self,
        drafts: &[impl Borrow<Draft>],
        fence: Option<&Fence>,
    ) -> Result<Appended, LedgerError> {
        let mut drafts: Vec<&Draft> = drafts.iter().map(Borrow::borrow).collect();
        let mut untimely = Vec::new();
        // 1. Without a fence only the guarded append is safe.
        let Some(fence) = fence else {
            return Ok(Appended {
                accounts: self.append_timely(drafts, &mut untimely).await?,
                burst: None,
                untimely,
            });
        };
        // 2. Send the burst. Leave out drafts of accounts that exist already, and drafts that are
        //    refused for their instants, and send the rest again.
        let burst = loop {
            match self.burst(&drafts, fence).await? {
                Burst::Exist(existing) if existing.len() < drafts.len() => {
                    drafts.retain(|draft| !existing.contains(&draft.account));
                }
                Burst::Untimely(theirs) if self.leaves_some(&mut drafts, theirs, &mut untimely) => {
                }
                ended => break ended,
            }
        };
        // 3. After a conflict the guarded append finds the accounts that fit.
        let accounts = match burst {
            Burst::Committed(_) => drafts.iter().map(|draft| draft.account).collect(),
            Burst::Exist(_) | Burst::Untimely(_) => HashSet::new(),
            Burst::Conflict => self.append_timely(drafts, &mut untimely).await?,
            // The drafts were decided by lines and policies of a server that is gone. The guarded
            // append would notice other lines, but not that a version of the policy is gone.
            Burst::Behind => HashSet::new(),
        };
        Ok(Appended {
            accounts,
            burst: Some(burst),
            untimely,
        })
    }

    /// Appends drafts as [`Ledger::append`] does, without those whose instants are refused.
    async fn append_timely(
        &self,
        mut drafts: Vec<&Draft>,
        untimely: &mut Vec<(AccountId, Untimely)>,
    ) -> Result<HashSet<AccountId>, LedgerError> {
        loop {
            match store!(self, store => store.append(&drafts).await)? {
                Ok(accounts) => return Ok(accounts),
                Err(theirs) if self.leaves_some(&mut drafts, theirs, untimely) => {}
                Err(_) => return Ok(HashSet::new()),
            }
        }
    }

    /// Moves the drafts that the store refuses when its clock shows `theirs` to `untimely`. Returns
    /// whether some were moved and some are left.
    fn leaves_some(
        &self,
        drafts: &mut Vec<&Draft>,
        theirs: DateTime<Utc>,
        untimely: &mut Vec<(AccountId, Untimely)>,
    ) -> bool {
        let before = drafts.len();
        drafts.retain(|draft| {
            let why = self.bounds().and_then(|it| it.untimely(draft, theirs));
            untimely.extend(why.map(|why| (draft.account, why)));
            why.is_none()
        });
        drafts.len() < before && !drafts.is_empty()
    }

    /// The error of drafts that the store refused together when its clock showed `theirs`.
    fn refused_instant(&self, drafts: &[impl Borrow<Draft>], theirs: DateTime<Utc>) -> LedgerError {
        let bounds = self.bounds();
        let why = |draft: &Draft| bounds.and_then(|it| it.untimely(draft, theirs));
        let mut drafts = drafts.iter().map(Borrow::borrow);
        LedgerError::Untimely(
            drafts
                .find_map(why)
                .unwrap_or(Untimely::Clock(TimeDelta::zero())),
        )
    }

    /// Appends drafts in one transaction, all or none. [`Ledger::append_in_burst`] says what must
    /// be true.
    ///
    /// # Errors
    /// As [`Ledger::append`], except [`LedgerError::Conflict`].
    pub async fn burst(
        &self,
        drafts: &[impl Borrow<Draft>],
        fence: &Fence,
    ) -> Result<Burst, LedgerError> {
        store!(self, store => store.burst(drafts, fence).await)
    }

    /// Appends drafts in one transaction. Returns the accounts whose entries are now committed to
    /// disk. Invariant: the entries of an account are appended all or none. The entries of the
    /// other accounts are not appended, because their last line is not the assumed one or a key is
    /// taken.
    ///
    /// # Errors
    /// On [`LedgerError::Conflict`], [`LedgerError::Refused`] and [`LedgerError::Untimely`] nothing
    /// was written. On [`LedgerError::Unavailable`] the transaction may or may not be committed: look for the
    /// entries' ids, or append the same drafts again.
    pub async fn append(
        &self,
        drafts: &[impl Borrow<Draft>],
    ) -> Result<HashSet<AccountId>, LedgerError> {
        let appended = store!(self, store => store.append(drafts).await)?;
        appended.map_err(|theirs| self.refused_instant(drafts, theirs))
    }

    /// Appends drafts in one transaction, all or none. Returns false if nothing was appended,
    /// because some account's last line is not the assumed one.
    ///
    /// # Errors
    /// As [`Ledger::append`].
    pub async fn append_together(&self, drafts: &[Draft]) -> Result<bool, LedgerError> {
        let appended = store!(self, store => store.append_together(drafts).await)?;
        appended.map_err(|theirs| self.refused_instant(drafts, theirs))
    }

    /// Waits for a turn at accounts that several instances want at once.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`], also if the turn does not come in time.
    pub async fn turn(&self, accounts: &[AccountId]) -> Result<Turn, LedgerError> {
        match self {
            Self::Postgres(store) => Ok(Turn::Postgres(store.turn(accounts).await?)),
            Self::Sqlite(_) => Ok(Turn::Sqlite),
        }
    }

    /// Removes erased texts from the store's write-ahead log. PostgreSQL removes them by itself,
    /// later.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn truncate_log(&self) -> Result<(), LedgerError> {
        match self {
            Self::Postgres(_) => Ok(()),
            Self::Sqlite(store) => store.truncate_log().await,
        }
    }

    /// Closes the connections after their work has ended.
    pub async fn close(&self) {
        store!(self, store => store.close().await);
    }
}

/// 16 random bytes for each new account. Seals use them, and they outlive the erasure of the
/// subject. One call to the system makes all of them.
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
