//! An entry, its line and its details, as rows have them.

use uuid::Uuid;

use super::LedgerError;
use super::record::{decode_flags, decode_kind, decode_note, unsigned};
use super::row::row;
use super::values::Stamp;
use crate::domain::claim::{Metadata, Units};
use crate::domain::grant::{Entry, Line};
use crate::domain::identity::{AccountId, EntryId, KeyId};
use crate::domain::key::KeyNumber;
use crate::domain::totals::decode_totals;

/// The columns of an entry `e` and its details `d`.
macro_rules! entry_columns {
    () => {
        "e.account, e.number, e.at, e.policy_version, e.lapses_at, e.totals, e.id, e.kind, e.units,
         e.key, e.metadata, e.flags, e.claimed_by, d.of_grant, d.held_until, d.made_by, d.reason"
    };
}
pub(super) use entry_columns;

/// Joins the details `d` of an entry `e`.
macro_rules! with_details {
    () => {
        " LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number "
    };
}
pub(super) use with_details;

/// The millisecond of an id, by which PostgreSQL indexes all entries.
macro_rules! millisecond {
    ($id:expr) => {
        concat!("substring(uuid_send(", $id, "), 1, 6)")
    };
}
pub(super) use millisecond;

row! {
    pub struct LineRow {
        pub account: Uuid,
        pub number: i64,
        pub at: Stamp,
        pub policy_version: i32,
        pub lapses_at: Option<Stamp>,
        pub totals: String,
    }
}

impl LineRow {
    pub fn decode(self) -> Result<Line, LedgerError> {
        Ok(Line {
            number: unsigned(self.number)?,
            at: self.at.0,
            policy_version: unsigned(self.policy_version.into())?,
            lapses_at: self.lapses_at.map(|at| at.0),
            totals: decode_totals(&self.totals)?.into(),
        })
    }
}

row! {
    pub struct EntryRow {
        ..line: LineRow,
        pub id: Uuid,
        kind: i16,
        units: i64,
        key: Option<Uuid>,
        metadata: Option<String>,
        flags: i16,
        claimed_by: Option<i32>,
        of_grant: Option<Uuid>,
        held_until: Option<Stamp>,
        made_by: Option<String>,
        reason: Option<String>,
    }
}

impl EntryRow {
    pub fn decode(self) -> Result<Entry, LedgerError> {
        let (provisional, would_deny) = decode_flags(self.flags)?;
        let claimed_by = self.claimed_by.map(|number| unsigned(number.into()));
        let held_until = self.held_until.map(|until| until.0);
        Ok(Entry {
            account: AccountId(self.line.account),
            id: EntryId(self.id),
            kind: decode_kind(self.kind, self.of_grant.map(EntryId), held_until)?,
            units: decode_units(self.units)?,
            key: self.key.map(KeyId),
            metadata: self.metadata.map(Metadata::from_stored),
            provisional,
            would_deny,
            claimed_by: claimed_by.transpose()?.map(KeyNumber),
            note: decode_note(self.made_by, self.reason),
            line: self.line.decode()?,
        })
    }
}

/// # Errors
/// [`LedgerError::Corrupt`] for a number that is no claim's units.
pub fn decode_units(units: i64) -> Result<Units, LedgerError> {
    Units::new(units.into()).map_err(|error| LedgerError::Corrupt(error.to_string()))
}
