//! The ledger: the append-only record of grants, the truth. On SQLite or on PostgreSQL.
//!
//! The two stores are twins: the same files, the same names, the same answers. Which of them
//! is called is decided here.

mod batched;
mod changes;
mod connections;
mod error;
mod fence;
mod file;
mod history;
mod keys;
mod look;
mod postgres;
mod record;
mod report;
mod row;
mod schema;
mod snapshot;
mod sqlite;

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use crate::domain::account::Sums;
use crate::domain::correction::Holds;
use crate::domain::grant::{Entry, Followers, Grant, GrantState, Line, Provisional};
use crate::domain::identity::{AccountId, EntryId, Identity, KeyId};
use crate::domain::policy::{PolicyId, PolicyName};
use crate::domain::reconciliation::{
    Difference, Finished, KeptDifference, Reconciliation, Started,
};
use crate::domain::window::Window;

pub use changes::{Change, Edited, EditedOverride, OverrideChange, Standing};
pub use error::{LedgerError, OpenError};
pub use fence::{Appended, Burst, Fence, LedgerPlace};
pub use history::{Changed, HistoryFilter, PastChange};
pub use keys::{KeyChange, KeyVersion, SecretHash};
pub use look::{Draft, LedgerView, Look};
pub use snapshot::Snapshot;

use file::LedgerFile;

/// How many reads there are at once for those who ask.
pub const READS_MOST: u32 = 8;
/// How many snapshots there are at once. Each holds a connection.
pub const SNAPSHOTS_MOST: u32 = 4;
/// How many open holds are read beyond those that have lapsed.
const HOLDS_AHEAD: u32 = 64;

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

/// Whose grants to list.
#[derive(Debug, Clone)]
pub enum GrantScope {
    /// Everybody's.
    All,
    /// A policy's.
    Policy(PolicyId),
    /// Some accounts'.
    Accounts(Vec<AccountId>),
    /// Those that bear one of some keys.
    Keys(Vec<KeyId>),
}

/// Which grants to list: those of a scope in a span of ids, which is a span of time.
#[derive(Debug, Clone)]
pub struct GrantFilter {
    /// Whose.
    pub scope: GrantScope,
    /// The lowest id.
    pub from: EntryId,
    /// All ids are below this one.
    pub to: EntryId,
    /// Only grants in a state, at the instant `now`.
    pub state: Option<GrantState>,
    /// The present instant.
    pub now: DateTime<Utc>,
    /// Only grants that Redis alone decided, all of them or those that went over.
    pub provisional: Option<ProvisionalScope>,
    /// Only grants that an observing policy would have denied.
    pub would_deny: bool,
}

impl GrantFilter {
    /// Every grant of a scope, seen at an instant.
    pub fn of(scope: GrantScope, now: DateTime<Utc>) -> Self {
        Self {
            scope,
            from: EntryId(Uuid::nil()),
            to: EntryId(Uuid::max()),
            state: None,
            now,
            provisional: None,
            would_deny: false,
        }
    }

    /// The flags that a grant must have.
    fn flags(&self) -> i16 {
        let provisional = self.provisional.map(|scope| match scope {
            ProvisionalScope::All => Provisional::Within,
            ProvisionalScope::Over => Provisional::Over,
        });
        record::encode_flags(provisional, self.would_deny)
    }
}

/// Which provisional grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProvisionalScope {
    /// All of them.
    All,
    /// Those that went over a limit.
    Over,
}

/// An entry under audit, as its row has it.
#[derive(Debug)]
pub struct Audited {
    /// Its account.
    pub account: AccountId,
    /// Its number.
    pub number: u64,
    /// Its policy, if its account was opened for that policy.
    pub policy: Option<PolicyName>,
    /// Its account's subject; `None` also once it was erased.
    pub subject: Option<String>,
    /// The entry, or why it cannot be read.
    pub entry: Result<Entry, LedgerError>,
}

/// The accounts whose turn it is here: other instances that want them too wait until this is
/// dropped.
pub enum Turn {
    /// Holds PostgreSQL's advisory locks.
    Postgres(postgres::Turn),
    /// SQLite has one writer: it is always its turn.
    Sqlite,
}

