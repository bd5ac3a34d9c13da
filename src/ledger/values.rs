//! The values of a statement, in the form that each store takes.

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::Arguments;
use sqlx::postgres::PgArguments;
use sqlx::sqlite::SqliteArguments;
use uuid::Uuid;

use super::encoding::signed;
use domain::identity::{AccountId, BundleId, EntryId, KeyId};
use domain::policy::{PolicyId, PolicyName};

/// A value of a statement. NULL has a type too: PostgreSQL needs one.
pub enum Value {
    Flag(bool),
    Number(Option<i64>),
    Instant(Option<DateTime<Utc>>),
    Id(Option<Uuid>),
    Text(Option<String>),
    Bytes(Vec<u8>),
    /// An array of ids on PostgreSQL, a JSON array of hexadecimal digits on SQLite.
    Ids(Vec<Uuid>),
    /// An array of texts on PostgreSQL, a JSON array on SQLite.
    Texts(Option<Vec<String>>),
}

macro_rules! values {
    ($($variant:ident { $($kind:ty, $value:ident => $stored:expr;)+ })+) => {
        $($(
            impl From<$kind> for Value {
                fn from($value: $kind) -> Self {
                    Self::$variant(Some($stored))
                }
            }

            impl From<Option<$kind>> for Value {
                fn from(value: Option<$kind>) -> Self {
                    Self::$variant(value.map(|$value| $stored))
                }
            }
        )+)+
    };
}

values! {
    Number {
        i16, number => number.into();
        i64, number => number;
        u32, number => number.into();
        u64, number => signed(number);
        PolicyId, policy => policy.0.into();
    }
    Instant {
        DateTime<Utc>, instant => instant;
    }
    Id {
        Uuid, id => id;
        AccountId, account => account.0;
        EntryId, entry => entry.0;
        BundleId, bundle => bundle.0;
    }
    Text {
        &str, text => text.to_owned();
        String, text => text;
        NaiveDate, date => date.to_string();
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_owned())
    }
}

impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Self {
        Self::Texts(Some(texts))
    }
}

impl From<Vec<Uuid>> for Value {
    fn from(ids: Vec<Uuid>) -> Self {
        Self::Ids(ids)
    }
}

impl From<&[AccountId]> for Value {
    fn from(accounts: &[AccountId]) -> Self {
        Self::Ids(accounts.iter().map(|account| account.0).collect())
    }
}

impl From<&[KeyId]> for Value {
    fn from(keys: &[KeyId]) -> Self {
        Self::Ids(keys.iter().map(|key| key.0).collect())
    }
}

impl From<Option<&[PolicyName]>> for Value {
    fn from(names: Option<&[PolicyName]>) -> Self {
        Self::Texts(names.map(|names| names.iter().map(PolicyName::to_string).collect()))
    }
}

/// The values as PostgreSQL takes them.
pub fn postgres(values: Vec<Value>) -> Result<PgArguments, sqlx::Error> {
    let mut arguments = PgArguments::default();
    for value in values {
        match value {
            Value::Flag(flag) => arguments.add(flag),
            Value::Number(number) => arguments.add(number),
            Value::Instant(instant) => arguments.add(instant),
            Value::Id(id) => arguments.add(id),
            Value::Text(text) => arguments.add(text),
            Value::Bytes(bytes) => arguments.add(bytes),
            Value::Ids(ids) => arguments.add(ids),
            Value::Texts(texts) => arguments.add(texts),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

/// The values as SQLite takes them. SQLite has no arrays: the statement reads them from JSON.
pub fn sqlite(values: Vec<Value>) -> Result<SqliteArguments, sqlx::Error> {
    let json = |texts: Vec<String>| serde_json::to_string(&texts).expect("texts are JSON");
    let hex = |id: Uuid| id.simple().to_string();
    let mut arguments = SqliteArguments::default();
    for value in values {
        match value {
            Value::Flag(flag) => arguments.add(flag),
            Value::Number(number) => arguments.add(number),
            Value::Instant(instant) => arguments.add(instant.map(|at| at.timestamp_micros())),
            Value::Id(id) => arguments.add(id),
            Value::Text(text) => arguments.add(text),
            Value::Bytes(bytes) => arguments.add(bytes),
            Value::Ids(ids) => arguments.add(json(ids.into_iter().map(hex).collect())),
            Value::Texts(texts) => arguments.add(texts.map(json)),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}
