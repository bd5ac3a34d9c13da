//! Reads a span of the record, page by page.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use chrono::{DateTime, NaiveDate, Utc};

use crate::cut::{NeededEntries, check_cut};
use domain::local_days::LocalDays;
use domain::policy::{Policy, PolicyId};
use domain::zone::Zone;
use ledger::{EntryFilter, EntryIndex, Ledger, LedgerError, ListedEntry};

/// An entry in the record.
#[derive(Debug)]
pub struct RecordedEntry {
    pub position: u64,
    pub recorded_at: DateTime<Utc>,
    /// The local date on which the units count, by the version of the policy that was in force
    /// then.
    pub counted_on: NaiveDate,
    /// The time zone of that version.
    pub zone: Option<Zone>,
    pub listed: ListedEntry,
}

/// How many positions a page reads at most, if no index finds few entries.
const REGION: u64 = 16_384;

/// Entries of the record, in its order.
#[derive(Debug)]
pub struct RecordPage {
    pub entries: Vec<RecordedEntry>,
    /// The position up to which the page was read; `None` at the end. A page may have few entries, or
    /// none, because only some positions were read.
    pub read_to: Option<u64>,
}

/// Reads the entries of a filter, in the order of the record. Invariant: the result never changes,
/// because also the versions of policies are those that were known at the filter's last place. A
/// reader whose next entries may have been dropped ends with [`LedgerError::Archived`].
pub struct RecordReader {
    ledger: Ledger,
    filter: EntryFilter,
    /// The position of the filter's first place.
    after: u64,
    /// What finds the entries. Without an index they are read one after the other.
    index: Option<EntryIndex>,
    /// No entry of the filter counts before this instant.
    counted_from: Option<DateTime<Utc>>,
    versions: HashMap<PolicyId, Vec<Policy>>,
}

impl RecordReader {
    /// `after` and `end` are the positions of the filter's two places; `counted_from` is the instant from
    /// which on the entries count, if the filter has one.
    pub async fn new(
        ledger: Ledger,
        filter: EntryFilter,
        (after, end): (u64, u64),
        counted_from: Option<DateTime<Utc>>,
    ) -> Result<Self, LedgerError> {
        let index = if end.saturating_sub(after) > REGION {
            ledger.record().entry_index(&filter).await?
        } else {
            None
        };
        Ok(Self {
            ledger,
            filter,
            after,
            index,
            counted_from,
            versions: HashMap::new(),
        })
    }

    /// The next entries, at most `limit`. Reads a bounded number of rows, however long the record is.
    pub async fn next(&mut self, limit: u32) -> Result<RecordPage, LedgerError> {
        let mut region = self.filter.clone();
        let mut end = None;
        let listed = match self.index {
            Some(index) => {
                self.ledger
                    .record()
                    .entries_by(index, &region, limit)
                    .await?
            }
            None => {
                let mark = self
                    .ledger
                    .record()
                    .mark_with_position(self.after + REGION)
                    .await?;
                end = mark.filter(|mark| mark.place < region.up_to);
                region.up_to = end.map_or(region.up_to, |mark| mark.place);
                self.ledger.record().entries_in_turn(&region, limit).await?
            }
        };
        self.check_cut().await?;
        let is_full = listed.len() == limit as usize;
        let entries = self.recorded(listed).await?;
        let last = entries.last().filter(|_| is_full);
        let read_to = match (last, end) {
            (Some(last), _) => {
                self.filter.after = last.listed.place;
                Some(last.position)
            }
            (None, Some(end)) => {
                self.filter.after = end.place;
                Some(end.position)
            }
            (None, None) => {
                self.filter.after = self.filter.up_to;
                None
            }
        };
        self.after = read_to.unwrap_or(self.after);
        Ok(RecordPage { entries, read_to })
    }

    /// Checks that no entry of the next page was dropped.
    async fn check_cut(&self) -> Result<(), LedgerError> {
        let needed = match (&self.filter.accounts, self.filter.policy) {
            (Some(accounts), _) => NeededEntries::OfAccounts(accounts),
            (None, Some(policy)) => NeededEntries::OfPolicy(policy),
            (None, None) => NeededEntries::All,
        };
        check_cut(&self.ledger, self.filter.after, self.counted_from, needed).await
    }

    /// As [`RecordReader::next`], for a caller that reads everything: empty only at the end.
    pub async fn next_of_all(&mut self, limit: u32) -> Result<Vec<RecordedEntry>, LedgerError> {
        loop {
            let page = self.next(limit).await?;
            if !page.entries.is_empty() || page.read_to.is_none() {
                return Ok(page.entries);
            }
        }
    }

    /// Adds positions and local dates to entries.
    async fn recorded(
        &mut self,
        listed: Vec<ListedEntry>,
    ) -> Result<Vec<RecordedEntry>, LedgerError> {
        let places = listed.iter().map(|listed| listed.place);
        let positions = self.ledger.record().positions(places).await?;
        let mut entries = Vec::with_capacity(listed.len());
        for (listed, (position, recorded_at)) in listed.into_iter().zip(positions) {
            let versions = match self.versions.entry(listed.policy_id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    let as_of = self.filter.up_to;
                    unknown.insert(
                        self.ledger
                            .record()
                            .known_versions(&listed.policy, as_of)
                            .await?,
                    )
                }
            };
            let days = LocalDays::of(versions);
            let counted_at = listed.entry.counted_at();
            entries.push(RecordedEntry {
                position,
                recorded_at,
                counted_on: days.date(counted_at),
                zone: days.zone(counted_at).cloned(),
                listed,
            });
        }
        Ok(entries)
    }

    /// The newest seal, if it covers a position.
    pub async fn seal_over(&self, position: u64) -> Result<Option<String>, LedgerError> {
        let seal = self.ledger.audit().last_seal().await?;
        let seal = seal.filter(|seal| seal.size >= position);
        Ok(seal.map(|seal| seal.note))
    }

    /// All known versions of each policy that had an entry, oldest first.
    pub fn into_versions(self) -> Vec<Vec<Policy>> {
        let mut policies: Vec<Vec<Policy>> = self.versions.into_values().collect();
        policies.sort_by(|a, b| a[0].name.cmp(&b[0].name));
        policies
    }
}
