//! Lists of grants.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::grants::decode;
use crate::access::Snapshot;
use crate::boxed;
use crate::encoding::encode_marks;
use crate::query::{Session, Statement, Texts, query};
use crate::row::only;
use crate::{LedgerError, RecordTables};
use domain::claim::MetadataFilter;
use domain::grant::{Grant, GrantState, Provisional};
use domain::identity::{AccountId, EntryId, KeyId};
use domain::key::KeyNumber;
use domain::policy::PolicyId;

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
        encode_marks(provisional, self.would_deny)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProvisionalScope {
    All,
    /// Grants that went over a limit.
    Over,
}

/// How many rows of an index a list with filters reads at most for a page. A filter may fit few of them.
const REACH: u32 = 3072;

/// A list of grants by an index. `list` has the ids from $1 up to $2, in the state $4 at the instant $5, with
/// the flags $6, of the key $7, with the metadata $9 and $10; at most $3. `end` has the id of the last row of
/// the index that a page reads: the one after $3 rows.
///
/// The first part of a list chooses grants by the index, and the second one reads what belongs to them, so that
/// it is read for no grant that is not on the page. Without `$6 = 0` PostgreSQL would take
/// `flags & 0 = 0` for a rare match, and sort all grants of a span instead of following the index.
#[derive(Clone, Copy)]
struct IndexedGrants {
    list: Texts,
    end: Texts,
}

/// The list of the grants with `$found` that fit the filter, in the order `$order`, on PostgreSQL.
macro_rules! postgres_list {
    ($found:literal, $order:literal) => {
        concat!(
            "SELECT g.* FROM (
                SELECT account, number FROM grant_states
                WHERE ",
            $found,
            " id >= $1 AND id < $2
                    AND ($6 = 0 OR flags & $6 = $6) AND ($7 IS NULL OR claimed_by = $7)
                    AND ($4 IS NULL OR $4 = COALESCE(ended_as, CASE held_until <= $5
                        WHEN true THEN 'lapsed' WHEN false THEN 'held' ELSE 'granted' END))
                    AND ($9 IS NULL OR CASE
                        WHEN json_typeof(metadata::json -> $9) IN ('string', 'number', 'boolean')
                        THEN metadata::json ->> $9 = $10 END)
                ORDER BY ",
            $order,
            " LIMIT $3
            ) AS first
            JOIN grant_rows AS g ON g.account = first.account AND g.number = first.number
            ORDER BY g.id DESC"
        )
    };
}

/// The same on SQLite.
macro_rules! sqlite_list {
    ($found:literal, $order:literal) => {
        concat!(
            "SELECT g.* FROM (
                SELECT account, number FROM grant_states
                WHERE ",
            $found,
            r#" id >= $1 AND id < $2
                    AND ($6 = 0 OR flags & $6 = $6) AND ($7 IS NULL OR claimed_by = $7)
                    AND ($4 IS NULL OR $4 = COALESCE(ended_as, CASE held_until <= $5
                        WHEN true THEN 'lapsed' WHEN false THEN 'held' ELSE 'granted' END))
                    AND ($9 IS NULL OR CASE json_type(metadata, '$."' || $9 || '"')
                        WHEN 'text' THEN metadata ->> ('$."' || $9 || '"') = $10
                        WHEN 'object' THEN false WHEN 'array' THEN false WHEN 'null' THEN false
                        ELSE metadata -> ('$."' || $9 || '"') = $10 END)
                ORDER BY "#,
            $order,
            " LIMIT $3
            ) AS first
            JOIN grant_rows AS g ON g.account = first.account AND g.number = first.number
            ORDER BY g.id DESC"
        )
    };
}

