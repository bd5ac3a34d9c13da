//! Reads a span of the record, page by page.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use chrono::{DateTime, NaiveDate, Utc};

use super::cut::check_cut;
use super::positions::positions;
use crate::domain::local_days::LocalDays;
use crate::domain::policy::{Policy, PolicyId};
use crate::domain::record::RecordPlace;
use crate::domain::zone::Zone;
use crate::ledger::{EntryFilter, Ledger, LedgerError, ListedEntry};

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

/// The number of marks of a region: about 65,000 positions.
const REGION_MARKS: u32 = 256;

/// The place up to which the versions of policies are known to a reader up to `up_to`. Old changes,
/// from before the numbering of transactions, come after all old entries.
pub fn known_as_of(up_to: RecordPlace) -> RecordPlace {
    up_to.max(RecordPlace::OLD_END)
}

/// Reads the entries of a filter, in the order of the record. Invariant: the result never changes,
/// because also the versions of policies are those that were known at the filter's last place. A
/// reader whose next entries may have been dropped ends with [`LedgerError::Archived`].
pub struct RecordReader {
    ledger: Ledger,
    filter: EntryFilter,
    /// No entry of the filter counts before this instant.
    counted_from: Option<DateTime<Utc>>,
    versions: HashMap<PolicyId, Vec<Policy>>,
}

impl RecordReader {
    /// `counted_from` is the instant from which on the entries count, if the filter has one.
    pub fn new(ledger: Ledger, filter: EntryFilter, counted_from: Option<DateTime<Utc>>) -> Self {
        Self {
            ledger,
            filter,
            counted_from,
            versions: HashMap::new(),
        }
    }

    /// The next entries, at most `limit`. Empty only at the end.
    pub async fn next(&mut self, limit: u32) -> Result<Vec<RecordedEntry>, LedgerError> {
        let listed = self.ledger.listed_entries(&self.filter, limit).await?;
        self.check_cut_after(self.filter.after).await?;
        self.recorded(listed).await
    }

    /// Checks that no entry after a place was dropped.
    async fn check_cut_after(&self, after: RecordPlace) -> Result<(), LedgerError> {
        let accounts = self.filter.accounts.as_deref();
        check_cut(&self.ledger, after, self.counted_from, accounts).await
    }

    /// As [`RecordReader::next`], for a caller that reads everything. It reads the record once, a
    /// region at a time, however long the span is. An index of instants would be sorted again for
    /// each page.
    pub async fn next_of_all(&mut self, limit: u32) -> Result<Vec<RecordedEntry>, LedgerError> {
        if self.filter.accounts.is_some() {
            return self.next(limit).await;
        }
        let after = self.filter.after;
        while self.filter.after < self.filter.up_to {
            let marks = self
                .ledger
                .marks_from(self.filter.after, REGION_MARKS)
                .await?;
            let end = marks.last().map_or(self.filter.up_to, |mark| mark.place);
            let region = EntryFilter {
                up_to: end.min(self.filter.up_to),
                ..self.filter.clone()
            };
            let listed = self.ledger.entries_in_turn(&region, limit).await?;
            if !listed.is_empty() {
                self.check_cut_after(after).await?;
                return self.recorded(listed).await;
            }
            self.filter.after = region.up_to;
        }
        self.check_cut_after(after).await?;
        Ok(Vec::new())
    }

    /// Adds positions and local dates to entries. Later entries come after these.
    async fn recorded(
        &mut self,
        listed: Vec<ListedEntry>,
    ) -> Result<Vec<RecordedEntry>, LedgerError> {
        if let Some(last) = listed.last() {
            self.filter.after = last.place;
        }
        let places = listed.iter().map(|listed| listed.place);
        let positions = positions(&self.ledger, places).await?;
        let mut entries = Vec::with_capacity(listed.len());
        for (listed, (position, recorded_at)) in listed.into_iter().zip(positions) {
            let versions = match self.versions.entry(listed.policy_id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    let as_of = known_as_of(self.filter.up_to);
                    let versions = self.ledger.known_versions(&listed.policy, as_of).await?;
                    unknown.insert(versions)
                }
            };
            let (days, counted_at) = (LocalDays::of(versions), listed.entry.counted_at());
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
        let seal = self.ledger.last_seal().await?;
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
