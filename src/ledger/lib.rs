//! The ledger: the append-only record of grants. It is the truth. It is on SQLite or on PostgreSQL.
//!
//! `tables/` has the code that both stores share. The stores differ in appending, in the reads of
//! the claims' way, and in their connections. For these there are two folders with the same file
//! names.

mod access;
mod advice;
mod batched;
mod checkup;
mod claims;
mod cluster;
mod components;
mod connections;
mod encoding;
mod entry_rows;
mod error;
mod fence;
mod file;
mod handles;
mod hosts;
mod look;
mod postgres;
mod query;
mod row;
mod schema;
mod service_role;
mod sessions;
mod shared_use;
mod sqlite;
mod standbys;
mod subject_encoding;
mod tables;
mod time_bounds;
mod url_parameters;
mod values;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

// The code of an async function is otherwise compiled in each crate that awaits it (docs/decisions/0011).
use async_recursion::async_recursion as boxed;
use domain::identity::Identity;

pub use access::Snapshot;
pub use advice::SettingAdvice;
pub use checkup::{Checkup, ClientLimits, FileFacts, RoleFacts, ServerFacts, VacuumFacts};
pub use encoding::{decode_rule, encode_rule};
pub use error::{LedgerError, OpenError};
pub use fence::{Appended, Burst, Fence, LedgerPlace, Untimely};
pub use handles::{AdminTables, AuditTables, ClaimTables, FigureTables, RecordTables};
pub use look::{Draft, LedgerView, Look};
pub use service_role::{RoleName, RoleNameError, ServiceRoleError};
pub use standbys::StandbyFacts;
pub use tables::acts::{Act, ActKind};
pub use tables::audit::Audited;
pub use tables::changes::{ChangeKind, PastChange};
pub use tables::cuts::{Cut, CutText, DropCursor, DropScope, DropStep};
pub use tables::denials::{DenialFilter, DenialPlace, ListedDenial};
pub use tables::due_lapses::{EndedHold, LapsesMark};
pub use tables::entry_lists::EntryIndex;
pub use tables::erasures::NewErasure;
pub use tables::grant_lists::{FoundGrants, GrantFilter, GrantScope, ProvisionalScope};
pub use tables::history::{CountedSpan, EntryFilter, ListedEntry};
pub use tables::instances::ClockReading;
pub use tables::key_uses::KeyUse;
pub use tables::keys::{KeyReplacement, KeyVersion, SecretHash};
#[cfg(feature = "faults")]
pub use tables::list_texts;
pub use tables::overrides::StoredTerms;
pub use tables::past::check_window;
pub use tables::policies::{PolicyTerms, Standing};
pub use tables::policy_edits::EditedPolicy;
pub use tables::quarters::{ListedQuarter, QuarterFilter};
pub use tables::record::Horizon;
pub use tables::recount::{CountedDay, NamedDay, RecordedDay, StoredFigures};
pub use tables::replay::ReplayReading;
pub use tables::seals::{Seal, SealOrigin, SealedLog};
pub use tables::shared_sums::SummedUpTo;
pub use tables::statistics::{EarlierEntry, FigureFilter, FiguresMark, PolicyDay, TalliedFigures};
pub use tables::subjects::AccountEntry;
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
    Postgres(Arc<postgres::Store>),
    /// On SQLite: embedded, for one process.
    Sqlite(Arc<sqlite::Store>),
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
///
/// On PostgreSQL it is the transaction that holds their locks. SQLite has one writer, so it needs none.
pub struct Turn(#[expect(dead_code, reason = "held for its drop")] Option<Box<dyn Send>>);

/// Calls the same method on either store.
macro_rules! store {
    ($ledger:expr, $store:ident => $call:expr) => {
        match $ledger {
            Ledger::Postgres($store) => $call,
            Ledger::Sqlite($store) => $call,
        }
    };
}
use store;

impl Ledger {
    /// The names of the stores.
    pub const STORE_NAMES: [&str; 2] = ["PostgreSQL", "SQLite"];

    /// Opens the ledger of the URL, makes or migrates it if needed, and reads its identity. `now`
    /// is the time of creation of a new ledger.
    ///
    /// # Errors
    /// [`OpenError`]; each says what to do.
    #[boxed]
    pub async fn open(options: &LedgerOptions, now: DateTime<Utc>) -> Result<Self, OpenError> {
        Self::open_with(options, Opening::Make, &[], now).await
    }

    /// Opens a ledger that exists and has all migrations, as [`Ledger::open`] does.
    ///
    /// # Errors
    /// [`OpenError`]; each says what to do. [`OpenError::Missing`] and [`OpenError::Older`] where
    /// [`Ledger::open`] would make or migrate the ledger.
    #[boxed]
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
    #[boxed]
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
    #[boxed]
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
                Ok(Self::Postgres(Arc::new(store)))
            }
            "sqlite" => {
                let migrator = with_more(sqlite::MIGRATIONS);
                let store = sqlite::Store::open(options, opening, &migrator, now).await?;
                Ok(Self::Sqlite(Arc::new(store)))
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
        store!(&mut self, store => Arc::make_mut(store).bounds = Some(bounds));
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

    /// Removes erased texts from the store's write-ahead log. PostgreSQL removes them by itself,
    /// later.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    #[boxed]
    pub async fn truncate_log(&self) -> Result<(), LedgerError> {
        match self {
            Self::Postgres(_) => Ok(()),
            Self::Sqlite(store) => store.truncate_log().await,
        }
    }

    /// Closes the connections after their work has ended.
    #[boxed]
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
