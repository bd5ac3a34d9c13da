//! The errors of a ledger.

use std::sync::Arc;

use sqlx::error::{BoxDynError, DatabaseError, ErrorKind};
use sqlx::postgres::PgDatabaseError;
use sqlx::sqlite::SqliteError;

use super::fence::Untimely;
use domain::limit::text::TotalsError;
use domain::schedule::UnreadableTerms;

/// An error while the ledger is used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Another writer was first. Nothing was written. Read again and decide again.
    #[error("another writer was first")]
    Conflict,
    /// The ledger could not be asked, or did not answer in time. The statements may or may not have
    /// been committed.
    #[error("the ledger cannot be reached")]
    Unavailable(#[source] sqlx::Error),
    /// The store refused the data. Nothing was written.
    #[error("the ledger refused the data")]
    Refused(#[source] BoxDynError),
    /// The instant of an entry is too far from the clock of the store. Nothing was written.
    #[error("the instant of an entry is too far from the ledger's clock")]
    Untimely(Untimely),
    /// A stored row that no perdiem wrote in this form.
    #[error("the ledger has a row that cannot be read: {0}")]
    Corrupt(String),
    /// The request needs entries that were archived and dropped.
    #[error("{0}")]
    Archived(String),
    /// A rule or an override that this perdiem cannot read. Other policies still work.
    #[error("{0}")]
    Unreadable(Arc<UnreadableTerms>),
}

/// SQLite's code for an interrupted statement: SQLITE_INTERRUPT.
const SQLITE_ENDED: i32 = 9;
/// PostgreSQL's code for a canceled statement, also by a time limit: query_canceled.
const POSTGRES_ENDED: &str = "57014";
/// SQLite's codes for a disk that does not take the write: SQLITE_IOERR and SQLITE_FULL.
const SQLITE_DISK: [i32; 2] = [10, 13];
/// PostgreSQL's code for a full disk: disk_full.
const POSTGRES_DISK: &str = "53100";
/// SQLite's code for a file that cannot be written: SQLITE_READONLY.
const SQLITE_READ_ONLY: i32 = 8;
/// PostgreSQL's code for a write on a standby, or on a database that was made read-only:
/// read_only_sql_transaction.
const POSTGRES_READ_ONLY: &str = "25006";
/// SQLite's codes for a lock of another process: SQLITE_BUSY and SQLITE_LOCKED.
const SQLITE_LOCKED: [i32; 2] = [5, 6];
/// PostgreSQL's code for a lock that did not come in time: lock_not_available.
const POSTGRES_LOCKED: &str = "55P03";
/// PostgreSQL's code for a read on a standby that stood in the way of the replay:
/// serialization_failure. No other read gets it.
const POSTGRES_REPLAY: &str = "40001";
/// PostgreSQL's classes of errors that can be over later: connection_exception,
/// invalid_transaction_state (such as a transaction that was idle for too long, or a read-only server),
/// transaction_rollback, insufficient_resources, object_not_in_prerequisite_state and
/// operator_intervention.
const POSTGRES_PASSING: [&str; 6] = ["08", "25", "40", "53", "55", "57"];

impl LedgerError {
    /// Whether the store's disk did not take the write.
    pub fn is_disk_full(&self) -> bool {
        self.has_code(POSTGRES_DISK, &SQLITE_DISK)
    }

    /// Whether the store takes no writes at all: it is a standby, or was made read-only.
    pub fn is_read_only(&self) -> bool {
        self.has_code(POSTGRES_READ_ONLY, &[SQLITE_READ_ONLY])
    }

    /// Whether another session has held a lock for too long.
    pub fn is_locked(&self) -> bool {
        self.has_code(POSTGRES_LOCKED, &SQLITE_LOCKED)
    }

    /// Whether a standby ended the read, because the replay had to change what it read. A deadlock with
    /// the replay is a conflict too.
    pub fn is_replay_conflict(&self) -> bool {
        matches!(self, Self::Conflict) || self.has_code(POSTGRES_REPLAY, &[])
    }

    /// Whether a time limit ended the statement, or ran out before the statement began.
    pub fn is_out_of_time(&self) -> bool {
        matches!(self, Self::Unavailable(sqlx::Error::PoolTimedOut))
            || self.has_code(POSTGRES_ENDED, &[SQLITE_ENDED])
    }

    /// Whether the same can succeed later: the store does not answer, or it ended the session, the
    /// transaction or the wait for a lock.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Conflict => true,
            Self::Unavailable(sqlx::Error::Database(error)) => {
                let is_of_class =
                    |code: &str| POSTGRES_PASSING.iter().any(|class| code.starts_with(class));
                match error.try_downcast_ref::<PgDatabaseError>() {
                    Some(error) => is_of_class(error.code()),
                    None => self.is_locked() || self.is_out_of_time() || self.is_disk_full(),
                }
            }
            Self::Unavailable(error) => matches!(
                error,
                sqlx::Error::Io(_)
                    | sqlx::Error::Tls(_)
                    | sqlx::Error::Protocol(_)
                    | sqlx::Error::PoolTimedOut
                    | sqlx::Error::WorkerCrashed
            ),
            _ => false,
        }
    }

    /// Whether the error is about one item of a request or batch. Without that item the others
    /// succeed.
    pub fn is_about_data(&self) -> bool {
        matches!(
            self,
            Self::Refused(_) | Self::Corrupt(_) | Self::Unreadable(_) | Self::Archived(_)
        )
    }

    /// The unreadable terms, if they are the error.
    pub fn unreadable_terms(&self) -> Option<Arc<UnreadableTerms>> {
        match self {
            Self::Unreadable(terms) => Some(terms.clone()),
            _ => None,
        }
    }

    fn has_code(&self, of_postgres: &str, of_sqlite: &[i32]) -> bool {
        let Self::Unavailable(sqlx::Error::Database(error)) = self else {
            return false;
        };
        if let Some(error) = error.try_downcast_ref::<PgDatabaseError>() {
            return error.code() == of_postgres;
        }
        let error = error.try_downcast_ref::<SqliteError>();
        let code = error.and_then(|error| error.code()?.parse::<i32>().ok());
        // The lowest byte is the primary code.
        code.is_some_and(|code| of_sqlite.contains(&(code & 0xff)))
    }
}

