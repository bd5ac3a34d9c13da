//! The history: the entries of all accounts, in the order of the record.

use uuid::Uuid;

use super::grants::postgres_quarter;
use crate::domain::claim::MetadataFilter;
use crate::domain::grant::{Entry, KindWord};
use crate::domain::identity::{AccountId, EntryId};
use crate::domain::key::KeyNumber;
use crate::domain::policy::{PolicyId, PolicyName};
use crate::domain::record::RecordPlace;
use crate::ledger::encoding::kind;
use crate::ledger::entry_rows::{
    decode_entry, entry_columns, millisecond, named_grant, postgres_from_millisecond,
    postgres_metadata, sqlite_metadata, with_details,
};
use crate::ledger::query::{Statement, Texts, any_id, query};
use crate::ledger::row::StoredRow;
use crate::ledger::{Ledger, LedgerError};

/// One bit for each kind of entry, at the position of the kind's number.
fn bits(word: KindWord) -> i64 {
    match word {
        KindWord::Grant => 1 << kind!(GRANT),
        KindWord::Confirmation => 1 << kind!(CONFIRMATION),
        KindWord::Reversal => 1 << kind!(REVERSAL),
        KindWord::PartialReversal => 1 << kind!(PARTIAL_REVERSAL),
        KindWord::Lapse => 1 << kind!(LAPSE),
        KindWord::Adjustment => 1 << kind!(ADJUSTMENT_UP) | 1 << kind!(ADJUSTMENT_DOWN),
    }
}

/// The instants in whose windows entries count, as ids, from the first up to the second.
#[derive(Debug, Clone, Copy)]
pub struct CountedSpan(pub EntryId, pub EntryId);

impl CountedSpan {
    pub const ALL: Self = Self(EntryId(Uuid::nil()), EntryId(Uuid::max()));
}

/// Which entries to list. Filters combine.
#[derive(Debug, Clone)]
pub struct EntryFilter {
    /// Entries after this place …
    pub after: RecordPlace,
    /// … and up to this place.
    pub up_to: RecordPlace,
    /// Entries of these accounts.
    pub accounts: Option<Vec<AccountId>>,
    /// Entries of this policy.
    pub policy: Option<PolicyId>,
    pub kind: Option<KindWord>,
    /// Entries that this key claimed or corrected.
    pub by: Option<KeyNumber>,
    pub counted: Option<CountedSpan>,
    /// Entries whose own metadata has this member. Needs `accounts` or `counted`.
    pub metadata: Option<MetadataFilter>,
}

/// An entry with what an auditor needs beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEntry {
    pub place: RecordPlace,
    pub entry: Entry,
    pub policy_id: PolicyId,
    pub policy: PolicyName,
    /// `None` after an erasure.
    pub subject: Option<String>,
    /// The id and the present name of the key that claimed or corrected, if the key has a row.
    pub key: Option<(Uuid, String)>,
}

pub(super) fn decode_listed(row: &StoredRow<'_>) -> Result<ListedEntry, LedgerError> {
    let entry = decode_entry(row)?;
    let key: Option<Uuid> = row.get("made_by_key")?;
    let name: Option<String> = row.get("made_by_name")?;
    Ok(ListedEntry {
        place: RecordPlace {
            xact: row.get("xact")?,
            id: entry.id,
            revision: 0,
        },
        policy_id: row.get("policy_id")?,
        policy: row.get("policy")?,
        subject: row.get("subject")?,
        key: key.zip(name),
        entry,
    })
}

/// A query for chosen entries `e`, each with the other fields of [`ListedEntry`].
macro_rules! with_names {
    ($chosen:expr) => {
        concat!(
            "SELECT ",
            entry_columns!(),
            ", e.xact, p.id AS policy_id, p.name AS policy, a.subject, k.id AS made_by_key, (
                 SELECT name FROM key_versions WHERE key = k.id ORDER BY version DESC LIMIT 1
             ) AS made_by_name
             FROM (",
            $chosen,
            ") AS e",
            with_details!(),
            "JOIN policies AS p ON p.id = e.policy
             JOIN accounts AS a ON a.id = e.account
             LEFT JOIN keys AS k ON k.number = e.claimed_by "
        )
    };
}
pub(super) use with_names;

/// A query for the entries `e` of a source: after ($1, $2) and up to ($3, $4), at most $5, of the
/// policy $6, of the kinds $7, of the key $8.
macro_rules! listed {
    ($source:expr, $condition:expr) => {
        listed!($source, $condition, "e.xact, e.id")
    };
    ($source:expr, $condition:expr, $order:expr) => {
        concat!(
            with_names!(concat!(
                "SELECT e.* FROM ",
                $source,
                " AS e
                 WHERE e.xact >= $1 AND (e.xact, e.id) > ($1, $2)
                     AND e.xact <= $3 AND (e.xact, e.id) <= ($3, $4)
                     AND ($6 IS NULL OR e.policy = $6)
                     AND (1 << CAST(e.kind AS integer)) & $7 <> 0
                     AND ($8 IS NULL OR e.claimed_by = $8)",
                $condition,
                " ORDER BY ",
                $order,
                " LIMIT $5"
            )),
            "ORDER BY e.xact, e.id"
        )
    };
}

/// The instant in whose windows an entry counts, as an id: its own id, or the id of the grant that
/// it names.
macro_rules! counted_id {
    () => {
        concat!("COALESCE(", named_grant!(), ", e.id)")
    };
}

