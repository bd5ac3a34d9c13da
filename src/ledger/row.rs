//! A row of either store, read by column names into the domain's types. A value that cannot be read
//! is [`LedgerError::Corrupt`].

use std::sync::Arc;

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Column as _, Row, ValueRef};
use uuid::Uuid;

use super::LedgerError;
use super::encoding::{decode_hash, decode_name, decode_names, decode_role, narrowed};
use domain::claim::{Subject, Units};
use domain::identity::{AccountId, BundleId, EntryId, KeyId};
use domain::key::{KeyNumber, Role};
use domain::policy::{PolicyId, PolicyName};

#[derive(Clone, Copy)]
pub enum StoredRow<'r> {
    Postgres(&'r PgRow),
    Sqlite(&'r SqliteRow),
}

macro_rules! row {
    ($stored:expr, $row:ident => $read:expr) => {
        match $stored {
            StoredRow::Postgres($row) => $read,
            StoredRow::Sqlite($row) => $read,
        }
    };
}

impl StoredRow<'_> {
    pub fn get<T: Column>(&self, name: &str) -> Result<T, LedgerError> {
        T::read(self, name)
    }
}

/// The value of a row's only column.
pub fn only<T: Column>(row: &StoredRow<'_>) -> Result<T, LedgerError> {
    row.get(row!(row, row => row.try_column(0)?.name()))
}

/// A type that a column can be read into.
pub trait Column: Sized {
    fn read(row: &StoredRow<'_>, name: &str) -> Result<Self, LedgerError>;
}

impl<T: Column> Column for Option<T> {
    fn read(row: &StoredRow<'_>, name: &str) -> Result<Self, LedgerError> {
        if row!(row, row => row.try_get_raw(name)?.is_null()) {
            Ok(None)
        } else {
            T::read(row, name).map(Some)
        }
    }
}

/// Types that sqlx reads from both stores in the same way.
macro_rules! same {
    ($($kind:ty),+) => {
        $(impl Column for $kind {
            fn read(row: &StoredRow<'_>, name: &str) -> Result<Self, LedgerError> {
                Ok(row!(row, row => row.try_get(name)?))
            }
        })+
    };
}

same!(bool, String, Uuid, Vec<u8>);

/// Numbers, whatever width the column has. SQLite's tables are STRICT, so a column of numbers has
/// only numbers.
macro_rules! numbers {
    ($($kind:ty),+) => {
        $(impl Column for $kind {
            fn read(row: &StoredRow<'_>, name: &str) -> Result<Self, LedgerError> {
                narrowed(row!(row, row => row.try_get_unchecked::<i64, _>(name)?))
            }
        })+
    };
}

numbers!(i16, i32, i64, u32, u64);

/// PostgreSQL stores a `timestamptz`, SQLite the microseconds since 1970.
impl Column for DateTime<Utc> {
    fn read(row: &StoredRow<'_>, name: &str) -> Result<Self, LedgerError> {
        match row {
            StoredRow::Postgres(row) => Ok(row.try_get(name)?),
            StoredRow::Sqlite(row) => {
                let micros = row.try_get(name)?;
                DateTime::from_timestamp_micros(micros)
                    .ok_or_else(|| LedgerError::Corrupt(format!("the instant {micros}")))
            }
        }
    }
}

/// Types that are made from another type.
macro_rules! made_of {
    ($($kind:ty, $stored:ident: $stored_kind:ty => $made:expr;)+) => {
        $(impl Column for $kind {
            fn read(row: &StoredRow<'_>, name: &str) -> Result<Self, LedgerError> {
                let $stored: $stored_kind = row.get(name)?;
                $made
            }
        })+
    };
}

made_of! {
    AccountId, id: Uuid => Ok(Self(id));
    EntryId, id: Uuid => Ok(Self(id));
    BundleId, id: Uuid => Ok(Self(id));
    KeyId, id: Uuid => Ok(Self(id));
    PolicyId, number: i32 => Ok(Self(number));
    KeyNumber, number: u32 => Ok(Self(number));
    PolicyName, name: String => decode_name(&name);
    Subject, text: String => Self::new(&text).map_err(corrupt);
    Units, units: i64 => Self::new(units.into()).map_err(corrupt);
    Role, name: String => decode_role(&name);
    Arc<[PolicyName]>, json: String => decode_names(&json);
    NaiveDate, date: String => date.parse().map_err(corrupt);
    [u8; 32], bytes: Vec<u8> => decode_hash(&bytes);
}

fn corrupt(error: impl ToString) -> LedgerError {
    LedgerError::Corrupt(error.to_string())
}