impl From<sqlx::Error> for LedgerError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(database) => match database.kind() {
                ErrorKind::UniqueViolation => Self::Conflict,
                ErrorKind::ForeignKeyViolation
                | ErrorKind::NotNullViolation
                | ErrorKind::CheckViolation => Self::Refused(error.into()),
                // PostgreSQL's class 22 is "data exception". SQLite has no code for it.
                _ if database.code().is_some_and(|code| code.starts_with("22"))
                    || database.message() == "integer overflow" =>
                {
                    Self::Refused(error.into())
                }
                // A deadlock: the keys of two batches can cross. PostgreSQL rolled this transaction
                // back.
                _ if database.code().is_some_and(|code| code == "40P01") => Self::Conflict,
                _ => Self::Unavailable(error),
            },
            sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::Decode(_)
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnIndexOutOfBounds { .. } => Self::Corrupt(error.to_string()),
            _ => Self::Unavailable(error),
        }
    }
}

impl From<UnreadableTerms> for LedgerError {
    fn from(terms: UnreadableTerms) -> Self {
        Self::Unreadable(Arc::new(terms))
    }
}

impl From<Arc<UnreadableTerms>> for LedgerError {
    fn from(terms: Arc<UnreadableTerms>) -> Self {
        Self::Unreadable(terms)
    }
}

impl From<TotalsError> for LedgerError {
    fn from(error: TotalsError) -> Self {
        Self::Corrupt(error.to_string())
    }
}