/// Calls the same method of whichever store it is.
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

    /// Opens the ledger that the URL names, makes it or brings it up to date, and learns who
    /// it is. `now` is when a new ledger is made.
    ///
    /// # Errors
    /// [`OpenError`], each with what to do.
    pub async fn open(options: &LedgerOptions, now: DateTime<Utc>) -> Result<Self, OpenError> {
        let (scheme, _) = options.url.split_once(':').ok_or(OpenError::UnknownUrl)?;
        match scheme {
            "postgres" | "postgresql" => {
                Ok(Self::Postgres(postgres::Store::open(options, now).await?))
            }
            "sqlite" => Ok(Self::Sqlite(sqlite::Store::open(options, now).await?)),
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

    /// Who this ledger is.
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
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn look(&self, look: &Look) -> Result<LedgerView, LedgerError> {
        store!(self, store => store.look(look).await)
    }

    /// The units used inside each window, as the sum of an account's entries up to its line
    /// `last`: in the order of their numbers, and never below zero on the way.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn sums(
        &self,
        account: AccountId,
        last: Option<&Line>,
        windows: &[Window],
    ) -> Result<Sums, LedgerError> {
        let mut sums = Sums::default();
        for window in windows {
            let units = match last {
                Some(line) => {
                    store!(self, store => store.sum(account, line.number, *window).await?)
                }
                None => 0,
            };
            sums.insert(*window, units);
        }
        Ok(sums)
    }

    /// The holds that an account's entries up to its line `last` leave open, as they are at an
    /// instant; of those that have lapsed at most `lapsed_most`.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn holds(
        &self,
        account: AccountId,
        last: &Line,
        at: DateTime<Utc>,
        lapsed_most: u32,
    ) -> Result<Holds, LedgerError> {
        let Some(from) = last.lapses_at else {
            return Ok(Holds::default());
        };
        let most = [lapsed_most, HOLDS_AHEAD];
        let found = store!(self, store => store.holds(account, last.number, from, at, most).await?);
        let [lapsed_most, ahead_most] = most.map(|most| most as usize);
        Ok(Holds::at(at, found, lapsed_most, ahead_most))
    }

    /// Appends drafts in a burst, if there is a fence for it, and else or after that as
    /// [`Ledger::append`]. The line before each draft is known to be committed, since this process
    /// appended it or read it from the ledger, and the fence is no older than that. Or the draft
    /// takes its account to be new: one that exists is left out.
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
            Burst::Conflict | Burst::Behind => self.append(&drafts).await?,
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

    /// The keys that an account's entries bear since an instant, newest first, at most
    /// `limit`.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn keys_of(
        &self,
        account: AccountId,
        since: DateTime<Utc>,
        limit: u32,
    ) -> Result<Vec<KeyId>, LedgerError> {
        store!(self, store => store.keys_of(account, since, limit).await)
    }

    /// One grant.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn grant(&self, id: EntryId) -> Result<Option<Grant>, LedgerError> {
        store!(self, store => store.grant(id).await)
    }

    /// Grants, newest first, at most `limit`.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn grants(
        &self,
        filter: &GrantFilter,
        limit: u32,
    ) -> Result<Vec<Grant>, LedgerError> {
        store!(self, store => store.grants(filter, limit).await)
    }

    /// An account's entries with numbers below `before`, newest first, at most `limit`.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn entries(
        &self,
        account: AccountId,
        before: u64,
        limit: u32,
    ) -> Result<Vec<Entry>, LedgerError> {
        store!(self, store => store.entries(account, before, limit).await)
    }

    /// Begins one consistent view of the grants.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn snapshot(&self) -> Result<Snapshot, LedgerError> {
        match self {
            Self::Postgres(store) => Ok(Snapshot::Postgres(store.snapshot().await?)),
            Self::Sqlite(store) => Ok(Snapshot::Sqlite(store.snapshot().await?)),
        }
    }

    /// How far this machine's clock is off the ledger's: positive when it is ahead. SQLite
    /// has no clock of its own, and tells only how far `now` is behind its newest entry.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn clock_offset(&self, now: DateTime<Utc>) -> Result<TimeDelta, LedgerError> {
        store!(self, store => store.clock_offset(now).await)
    }

    /// Notes that an instance lives and which rules of time zones it uses, forgets those not
    /// seen since `forget`, and returns the rules of the others.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn report_instance(
        &self,
        id: Uuid,
        zone_rules: &str,
        now: DateTime<Utc>,
        forget: DateTime<Utc>,
    ) -> Result<Vec<String>, LedgerError> {
        store!(self, store => store.report_instance(id, zone_rules, now, forget).await)
    }

    /// Entries in the order of accounts and numbers, after one of them, at most `limit`.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`], or [`LedgerError::Corrupt`] for a row whose account or
    /// number cannot be read.
    pub async fn audited(
        &self,
        after: Option<(AccountId, u64)>,
        limit: u32,
    ) -> Result<Vec<Audited>, LedgerError> {
        store!(self, store => store.audited(after, limit).await)
    }

    /// Accounts that were opened, in order, after one of them, at most `limit`; each with
    /// whether it has an entry.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn opened(
        &self,
        after: Option<AccountId>,
        limit: u32,
    ) -> Result<Vec<(AccountId, bool)>, LedgerError> {
        store!(self, store => store.opened(after, limit).await)
    }

    /// The last lines of accounts, read off the claims' way. An account without entries has
    /// none.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`]; a line that cannot be read is an error in its place.
    pub async fn last_lines(
        &self,
        accounts: &[AccountId],
    ) -> Result<HashMap<AccountId, Result<Line, LedgerError>>, LedgerError> {
        store!(self, store => store.last_lines(accounts).await)
    }

    /// Begins a report, unless one that heals began since `unless_since`. False when one did.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn begin_reconciliation(
        &self,
        started: &Started,
        unless_since: Option<DateTime<Utc>>,
    ) -> Result<bool, LedgerError> {
        store!(self, store => store.begin_reconciliation(started, unless_since).await)
    }

    /// Ends a report.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn finish_reconciliation(
        &self,
        id: Uuid,
        finished: &Finished,
        differences: &[Difference],
    ) -> Result<(), LedgerError> {
        store!(self, store => store.finish_reconciliation(id, finished, differences).await)
    }

    /// Reports below an id, newest first, at most `limit`.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn reconciliations(
        &self,
        before: Uuid,
        limit: u32,
    ) -> Result<Vec<Reconciliation>, LedgerError> {
        store!(self, store => store.reconciliations(before, limit).await)
    }

    /// One report, with the differences that it keeps.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn reconciliation(
        &self,
        id: Uuid,
    ) -> Result<Option<(Reconciliation, Vec<KeptDifference>)>, LedgerError> {
        store!(self, store => store.reconciliation(id).await)
    }

    /// The newest finished report's id and how many alarms it has.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn alarms(&self) -> Result<Option<(Uuid, u64)>, LedgerError> {
        store!(self, store => store.alarms().await)
    }

    /// Closes its connections, after what is under way.
    pub async fn close(&self) {
        store!(self, store => store.close().await);
    }
}