/// The condition that the entry counts from $9 up to $10.
macro_rules! counts {
    () => {
        concat!(
            " AND ",
            counted_id!(),
            " >= $9 AND ",
            counted_id!(),
            " < $10"
        )
    };
}

/// The entries that count from $9 up to $10, with metadata, one after the other.
const IN_TURN: Texts = Texts {
    postgres: listed!(
        "entries",
        concat!(counts!(), postgres_metadata!("e", "$11", "$12"))
    ),
    sqlite: listed!(
        "entries",
        concat!(counts!(), sqlite_metadata!("e", "$11", "$12"))
    ),
};

/// The same for the transaction 0, by the index of ids. On SQLite no entry has it.
const OLD_IN_TURN: Texts = Texts {
    postgres: listed!(
        "entries",
        concat!(
            " AND e.xact = 0",
            postgres_from_millisecond!("e.id", "$2"),
            counts!(),
            postgres_metadata!("e", "$11", "$12")
        ),
        concat!(millisecond!("e.id"), ", e.id")
    ),
    sqlite: listed!(
        "entries",
        concat!(
            " AND e.xact = 0",
            counts!(),
            sqlite_metadata!("e", "$11", "$12")
        )
    ),
};

/// The entries of the accounts $13 that count from $9 up to $10, with metadata.
macro_rules! of_accounts {
    ($of_these:expr, $metadata:expr) => {
        listed!(
            "entries",
            concat!(" AND e.account", $of_these, counts!(), $metadata)
        )
    };
}

const OF_ACCOUNTS: Texts = any_id!(
    of_accounts,
    "$13",
    postgres_metadata!("e", "$11", "$12"),
    sqlite_metadata!("e", "$11", "$12")
);

/// The entries that count from $9 up to $10, with metadata: grants and adjustments by their own
/// ids; entries that name a grant by the grant's id.
macro_rules! counted {
    ($by_index:expr, $metadata:expr) => {
        listed!(
            concat!(
                "(SELECT * FROM entries WHERE ",
                $by_index,
                "id >= $9 AND id < $10 AND kind IN (",
                kind!(GRANT),
                ", ",
                kind!(ADJUSTMENT_UP),
                ", ",
                kind!(ADJUSTMENT_DOWN),
                ")
                 UNION ALL SELECT f.* FROM entry_details AS named
                 JOIN entries AS f ON f.account = named.account AND f.number = named.number
                 WHERE named.of_grant >= $9 AND named.of_grant < $10)"
            ),
            $metadata
        )
    };
}

/// PostgreSQL uses the index of the policy, or the index of all ids.
const COUNTED: Texts = Texts {
    postgres: counted!(
        concat!(
            "($6 IS NULL OR policy = $6) AND ",
            postgres_quarter!("id"),
            " BETWEEN ",
            postgres_quarter!("$9"),
            " AND ",
            postgres_quarter!("$10"),
            " AND ",
            millisecond!("id"),
            " BETWEEN ",
            millisecond!("$9"),
            " AND ",
            millisecond!("$10"),
            " AND "
        ),
        postgres_metadata!("e", "$11", "$12")
    ),
    sqlite: counted!("", sqlite_metadata!("e", "$11", "$12")),
};

/// All kinds.
const ANY_KIND: i64 = i32::MAX as i64;

impl Ledger {
    /// Entries in the order of the record, at most `limit`. The filter decides which index finds
    /// them.
    pub async fn listed_entries(
        &self,
        filter: &EntryFilter,
        limit: u32,
    ) -> Result<Vec<ListedEntry>, LedgerError> {
        let list = match (&filter.accounts, filter.counted) {
            (Some(accounts), _) => filter
                .bind(OF_ACCOUNTS, filter.after, limit)
                .bind(accounts.as_slice()),
            (None, Some(_)) => filter.bind(COUNTED, filter.after, limit),
            (None, None) => return self.entries_in_turn(filter, limit).await,
        };
        self.reads().await?.lend().all(list, decode_listed).await
    }

    /// Entries in the order of the record, at most `limit`. Reads every entry between the filter's
    /// two places. Ignores the filter's accounts.
    pub async fn entries_in_turn(
        &self,
        filter: &EntryFilter,
        limit: u32,
    ) -> Result<Vec<ListedEntry>, LedgerError> {
        let mut held = self.reads().await?;
        let mut session = held.lend();
        let mut found = Vec::new();
        if filter.after.xact == 0 {
            let old = filter.bind(OLD_IN_TURN, filter.after, limit);
            found = session.all(old, decode_listed).await?;
        }
        let more = limit - u32::try_from(found.len()).unwrap_or(limit);
        if more > 0 {
            let after = filter.after.max(RecordPlace::NUMBERED);
            let list = filter.bind(IN_TURN, after, more);
            found.extend(session.all(list, decode_listed).await?);
        }
        Ok(found)
    }
}

impl EntryFilter {
    /// A statement with the values of $1 to $12.
    fn bind(&self, texts: Texts, after: RecordPlace, limit: u32) -> Statement {
        let CountedSpan(from, to) = self.counted.unwrap_or(CountedSpan::ALL);
        query(texts)
            .bind(after.xact)
            .bind(after.id)
            .bind(self.up_to.xact)
            .bind(self.up_to.id)
            .bind(limit)
            .bind(self.policy)
            .bind(self.kind.map_or(ANY_KIND, bits))
            .bind(self.by.map(|number| number.0))
            .bind(from)
            .bind(to)
            .metadata(self.metadata.as_ref())
    }
}