/// Why a ledger could not be opened. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL names no store that perdiem knows.
    #[error(
        "perdiem does not know this kind of DATABASE_URL: write sqlite:perdiem.db or \
         postgres://user@host/database"
    )]
    UnknownUrl,
    /// The URL has a known scheme and cannot be parsed.
    #[error("DATABASE_URL cannot be read: {0}")]
    InvalidUrl(String),
    /// A ledger without a file would lose its grants.
    #[error("a SQLite ledger needs a file: write DATABASE_URL=sqlite:perdiem.db")]
    NoFile,
    /// Another process uses the ledger's file.
    #[error(
        "cannot open the ledger at {0}: another perdiem uses it; end that one first, or put the \
         ledger on PostgreSQL, since only one process can use a SQLite ledger"
    )]
    InUse(String),
    /// The store does not answer, or cannot be read.
    #[error("cannot open the ledger at {place}: {reason}; {remedy}")]
    Unreadable {
        /// The file, or host and database, without credentials.
        place: String,
        reason: String,
        remedy: &'static str,
        /// Whether another try fails too, unless somebody changes something.
        is_lasting: bool,
    },
    /// A pooler gives the statements of one connection to several sessions.
    #[error(
        "the database {place} is behind a pooler that gives one session of PostgreSQL to each \
         {unit}, but perdiem needs one for as long as a connection lasts: set pool_mode = session \
         for it in PgBouncer, or name PostgreSQL itself in DATABASE_URL"
    )]
    Pooled {
        place: String,
        /// What the pooler gives a session to: a transaction or a statement.
        unit: &'static str,
    },
    /// The server only follows a primary, and the command would write.
    #[error(
        "the database {0} is a standby, which takes no writes: name the primary in DATABASE_URL, or \
         start perdiem serve --read-only, which reads from a standby"
    )]
    Standby(String),
    /// The database belongs to another program.
    #[error(
        "the database {0} has tables that are not perdiem's: set DATABASE_URL to an empty \
         database, or to one that perdiem made"
    )]
    Foreign(String),
    /// There is no ledger, and the command does not make one.
    #[error("there is no ledger at {0}: check DATABASE_URL")]
    Missing(String),
    /// The ledger is older than this perdiem, and the command does not migrate it.
    #[error(
        "the ledger at {place} is at version {found}, and this perdiem needs version {known}: run \
         perdiem migrate first, on the primary if this is a standby"
    )]
    Older {
        place: String,
        found: usize,
        known: usize,
    },
    /// A newer perdiem made or migrated the database.
    #[error(
        "a newer perdiem migrated the database {place} to version {found}, and this one knows \
         versions up to {known}: start the newer perdiem"
    )]
    Newer {
        place: String,
        /// The newest migration of the database.
        found: i64,
        /// The newest migration in this binary.
        known: i64,
    },
    /// The database cannot store every text.
    #[error(
        "the database {place} is encoded in {encoding}, not in UTF8: make one with \
         CREATE DATABASE … ENCODING 'UTF8'"
    )]
    Encoding { place: String, encoding: String },
    /// The database is older than this perdiem, and its user may not migrate it.
    #[error(
        "the database {place} is at version {found}, this perdiem needs version {known}, and only \
         {owner} may migrate it: run perdiem migrate as {owner}, and start again"
    )]
    Behind {
        place: String,
        found: usize,
        known: usize,
        /// Who owns its tables.
        owner: String,
    },
    /// The ledger was restored into another cluster. Only the owner of the tables may raise the
    /// offset there.
    #[error(
        "the database {0} was restored on a server whose transaction numbers are lower: run \
         perdiem migrate as the owner of its tables, and start again"
    )]
    NumbersBegunAgain(String),
    /// The database user has no right to the ledger.
    #[error(
        "the user of DATABASE_URL has no right to the ledger at {place}: run perdiem migrate as the \
         owner of its tables, and make the user a member of the service's role"
    )]
    NoRight { place: String, source: LedgerError },
    /// A migration failed, or a row could not be read.
    #[error(
        "cannot prepare the ledger at {place}: check that the user of DATABASE_URL may write and \
         make tables there"
    )]
    Failed { place: String, source: LedgerError },
}

impl OpenError {
    /// The setting that is wrong; `None` if another try can succeed with the same settings, or if a
    /// command such as `perdiem migrate` is missing.
    pub fn setting(&self) -> Option<&'static str> {
        let is_setting = match self {
            Self::UnknownUrl
            | Self::InvalidUrl(_)
            | Self::NoFile
            | Self::Foreign(_)
            | Self::Encoding { .. }
            | Self::Pooled { .. } => true,
            Self::Unreadable { is_lasting, .. } => *is_lasting,
            Self::InUse(_)
            | Self::Missing(_)
            // After a fail-over, the address of a standby can be that of the primary again.
            | Self::Standby(_)
            | Self::Older { .. }
            | Self::Newer { .. }
            | Self::Behind { .. }
            | Self::NumbersBegunAgain(_)
            | Self::NoRight { .. }
            | Self::Failed { .. } => false,
        };
        is_setting.then_some("DATABASE_URL")
    }
}