/// A random id and a random secret for a new ledger.
fn new_identity() -> (Uuid, [u8; 32]) {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).expect("the system has randomness");
    (Uuid::new_v4(), secret)
}

/// 16 random bytes for each new account, for seals that survive the erasure of its subject. One call
/// to the system for all of them.
fn new_blinds(count: usize) -> Vec<Uuid> {
    let mut random = vec![0; 16 * count];
    getrandom::fill(&mut random).expect("the system has randomness");
    let (blinds, _) = random.as_chunks();
    blinds.iter().copied().map(Uuid::from_bytes).collect()
}

fn stored_identity(id: Uuid, secret: &[u8]) -> Result<Identity, LedgerError> {
    Ok(Identity::new(id, decode_hash(secret)?))
}

fn decode_hash(bytes: &[u8]) -> Result<[u8; 32], LedgerError> {
    bytes
        .try_into()
        .map_err(|_| LedgerError::Corrupt(format!("a secret of {} bytes", bytes.len())))
}

fn decode_name(name: &str) -> Result<PolicyName, LedgerError> {
    PolicyName::new(name).map_err(|_| LedgerError::Corrupt(format!("a policy's name {name:?}")))
}

fn decode_grant(
    entry: Entry,
    policy: &str,
    subject: Option<String>,
    followers: Followers,
) -> Result<Grant, LedgerError> {
    Ok(Grant {
        entry,
        policy: decode_name(policy)?,
        subject,
        followers,
    })
}
