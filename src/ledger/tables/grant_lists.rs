//! Lists of grants.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::grants::{decode, grants_where, partial_reversals, postgres_quarter, sqlite_quarter};
use crate::domain::claim::MetadataFilter;
use crate::domain::grant::{Grant, GrantState, Provisional};
use crate::domain::identity::{AccountId, EntryId, KeyId};
use crate::domain::key::KeyNumber;
use crate::domain::policy::PolicyId;
use crate::ledger::access::Snapshot;
use crate::ledger::encoding::{encode_flags, flag, grant_kind};
use crate::ledger::entry_rows::{
    entry_columns, millisecond, postgres_metadata, sqlite_metadata, with_details,
};
use crate::ledger::query::{Session, Statement, Texts, any_id, query};
use crate::ledger::row::only;
use crate::ledger::{Ledger, LedgerError};

/// Whose grants to list.
#[derive(Debug, Clone)]
pub enum GrantScope {
    All,
    Policy(PolicyId),
    Accounts(Vec<AccountId>),
    Keys(Vec<KeyId>),
}

/// Which grants to list: grants of a scope, in a span of ids. A span of ids is a span of time.
#[derive(Debug, Clone)]
pub struct GrantFilter {
    pub scope: GrantScope,
    pub from: EntryId,
    /// The first id that is not listed.
    pub to: EntryId,
    /// Only grants that are in this state at the instant `now`.
    pub state: Option<GrantState>,
    pub now: DateTime<Utc>,
    /// Only grants that Redis alone decided: all of them, or those that went over a limit.
    pub provisional: Option<ProvisionalScope>,
    /// Only grants that an observing policy would have denied.
    pub would_deny: bool,
    /// Only grants that this key claimed.
    pub by: Option<KeyNumber>,
    /// Only grants whose metadata has this member. Not together with all grants of all policies.
    pub metadata: Option<MetadataFilter>,
}

impl GrantFilter {
    /// Every grant of a scope, as seen at an instant.
    pub fn of(scope: GrantScope, now: DateTime<Utc>) -> Self {
        Self {
            scope,
            from: EntryId(Uuid::nil()),
            to: EntryId(Uuid::max()),
            state: None,
            now,
            provisional: None,
            would_deny: false,
            by: None,
            metadata: None,
        }
    }