/// All grants. SQLite has an index of whole ids, PostgreSQL one of their milliseconds.
const ALL: IndexedGrants = IndexedGrants {
    list: Texts {
        postgres: postgres_list!(
            "substring(uuid_send(id), 1, 6)
                BETWEEN substring(uuid_send($1), 1, 6) AND substring(uuid_send($2), 1, 6) AND",
            "substring(uuid_send(id), 1, 6) DESC, id DESC"
        ),
        sqlite: sqlite_list!("", "id DESC"),
    },
    end: Texts {
        postgres: "SELECT id FROM entries
            WHERE substring(uuid_send(id), 1, 6)
                    BETWEEN substring(uuid_send($1), 1, 6) AND substring(uuid_send($2), 1, 6)
                AND id >= $1 AND id < $2
            ORDER BY substring(uuid_send(id), 1, 6) DESC, id DESC LIMIT 1 OFFSET $3",
        sqlite: "SELECT id FROM entries WHERE id >= $1 AND id < $2
            ORDER BY id DESC LIMIT 1 OFFSET $3",
    },
};
/// The grants of a policy, by the quarter of a second of their ids.
const OF_POLICY: IndexedGrants = IndexedGrants {
    list: Texts {
        postgres: postgres_list!(
            "policy_id = $8 AND substring(uuid_send(id), 1, 5)
                BETWEEN substring(uuid_send($1), 1, 5) AND substring(uuid_send($2), 1, 5) AND",
            "policy_id DESC, substring(uuid_send(id), 1, 5) DESC, id DESC"
        ),
        sqlite: sqlite_list!(
            "policy_id = $8 AND substr(id, 1, 5) BETWEEN substr($1, 1, 5) AND substr($2, 1, 5) AND",
            "policy_id DESC, substr(id, 1, 5) DESC, id DESC"
        ),
    },
    end: Texts {
        postgres: "SELECT id FROM entries
            WHERE policy = $8 AND substring(uuid_send(id), 1, 5)
                    BETWEEN substring(uuid_send($1), 1, 5) AND substring(uuid_send($2), 1, 5)
                AND id >= $1 AND id < $2
            ORDER BY policy DESC, substring(uuid_send(id), 1, 5) DESC, id DESC LIMIT 1 OFFSET $3",
        sqlite: "SELECT id FROM entries
            WHERE policy = $8 AND substr(id, 1, 5) BETWEEN substr($1, 1, 5) AND substr($2, 1, 5)
                AND id >= $1 AND id < $2
            ORDER BY policy DESC, substr(id, 1, 5) DESC, id DESC LIMIT 1 OFFSET $3",
    },
};
const PROVISIONAL: IndexedGrants = IndexedGrants {
    list: Texts {
        postgres: postgres_list!(
            "(flags & 1) <> 0 AND ($8 IS NULL OR policy_id = $8) AND",
            "id DESC"
        ),
        sqlite: sqlite_list!(
            "(flags & 1) <> 0 AND ($8 IS NULL OR policy_id = $8) AND",
            "id DESC"
        ),
    },
    end: Texts {
        postgres: "SELECT id FROM entries WHERE (flags & 1) <> 0 AND ($8 IS NULL OR policy = $8)
            AND id >= $1 AND id < $2 ORDER BY id DESC LIMIT 1 OFFSET $3",
        sqlite: "SELECT id FROM entries WHERE (flags & 1) <> 0 AND ($8 IS NULL OR policy = $8)
            AND id >= $1 AND id < $2 ORDER BY id DESC LIMIT 1 OFFSET $3",
    },
};
const WOULD_DENY: IndexedGrants = IndexedGrants {
    list: Texts {
        postgres: postgres_list!(
            "(flags & 4) <> 0 AND ($8 IS NULL OR policy_id = $8) AND",
            "id DESC"
        ),
        sqlite: sqlite_list!(
            "(flags & 4) <> 0 AND ($8 IS NULL OR policy_id = $8) AND",
            "id DESC"
        ),
    },
    end: Texts {
        postgres: "SELECT id FROM entries WHERE (flags & 4) <> 0 AND ($8 IS NULL OR policy = $8)
            AND id >= $1 AND id < $2 ORDER BY id DESC LIMIT 1 OFFSET $3",
        sqlite: "SELECT id FROM entries WHERE (flags & 4) <> 0 AND ($8 IS NULL OR policy = $8)
            AND id >= $1 AND id < $2 ORDER BY id DESC LIMIT 1 OFFSET $3",
    },
};
const HOLDS: IndexedGrants = IndexedGrants {
    list: Texts {
        postgres: "SELECT g.* FROM (
            SELECT g.account, g.number FROM entry_details AS hold
            JOIN grant_states AS g ON g.account = hold.account AND g.number = hold.number
            WHERE hold.held_until IS NOT NULL AND hold.id >= $1 AND hold.id < $2
                AND ($8 IS NULL OR g.policy_id = $8)
                AND ($6 = 0 OR g.flags & $6 = $6) AND ($7 IS NULL OR g.claimed_by = $7)
                AND ($4 IS NULL OR $4 = COALESCE(g.ended_as, CASE g.held_until <= $5
                    WHEN true THEN 'lapsed' WHEN false THEN 'held' ELSE 'granted' END))
                AND ($9 IS NULL OR CASE
                    WHEN json_typeof(g.metadata::json -> $9) IN ('string', 'number', 'boolean')
                    THEN g.metadata::json ->> $9 = $10 END)
            ORDER BY hold.id DESC LIMIT $3
        ) AS first
        JOIN grant_rows AS g ON g.account = first.account AND g.number = first.number
        ORDER BY g.id DESC",
        sqlite: r#"SELECT g.* FROM (
            SELECT g.account, g.number FROM entry_details AS hold
            JOIN grant_states AS g ON g.account = hold.account AND g.number = hold.number
            WHERE hold.held_until IS NOT NULL AND hold.id >= $1 AND hold.id < $2
                AND ($8 IS NULL OR g.policy_id = $8)
                AND ($6 = 0 OR g.flags & $6 = $6) AND ($7 IS NULL OR g.claimed_by = $7)
                AND ($4 IS NULL OR $4 = COALESCE(g.ended_as, CASE g.held_until <= $5
                    WHEN true THEN 'lapsed' WHEN false THEN 'held' ELSE 'granted' END))
                AND ($9 IS NULL OR CASE json_type(g.metadata, '$."' || $9 || '"')
                    WHEN 'text' THEN g.metadata ->> ('$."' || $9 || '"') = $10
                    WHEN 'object' THEN false WHEN 'array' THEN false WHEN 'null' THEN false
                    ELSE g.metadata -> ('$."' || $9 || '"') = $10 END)
            ORDER BY hold.id DESC LIMIT $3
        ) AS first
        JOIN grant_rows AS g ON g.account = first.account AND g.number = first.number
        ORDER BY g.id DESC"#,
    },
    end: Texts {
        postgres: "SELECT id FROM entry_details WHERE held_until IS NOT NULL
            AND id >= $1 AND id < $2 ORDER BY id DESC LIMIT 1 OFFSET $3",
        sqlite: "SELECT id FROM entry_details WHERE held_until IS NOT NULL
            AND id >= $1 AND id < $2 ORDER BY id DESC LIMIT 1 OFFSET $3",
    },
};
/// The grants that reversals name. Rows of all kinds that name a grant end a page: the index has no kind.
const REVERSED: IndexedGrants = IndexedGrants {
    list: Texts {
        postgres: "SELECT g.* FROM (
            SELECT g.account, g.number FROM entry_details AS r
            CROSS JOIN LATERAL (
                SELECT account, number, policy_id, flags, claimed_by, metadata FROM grant_states
                WHERE substring(uuid_send(id), 1, 6) = substring(uuid_send(r.of_grant), 1, 6)
                    AND id = r.of_grant LIMIT 1
            ) AS g
            WHERE r.kind IN (SELECT kind FROM entry_kinds WHERE closes_as = 'reversed')
                AND r.of_grant >= $1 AND r.of_grant < $2 AND ($8 IS NULL OR g.policy_id = $8)
                AND ($6 = 0 OR g.flags & $6 = $6) AND ($7 IS NULL OR g.claimed_by = $7)
                AND ($9 IS NULL OR CASE
                    WHEN json_typeof(g.metadata::json -> $9) IN ('string', 'number', 'boolean')
                    THEN g.metadata::json ->> $9 = $10 END)
            ORDER BY r.of_grant DESC LIMIT $3
        ) AS first
        JOIN grant_rows AS g ON g.account = first.account AND g.number = first.number
        ORDER BY g.id DESC",
        sqlite: r#"SELECT g.* FROM (
            SELECT g.account, g.number FROM entry_details AS r
            JOIN grant_states AS g ON g.id = r.of_grant
            WHERE r.kind IN (SELECT kind FROM entry_kinds WHERE closes_as = 'reversed')
                AND r.of_grant >= $1 AND r.of_grant < $2 AND ($8 IS NULL OR g.policy_id = $8)
                AND ($6 = 0 OR g.flags & $6 = $6) AND ($7 IS NULL OR g.claimed_by = $7)
                AND ($9 IS NULL OR CASE json_type(g.metadata, '$."' || $9 || '"')
                    WHEN 'text' THEN g.metadata ->> ('$."' || $9 || '"') = $10
                    WHEN 'object' THEN false WHEN 'array' THEN false WHEN 'null' THEN false
                    ELSE g.metadata -> ('$."' || $9 || '"') = $10 END)
            ORDER BY r.of_grant DESC LIMIT $3
        ) AS first
        JOIN grant_rows AS g ON g.account = first.account AND g.number = first.number
        ORDER BY g.id DESC"#,
    },
    end: Texts {
        postgres: "SELECT of_grant AS id FROM entry_details WHERE of_grant IS NOT NULL
            AND of_grant >= $1 AND of_grant < $2 ORDER BY of_grant DESC LIMIT 1 OFFSET $3",
        sqlite: "SELECT of_grant AS id FROM entry_details WHERE of_grant IS NOT NULL
            AND of_grant >= $1 AND of_grant < $2 ORDER BY of_grant DESC LIMIT 1 OFFSET $3",
    },
};
const OF_ACCOUNTS: Texts = Texts {
    postgres: postgres_list!("account = ANY($8) AND", "id DESC"),
    sqlite: sqlite_list!(
        "account IN (SELECT unhex(value) FROM json_each($8)) AND",
        "id DESC"
    ),
};
const OF_KEYS: Texts = Texts {
    postgres: postgres_list!("key = ANY($8) AND", "id DESC"),
    sqlite: sqlite_list!(
        "key IN (SELECT unhex(value) FROM json_each($8)) AND",
        "id DESC"
    ),
};

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

impl RecordTables {
    /// Grants, newest first, at most `limit`.
    #[boxed]
    pub async fn grants(
        &self,
        filter: &GrantFilter,
        limit: u32,
    ) -> Result<FoundGrants, LedgerError> {
        grants(&mut self.ledger.reads().await?.lend(), filter, limit).await
    }
}

impl Snapshot {
    /// As [`RecordTables::grants`], as of the beginning of the snapshot.
    #[boxed]
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
                .first(filter.bind(end, filter.from, REACH), only)
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
