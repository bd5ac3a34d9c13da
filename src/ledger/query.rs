//! Statements that both stores run, and what runs them.
//!
//! A table's code is written once, over [`Session`]: only here is it seen which store a statement
//! goes to. One statement at a time is matched, so that the claims' way, whose statements differ
//! as ideas, can go past it.

use std::ops::DerefMut;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{FromRow, Row};

use super::LedgerError;
use super::values::{Value, postgres, sqlite};

/// A statement's text on each store.
#[derive(Clone, Copy)]
pub struct Texts {
    pub postgres: &'static str,
    pub sqlite: &'static str,
}

/// One text for both.
impl From<&'static str> for Texts {
    fn from(text: &'static str) -> Self {
        Self {
            postgres: text,
            sqlite: text,
        }
    }
}

/// A text with ` = ANY($n)` on PostgreSQL, and on SQLite with what finds the same ids.
macro_rules! any_id {
    ($text:ident, $parameter:literal) => {
        $crate::ledger::query::Texts {
            postgres: $text!(concat!(" = ANY(", $parameter, ")")),
            sqlite: $text!(concat!(
                " IN (SELECT unhex(value) FROM json_each(",
                $parameter,
                "))"
            )),
        }
    };
}
pub(super) use any_id;

/// A statement with its values, of $1 and on.
pub struct Query {
    texts: Texts,
    values: Vec<Value>,
}

pub fn query(texts: impl Into<Texts>) -> Query {
    Query {
        texts: texts.into(),
        values: Vec::new(),
    }
}

impl Query {
    pub fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }
}

/// A row that both stores have.
pub trait Stored:
    for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, SqliteRow> + Send + Unpin
{
}

impl<T> Stored for T where
    T: for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, SqliteRow> + Send + Unpin
{
}

/// A part of a row, or why it cannot be read.
pub struct Readable<T>(pub Result<T, LedgerError>);

impl<'r, R: Row, T: FromRow<'r, R>> FromRow<'r, R> for Readable<T> {
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        Ok(Self(T::from_row(row).map_err(LedgerError::from)))
    }
}

/// A connection that a caller holds: of a pool, or in a transaction.
pub enum Held<P, S> {
    Postgres(P),
    Sqlite(S),
}

impl<P, S> Held<P, S>
where
    P: DerefMut<Target = PgConnection>,
    S: DerefMut<Target = SqliteConnection>,
{
    pub fn lend(&mut self) -> Session<'_> {
        match self {
            Self::Postgres(connection) => Session::Postgres(connection),
            Self::Sqlite(connection) => Session::Sqlite(connection),
        }
    }
}

/// A connection that is lent to run statements.
pub enum Session<'c> {
    Postgres(&'c mut PgConnection),
    Sqlite(&'c mut SqliteConnection),
}

impl Session<'_> {
    pub async fn all<T: Stored>(&mut self, query: Query) -> Result<Vec<T>, LedgerError> {
        let Query { texts, values } = query;
        Ok(match self {
            Self::Postgres(connection) => {
                let query = sqlx::query_as_with(texts.postgres, postgres(values)?);
                query.fetch_all(&mut **connection).await?
            }
            Self::Sqlite(connection) => {
                let query = sqlx::query_as_with(texts.sqlite, sqlite(values)?);
                query.fetch_all(&mut **connection).await?
            }
        })
    }

    pub async fn optional<T: Stored>(&mut self, query: Query) -> Result<Option<T>, LedgerError> {
        let Query { texts, values } = query;
        Ok(match self {
            Self::Postgres(connection) => {
                let query = sqlx::query_as_with(texts.postgres, postgres(values)?);
                query.fetch_optional(&mut **connection).await?
            }
            Self::Sqlite(connection) => {
                let query = sqlx::query_as_with(texts.sqlite, sqlite(values)?);
                query.fetch_optional(&mut **connection).await?
            }
        })
    }

    /// The one value of the one row.
    pub async fn one<T>(&mut self, query: Query) -> Result<T, LedgerError>
    where
        (T,): Stored,
    {
        let row: Option<(T,)> = self.optional(query).await?;
        let (value,) = row.ok_or(sqlx::Error::RowNotFound)?;
        Ok(value)
    }

    pub async fn execute(&mut self, query: Query) -> Result<(), LedgerError> {
        let Query { texts, values } = query;
        match self {
            Self::Postgres(connection) => {
                let query = sqlx::query_with(texts.postgres, postgres(values)?);
                query.execute(&mut **connection).await?;
            }
            Self::Sqlite(connection) => {
                let query = sqlx::query_with(texts.sqlite, sqlite(values)?);
                query.execute(&mut **connection).await?;
            }
        }
        Ok(())
    }
}