    /// The flags that a grant must have.
    fn flags(&self) -> i16 {
        let provisional = self.provisional.map(|scope| match scope {
            ProvisionalScope::All => Provisional::Within,
            ProvisionalScope::Over => Provisional::Over,
        });
        encode_flags(provisional, self.would_deny)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProvisionalScope {
    All,
    /// Grants that went over a limit.
    Over,
}

/// When the hold `g` lapses; NULL for other grants.
macro_rules! held_until {
    () => {
        "(SELECT held_until FROM entry_details WHERE account = g.account AND number = g.number)"
    };
}

/// An entry that names the grant `g`; NULL if there is none. It is a subquery with
/// LIMIT, which PostgreSQL looks up by index. For an EXISTS inside a CASE it would read the whole
/// table.
macro_rules! follower {
    ($of_kinds:literal) => {
        concat!(
            "(SELECT id FROM entry_details WHERE of_grant = g.id
                 AND kind IN (SELECT kind FROM entry_kinds WHERE ",
            $of_kinds,
            ") LIMIT 1)"
        )
    };
}

/// A choice of grants in a form that an index serves: ids from $1 up to $2, in the state $4 at the
/// instant $5, with the flags $6, of the key $7; at most $3.
macro_rules! listed_where {
    ($choice:expr, $order:expr) => {
        grants_where!(
            $choice,
            " AND g.kind = ",
            grant_kind!(),
            " AND g.id >= $1 AND g.id < $2 AND g.flags & $6 = $6
              AND ($7 IS NULL OR g.claimed_by = $7) AND CASE $4
                  WHEN 'held' THEN ",
            held_until!(),
            " > $5 AND ",
            follower!("ends_hold"),
            " IS NULL
                  WHEN 'granted' THEN (",
            held_until!(),
            " IS NULL OR ",
            follower!("ends_hold AND closes_as IS NULL"),
            " IS NOT NULL) AND ",
            follower!("closes_as IS NOT NULL"),
            " IS NULL
                  WHEN 'reversed' THEN ",
            follower!("closes_as = 'reversed'"),
            " IS NOT NULL
                  WHEN 'lapsed' THEN ",
            follower!("closes_as = 'lapsed'"),
            " IS NOT NULL OR ",
            held_until!(),
            " <= $5 AND ",
            follower!("ends_hold"),
            " IS NULL
                  ELSE true END
              ORDER BY ",
            $order,
            " DESC LIMIT $3"
        )
    };
}

/// How many rows of an index a list with filters reads at most for a page. A filter may fit few of them.
macro_rules! reach {
    () => {
        3072
    };
}

/// The id of the last row of an index, from $1 up to $2, that a page reads.
macro_rules! end_of {
    ($rows:expr, $id:literal, $order:expr) => {
        concat!(
            "SELECT ",
            $id,
            " AS id FROM ",
            $rows,
            " AND ",
            $id,
            " >= $1 AND ",
            $id,
            " < $2 ORDER BY ",
            $order,
            " DESC LIMIT 1 OFFSET ",
            reach!()
        )
    };
}

/// A list of grants by an index.
#[derive(Clone, Copy)]
struct IndexedGrants {
    list: Texts,
    end: Texts,
}

/// The rows of an index are grants. They have a condition of their own, for the list alone.
macro_rules! grants_by {
    ($postgres:expr, $sqlite:expr, $postgres_order:expr, $sqlite_order:expr) => {
        IndexedGrants {
            list: Texts {
                postgres: listed_where!(
                    concat!($postgres, postgres_metadata!("g", "$9", "$10")),
                    $postgres_order
                ),
                sqlite: listed_where!(
                    concat!($sqlite, sqlite_metadata!("g", "$9", "$10")),
                    $sqlite_order
                ),
            },
            end: Texts {
                postgres: end_of!($postgres, "g.id", $postgres_order),
                sqlite: end_of!($sqlite, "g.id", $sqlite_order),
            },
        }
    };
    ($rows:expr) => {
        grants_by!($rows, $rows, "g.id", "g.id")
    };
}

macro_rules! flagged {
    ($flag:ident) => {
        concat!(
            "entries AS g WHERE (g.flags & ",
            flag!($flag),
            ") <> 0 AND ($8 IS NULL OR g.policy = $8)"
        )
    };
}

macro_rules! of_policy {
    ($quarter:ident) => {
        concat!(
            "entries AS g WHERE g.policy = $8 AND ",
            $quarter!("g.id"),
            " BETWEEN ",
            $quarter!("$1"),
            " AND ",
            $quarter!("$2")
        )
    };
}

const ALL: IndexedGrants = grants_by!(
    concat!(
        "entries AS g WHERE ",
        millisecond!("g.id"),
        " BETWEEN ",
        millisecond!("$1"),
        " AND ",
        millisecond!("$2")
    ),
    "entries AS g WHERE true",
    concat!(millisecond!("g.id"), " DESC, g.id"),
    "g.id"
);
const OF_POLICY: IndexedGrants = grants_by!(
    of_policy!(postgres_quarter),
    of_policy!(sqlite_quarter),
    concat!("g.policy DESC, ", postgres_quarter!("g.id"), " DESC, g.id"),
    concat!("g.policy DESC, ", sqlite_quarter!("g.id"), " DESC, g.id")
);
const PROVISIONAL: IndexedGrants = grants_by!(flagged!(PROVISIONAL));
const WOULD_DENY: IndexedGrants = grants_by!(flagged!(WOULD_DENY));

macro_rules! holds {
    ($metadata:expr) => {
        listed_where!(
            concat!(
                "entry_details AS hold
     JOIN entries AS g ON g.account = hold.account AND g.number = hold.number
     WHERE hold.held_until IS NOT NULL AND hold.id >= $1 AND hold.id < $2
        AND ($8 IS NULL OR g.policy = $8)",
                $metadata
            ),
            "hold.id"
        )
    };
}

macro_rules! end_of_holds {
    () => {
        end_of!(
            "entry_details AS hold WHERE hold.held_until IS NOT NULL",
            "hold.id",
            "hold.id"
        )
    };
}

const HOLDS: IndexedGrants = IndexedGrants {
    list: Texts {
        postgres: holds!(postgres_metadata!("g", "$9", "$10")),
        sqlite: holds!(sqlite_metadata!("g", "$9", "$10")),
    },
    end: Texts {
        postgres: end_of_holds!(),
        sqlite: end_of_holds!(),
    },
};

/// The grants `g` that the reversals `r` name.
macro_rules! reversed {
    ($metadata:expr, $($grants:expr),+) => {
        listed_where!(
            concat!(
                "entry_details AS r ",
                $($grants,)+
                " WHERE r.kind IN (SELECT kind FROM entry_kinds WHERE closes_as = 'reversed')
                  AND r.of_grant >= $1 AND r.of_grant < $2 AND ($8 IS NULL OR g.policy = $8)",
                $metadata
            ),
            "r.of_grant"
        )
    };
}

/// Rows of all kinds that name a grant: the index has no kind.
macro_rules! end_of_reversed {
    () => {
        end_of!(
            "entry_details AS r WHERE r.of_grant IS NOT NULL",
            "r.of_grant",
            "r.of_grant"
        )
    };
}

const REVERSED: IndexedGrants = IndexedGrants {
    list: Texts {
        postgres: reversed!(
            postgres_metadata!("g", "$9", "$10"),
            "CROSS JOIN LATERAL (
            SELECT * FROM entries WHERE ",
            millisecond!("id"),
            " = ",
            millisecond!("r.of_grant"),
            " AND id = r.of_grant LIMIT 1
         ) AS g"
        ),
        sqlite: reversed!(
            sqlite_metadata!("g", "$9", "$10"),
            "JOIN entries AS g ON g.id = r.of_grant"
        ),
    },
    end: Texts {
        postgres: end_of_reversed!(),
        sqlite: end_of_reversed!(),
    },
};

macro_rules! of_accounts {
    ($of_these:expr, $metadata:expr) => {
        listed_where!(
            concat!("entries AS g WHERE g.account", $of_these, $metadata),
            "g.id"
        )
    };
}

macro_rules! of_keys {
    ($of_these:expr, $metadata:expr) => {
        listed_where!(
            concat!("entries AS g WHERE g.key", $of_these, $metadata),
            "g.id"
        )
    };
}

const OF_ACCOUNTS: Texts = any_id!(
    of_accounts,
    "$8",
    postgres_metadata!("g", "$9", "$10"),
    sqlite_metadata!("g", "$9", "$10")
);
const OF_KEYS: Texts = any_id!(
    of_keys,
    "$8",
    postgres_metadata!("g", "$9", "$10"),
    sqlite_metadata!("g", "$9", "$10")
);

/// Every statement of a list, by name.
#[cfg(feature = "faults")]
pub(super) fn texts() -> Vec<(String, Texts)> {
    let of_index = |(name, IndexedGrants { list, end })| {
        [
            (format!("grants {name} list"), list),
            (format!("grants {name} end"), end),
        ]
    };
    let indexed = [
        ("all", ALL),
        ("policy", OF_POLICY),
        ("provisional", PROVISIONAL),
        ("would deny", WOULD_DENY),
        ("holds", HOLDS),
        ("reversed", REVERSED),
    ];
    let others = [
        ("grants of accounts", OF_ACCOUNTS),
        ("grants of keys", OF_KEYS),
    ];
    let others = others.map(|(name, texts)| (name.to_owned(), texts));
    indexed
        .into_iter()
        .flat_map(of_index)
        .chain(others)
        .collect()
}

/// Grants that a list found.
#[derive(Debug)]
pub struct FoundGrants {
    pub grants: Vec<Grant>,
    /// The id below which the list goes on; `None` at the end. There may be few grants, or none, because
    /// only some rows were read.
    pub below: Option<EntryId>,
}

impl Ledger {
    /// Grants, newest first, at most `limit`.
    pub async fn grants(
        &self,
        filter: &GrantFilter,
        limit: u32,
    ) -> Result<FoundGrants, LedgerError> {
        grants(&mut self.reads().await?.lend(), filter, limit).await
    }
}

impl Snapshot {
    /// As [`Ledger::grants`], as of the beginning of the snapshot.
    pub async fn grants(
        &mut self,
        filter: &GrantFilter,
        limit: u32,
    ) -> Result<FoundGrants, LedgerError> {
        grants(&mut self.0.lend(), filter, limit).await
    }
}

impl GrantFilter {
    /// The index for a list without accounts and keys. There are few holds and reversals among grants,
    /// so these states have queries of their own.
    fn index(&self) -> IndexedGrants {
        match (&self.state, self.provisional, self.would_deny) {
            (Some(GrantState::Held | GrantState::Lapsed), ..) => HOLDS,
            (Some(GrantState::Reversed), ..) => REVERSED,
            (_, Some(_), _) => PROVISIONAL,
            (_, None, true) => WOULD_DENY,
            (_, None, false) => match self.scope {
                GrantScope::Policy(_) => OF_POLICY,
                _ => ALL,
            },
        }
    }

    /// Whether few rows of the index may fit.
    fn is_narrow(&self) -> bool {
        self.state.is_some()
            || self.provisional.is_some()
            || self.would_deny
            || self.by.is_some()
            || self.metadata.is_some()
    }

    /// A statement with the values of $1 to $10, for ids from the first one on.
    fn bind(&self, texts: Texts, from: EntryId, limit: u32) -> Statement {
        let list = query(texts)
            .bind(from)
            .bind(self.to)
            .bind(limit)
            .bind(self.state.map(GrantState::as_str))
            .bind(self.now)
            .bind(self.flags())
            .bind(self.by.map(|number| number.0));
        let list = match &self.scope {
            GrantScope::All => list.bind(None::<PolicyId>),
            GrantScope::Policy(policy) => list.bind(*policy),
            GrantScope::Accounts(accounts) => list.bind(accounts.as_slice()),
            GrantScope::Keys(keys) => list.bind(keys.as_slice()),
        };
        list.metadata(self.metadata.as_ref())
    }
}

async fn grants(
    session: &mut Session<'_>,
    filter: &GrantFilter,
    limit: u32,
) -> Result<FoundGrants, LedgerError> {
    let (list, end) = match filter.scope {
        GrantScope::Accounts(_) => (OF_ACCOUNTS, None),
        GrantScope::Keys(_) => (OF_KEYS, None),
        GrantScope::Policy(_) | GrantScope::All => {
            let IndexedGrants { list, end } = filter.index();
            (list, Some(end).filter(|_| filter.is_narrow()))
        }
    };
    let end: Option<EntryId> = match end {
        Some(end) => {
            session
                .first(filter.bind(end, filter.from, 0), only)
                .await?
        }
        None => None,
    };
    let from = end.unwrap_or(filter.from);
    let list = filter.bind(list, from, limit);
    let grants = session.all(list, decode).await?;
    let last = grants.last().filter(|_| grants.len() == limit as usize);
    let below = last.map(|last| last.entry.id).or(end);
    Ok(FoundGrants { grants, below })
}
