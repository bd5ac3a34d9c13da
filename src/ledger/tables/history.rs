//! The history: the entries of all accounts, in the order of the record.

use uuid::Uuid;

use super::grants::{postgres_quarter, sqlite_quarter};
use crate::domain::claim::MetadataFilter;
use crate::domain::grant::{Entry, KindWord};
use crate::domain::identity::{AccountId, EntryId};
use crate::domain::key::KeyNumber;
use crate::domain::policy::{PolicyId, PolicyName};
use crate::domain::record::RecordPlace;
use crate::ledger::encoding::grant_kind;
use crate::ledger::entry_rows::{
    decode_entry, entry_columns, millisecond, named_grant, postgres_metadata, sqlite_metadata,
    with_details,
};
use crate::ledger::query::{Statement, Texts, query};
use crate::ledger::row::StoredRow;
use crate::ledger::{Ledger, LedgerError};

/// The numbers of a kind of entry, from one up to another. Without a kind: all.
fn numbers(word: Option<KindWord>) -> (i16, i16) {
    let numbers = |word: KindWord| word.kinds().map(|kind| kind.facts().number);
    let first = word.and_then(|word| numbers(word).min());
    let last = word.and_then(|word| numbers(word).max());
    (first.unwrap_or(0), last.unwrap_or(i16::MAX))
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
    /// Entries whose own metadata has this member.
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
/// policy $6, of the kinds from $7 to $8, of the key $9, that count from $10 up to $11, with the metadata
/// $12 and $13. $15 says that the accounts do not matter.
macro_rules! listed {
    ($source:expr, $condition:expr) => {
        concat!(
            with_names!(concat!(
                "SELECT e.* FROM ",
                $source,
                " AS e
                 WHERE e.xact >= $1 AND (e.xact, e.id) > ($1, $2)
                     AND e.xact <= $3 AND (e.xact, e.id) <= ($3, $4)
                     AND ($6 IS NULL OR e.policy = $6)
                     AND e.kind BETWEEN $7 AND $8
                     AND ($9 IS NULL OR e.claimed_by = $9) AND ",
                counted_id!(),
                " >= $10 AND ",
                counted_id!(),
                " < $11",
                $condition,
                " ORDER BY e.xact, e.id LIMIT $5"
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

/// The conditions that the stores write differently.
macro_rules! postgres_fits {
    () => {
        concat!(
            " AND ($15 OR e.account = ANY($14))",
            postgres_metadata!("e", "$12", "$13")
        )
    };
}

macro_rules! sqlite_fits {
    () => {
        concat!(
            " AND ($15 OR e.account IN (SELECT unhex(value) FROM json_each($14)))",
            sqlite_metadata!("e", "$12", "$13")
        )
    };
}

/// Entries one after the other.
const IN_TURN: Texts = Texts {
    postgres: listed!("entries", postgres_fits!()),
    sqlite: listed!("entries", sqlite_fits!()),
};

/// The most entries that an index may find, so that a page sorts them: more are read one after the other.
macro_rules! few {
    () => {
        8192
    };
}

/// The first entries that an index finds, one more than [`few!`]. They are in the order of the index, so
/// that no store reads the table instead.
macro_rules! first {
    ($columns:literal, $tables:expr, $condition:expr, $order:expr) => {
        concat!(
            "SELECT * FROM (SELECT ",
            $columns,
            " FROM ",
            $tables,
            " WHERE ",
            $condition,
            " ORDER BY ",
            $order,
            " LIMIT ",
            few!(),
            " + 1) AS first"
        )
    };
}

/// Entries `f` by their details `d`. A count needs no entries.
macro_rules! by_details {
    ("1") => {
        "entry_details AS d"
    };
    ("f.*") => {
        "entry_details AS d JOIN entries AS f ON f.account = d.account AND f.number = d.number"
    };
}

macro_rules! of_accounts {
    (postgres, $columns:tt) => {
        first!(
            $columns,
            "entries AS f",
            "f.account = ANY($14)",
            "f.account, f.number"
        )
    };
    (sqlite, $columns:tt) => {
        first!(
            $columns,
            "entries AS f",
            "f.account IN (SELECT unhex(value) FROM json_each($14))",
            "f.account, f.number"
        )
    };
}

macro_rules! of_kinds {
    ($store:ident, $columns:tt) => {
        first!(
            $columns,
            by_details!($columns),
            concat!("d.kind BETWEEN $7 AND $8 AND d.kind <> ", grant_kind!()),
            "d.kind, d.id"
        )
    };
}

/// Entries that name a grant from $10 up to $11.
macro_rules! named {
    ($columns:tt) => {
        first!(
            $columns,
            by_details!($columns),
            "d.of_grant >= $10 AND d.of_grant < $11",
            "d.of_grant"
        )
    };
}

/// Entries that count by their own ids, in the order of these, which an index serves.
macro_rules! own {
    ($columns:tt, $condition:expr, $order:expr) => {
        first!(
            $columns,
            "entries AS f",
            concat!(
                "f.id >= $10 AND f.id < $11
                 AND f.kind IN (SELECT kind FROM entry_kinds WHERE NOT names_grant) AND ",
                $condition
            ),
            $order
        )
    };
}

/// A part of the id between the same parts of $10 and $11.
macro_rules! between {
    ($part:ident, $id:literal) => {
        concat!(
            $part!($id),
            " BETWEEN ",
            $part!("$10"),
            " AND ",
            $part!("$11")
        )
    };
}

/// Entries that count from $10 up to $11, by their own ids or by the ids of the grants that they name.
macro_rules! counted {
    ($columns:tt, $condition:expr, $order:expr) => {
        concat!(
            own!($columns, $condition, $order),
            " UNION ALL ",
            named!($columns)
        )
    };
    (postgres, $columns:tt) => {
        counted!(
            $columns,
            between!(millisecond, "f.id"),
            millisecond!("f.id")
        )
    };
    (sqlite, $columns:tt) => {
        counted!($columns, "true", "f.id")
    };
}

/// The same for the policy $6.
macro_rules! counted_of_policy {
    (postgres, $columns:tt) => {
        counted_of_policy!(postgres_quarter $columns)
    };
    (sqlite, $columns:tt) => {
        counted_of_policy!(sqlite_quarter $columns)
    };
    ($quarter:ident $columns:tt) => {
        counted!(
            $columns,
            concat!("f.policy = $6 AND ", between!($quarter, "f.id")),
            concat!("f.policy, ", $quarter!("f.id"))
        )
    };
}

/// All entries of the policy $6.
macro_rules! of_policy {
    (postgres, $columns:tt) => {
        of_policy!(postgres_quarter $columns)
    };
    (sqlite, $columns:tt) => {
        of_policy!(sqlite_quarter $columns)
    };
    ($quarter:ident $columns:tt) => {
        first!(
            $columns,
            "entries AS f",
            "f.policy = $6",
            concat!("f.policy, ", $quarter!("f.id"))
        )
    };
}

/// What finds the entries of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryIndex {
    Accounts,
    Kinds,
    Policy,
    Counted,
    CountedOfPolicy,
}

/// The statements of an index: how many entries it finds, and a list of those that fit the filter too.
struct Indexed {
    count: Texts,
    list: Texts,
}

macro_rules! indexed {
    ($choice:ident) => {
        Indexed {
            count: Texts {
                postgres: concat!("SELECT count(*) FROM (", $choice!(postgres, "1"), ") AS f"),
                sqlite: concat!("SELECT count(*) FROM (", $choice!(sqlite, "1"), ") AS f"),
            },
            list: Texts {
                postgres: listed!(
                    concat!("(", $choice!(postgres, "f.*"), ")"),
                    postgres_fits!()
                ),
                sqlite: listed!(concat!("(", $choice!(sqlite, "f.*"), ")"), sqlite_fits!()),
            },
        }
    };
}

const ACCOUNTS: Indexed = indexed!(of_accounts);
const KINDS: Indexed = indexed!(of_kinds);
const POLICY: Indexed = indexed!(of_policy);
const COUNTED: Indexed = indexed!(counted);
const COUNTED_OF_POLICY: Indexed = indexed!(counted_of_policy);

impl EntryIndex {
    const ALL: [Self; 5] = [
        Self::Accounts,
        Self::Kinds,
        Self::Policy,
        Self::CountedOfPolicy,
        Self::Counted,
    ];

    fn statements(self) -> Indexed {
        match self {
            Self::Accounts => ACCOUNTS,
            Self::Kinds => KINDS,
            Self::Policy => POLICY,
            Self::Counted => COUNTED,
            Self::CountedOfPolicy => COUNTED_OF_POLICY,
        }
    }

    /// Whether the index finds all entries of a filter.
    fn serves(self, filter: &EntryFilter) -> bool {
        match self {
            Self::Accounts => filter.accounts.is_some(),
            Self::Kinds => filter.kind.is_some_and(|kind| kind != KindWord::Grant),
            Self::Policy => filter.policy.is_some() && filter.counted.is_none(),
            Self::CountedOfPolicy => filter.policy.is_some() && filter.counted.is_some(),
            Self::Counted => filter.policy.is_none() && filter.counted.is_some(),
        }
    }
}

/// Every statement, by name.
#[cfg(feature = "faults")]
pub(super) fn texts() -> Vec<(String, Texts)> {
    let of_index = |index: EntryIndex| {
        let Indexed { count, list } = index.statements();
        [
            (format!("entries {index:?} count"), count),
            (format!("entries {index:?} list"), list),
        ]
    };
    EntryIndex::ALL
        .into_iter()
        .flat_map(of_index)
        .chain([("entries in turn".to_owned(), IN_TURN)])
        .collect()
}

impl Ledger {
    /// An index that finds few entries for a filter. `None` if there is none.
    pub async fn entry_index(
        &self,
        filter: &EntryFilter,
    ) -> Result<Option<EntryIndex>, LedgerError> {
        let mut held = self.reads().await?;
        let mut session = held.lend();
        for index in EntryIndex::ALL {
            if index.serves(filter) {
                let count = filter.bind(index.statements().count, 0);
                let found: u64 = session.one(count).await?;
                if found <= few!() {
                    return Ok(Some(index));
                }
            }
        }
        Ok(None)
    }

    /// Entries in the order of the record, at most `limit`. Sorts all that an index finds.
    pub async fn entries_by(
        &self,
        index: EntryIndex,
        filter: &EntryFilter,
        limit: u32,
    ) -> Result<Vec<ListedEntry>, LedgerError> {
        let list = filter.bind(index.statements().list, limit);
        self.reads().await?.lend().all(list, decode_listed).await
    }

    /// Entries in the order of the record, at most `limit`. Reads every entry between the filter's
    /// two places.
    pub async fn entries_in_turn(
        &self,
        filter: &EntryFilter,
        limit: u32,
    ) -> Result<Vec<ListedEntry>, LedgerError> {
        let list = filter.bind(IN_TURN, limit);
        self.reads().await?.lend().all(list, decode_listed).await
    }
}

impl EntryFilter {
    /// A statement with the values of $1 to $15.
    fn bind(&self, texts: Texts, limit: u32) -> Statement {
        let CountedSpan(from, to) = self.counted.unwrap_or(CountedSpan::ALL);
        let (first, last) = numbers(self.kind);
        query(texts)
            .bind(self.after.xact)
            .bind(self.after.id)
            .bind(self.up_to.xact)
            .bind(self.up_to.id)
            .bind(limit)
            .bind(self.policy)
            .bind(first)
            .bind(last)
            .bind(self.by.map(|number| number.0))
            .bind(from)
            .bind(to)
            .metadata(self.metadata.as_ref())
            .bind(self.accounts.as_deref().unwrap_or_default())
            .bind(self.accounts.is_none())
    }
}
