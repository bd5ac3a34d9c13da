//! The history: the entries of all accounts, in the order of the record.

use uuid::Uuid;

use super::entry_lists::{EntryIndex, FEW, IN_TURN};
use crate::boxed;
use crate::encoding::encode_crossed;
use crate::entry_rows::decode_entry;
use crate::query::{Statement, Texts, query};
use crate::row::StoredRow;
use crate::{LedgerError, RecordTables};
use domain::claim::MetadataFilter;
use domain::grant::{Entry, KindWord};
use domain::identity::{AccountId, EntryId};
use domain::key::KeyNumber;
use domain::policy::{PolicyId, PolicyName};
use domain::record::RecordPlace;
use domain::warning::Levels;

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
    /// Entries that reached one of these levels of use; none for all entries.
    pub crossed: Levels,
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

impl EntryIndex {
    /// Whether the index finds all entries of a filter.
    fn serves(self, filter: &EntryFilter) -> bool {
        match self {
            Self::Accounts => filter.accounts.is_some(),
            Self::Crossed => !filter.crossed.is_empty(),
            Self::Kinds => filter.kind.is_some_and(|kind| kind != KindWord::Grant),
            Self::Policy => filter.policy.is_some() && filter.counted.is_none(),
            Self::CountedOfPolicy => filter.policy.is_some() && filter.counted.is_some(),
            Self::Counted => filter.policy.is_none() && filter.counted.is_some(),
        }
    }
}

impl RecordTables {
    /// An index that finds few entries for a filter. `None` if there is none.
    #[boxed]
    pub async fn entry_index(
        &self,
        filter: &EntryFilter,
    ) -> Result<Option<EntryIndex>, LedgerError> {
        let mut held = self.ledger.reads().await?;
        let mut session = held.lend();
        for index in EntryIndex::ALL {
            if index.serves(filter) {
                let count = filter.bind(index.statements().count, 0);
                let found: u64 = session.one(count).await?;
                if found <= FEW {
                    return Ok(Some(index));
                }
            }
        }
        Ok(None)
    }

    /// Entries in the order of the record, at most `limit`. Sorts all that an index finds.
    #[boxed]
    pub async fn entries_by(
        &self,
        index: EntryIndex,
        filter: &EntryFilter,
        limit: u32,
    ) -> Result<Vec<ListedEntry>, LedgerError> {
        let list = filter.bind(index.statements().list, limit);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(list, decode_listed)
            .await
    }

    /// Entries in the order of the record, at most `limit`. Reads every entry between the filter's
    /// two places.
    #[boxed]
    pub async fn entries_in_turn(
        &self,
        filter: &EntryFilter,
        limit: u32,
    ) -> Result<Vec<ListedEntry>, LedgerError> {
        let list = filter.bind(IN_TURN, limit);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(list, decode_listed)
            .await
    }
}

impl EntryFilter {
    /// A statement with the values of $1 to $16.
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
            .bind(encode_crossed(self.crossed))
    }
}
