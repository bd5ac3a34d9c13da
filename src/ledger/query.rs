//! Statements that both stores run.
//!
//! The code of a table is written once, with [`Session`]. Only [`Session`] knows which store a
//! statement goes to. The statements of the claims' way differ between the stores as ideas; they do
//! not use it.

use std::ops::DerefMut;
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use tokio::task::yield_now;

use super::LedgerError;
use super::row::{Column, StoredRow, only};
use super::sessions::answered;
use super::values::{Value, postgres, sqlite};
use crate::boxed;
use domain::claim::MetadataFilter;

/// After this many rows of many other tasks get the thread.
const YIELD_EVERY: usize = 128;

/// The text of a statement on each store.
#[derive(Clone, Copy)]
pub struct Texts {
    pub postgres: &'static str,
    pub sqlite: &'static str,
}

/// The same text for both stores.
impl From<&'static str> for Texts {
    fn from(text: &'static str) -> Self {
        Self {
            postgres: text,
            sqlite: text,
        }
    }
}

/// A statement with the values of $1 and on.
pub struct Statement {
    texts: Texts,
    values: Vec<Value>,
}

pub fn query(texts: impl Into<Texts>) -> Statement {
    Statement {
        texts: texts.into(),
        values: Vec::new(),
    }
}

impl Statement {
    /// Binds the name and the value of a filter by metadata.
    pub fn metadata(self, filter: Option<&MetadataFilter>) -> Self {
        self.bind(filter.map(MetadataFilter::name))
            .bind(filter.map(MetadataFilter::value))
    }

    pub fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }
}

/// A connection that a caller owns: from a pool, or in a transaction. A trait object, because otherwise each crate
/// that drops one would compile what gives it back to its pool.
pub trait Held: Send {
    fn lend(&mut self) -> Session<'_>;
}

/// With the time within which each statement is answered.
pub struct OnPostgres<C>(pub C, pub Duration);

pub struct OnSqlite<C>(pub C);

impl<C: DerefMut<Target = PgConnection> + Send> Held for OnPostgres<C> {
    fn lend(&mut self) -> Session<'_> {
        Session::Postgres(&mut self.0, self.1)
    }
}

impl<C: DerefMut<Target = SqliteConnection> + Send> Held for OnSqlite<C> {
    fn lend(&mut self) -> Session<'_> {
        Session::Sqlite(&mut self.0)
    }
}

/// All rows that a statement found. A trait object, as [`Held`].
trait Rows: Send + Sync {
    fn at(&self, index: usize) -> Option<StoredRow<'_>>;
}

impl Rows for Vec<PgRow> {
    fn at(&self, index: usize) -> Option<StoredRow<'_>> {
        self.get(index).map(StoredRow::Postgres)
    }
}

impl Rows for Vec<SqliteRow> {
    fn at(&self, index: usize) -> Option<StoredRow<'_>> {
        self.get(index).map(StoredRow::Sqlite)
    }
}

/// A connection that is lent to run statements.
pub enum Session<'c> {
    /// With the time within which each statement is answered.
    Postgres(&'c mut PgConnection, Duration),
    Sqlite(&'c mut SqliteConnection),
}

impl Session<'_> {
    /// Every row, read by `decode`.
    pub async fn all<T>(
        &mut self,
        query: Statement,
        decode: impl Fn(&StoredRow<'_>) -> Result<T, LedgerError>,
    ) -> Result<Vec<T>, LedgerError> {
        let rows = self.rows(query).await?;
        let mut found = Vec::new();
        while let Some(row) = rows.at(found.len()) {
            found.push(decode(&row)?);
        }
        Ok(found)
    }

    #[boxed]
    async fn rows(&mut self, query: Statement) -> Result<Box<dyn Rows>, LedgerError> {
        let Statement { texts, values } = query;
        let rows: Box<dyn Rows> = match self {
            Self::Postgres(connection, patience) => {
                let query = sqlx::query_with(texts.postgres, postgres(values)?);
                Box::new(answered(*patience, query.fetch_all(&mut **connection)).await?)
            }
            Self::Sqlite(connection) => {
                let query = sqlx::query_with(texts.sqlite, sqlite(values)?);
                Box::new(query.fetch_all(&mut **connection).await?)
            }
        };
        Ok(rows)
    }

    /// As [`Session::all`], for many rows: other tasks get the thread now and then.
    pub async fn many<T>(
        &mut self,
        query: Statement,
        decode: impl Fn(&StoredRow<'_>) -> Result<T, LedgerError>,
    ) -> Result<Vec<T>, LedgerError> {
        let Statement { texts, values } = query;
        let mut found = Vec::new();
        macro_rules! read {
            ($rows:expr, $patience:expr, $store:path) => {{
                let mut rows = $rows;
                while let Some(row) = answered($patience, rows.try_next()).await? {
                    found.push(decode(&$store(&row))?);
                    if found.len().is_multiple_of(YIELD_EVERY) {
                        yield_now().await;
                    }
                }
            }};
        }
        match self {
            Self::Postgres(connection, patience) => {
                let query = sqlx::query_with(texts.postgres, postgres(values)?);
                let rows = query.fetch(&mut **connection);
                read!(rows, *patience, StoredRow::Postgres);
            }
            Self::Sqlite(connection) => {
                let query = sqlx::query_with(texts.sqlite, sqlite(values)?);
                let rows = query.fetch(&mut **connection);
                read!(rows, Duration::MAX, StoredRow::Sqlite);
            }
        }
        Ok(found)
    }

    /// The first row, if there is one. The statement itself limits the rows to one.
    pub async fn first<T>(
        &mut self,
        query: Statement,
        decode: impl Fn(&StoredRow<'_>) -> Result<T, LedgerError>,
    ) -> Result<Option<T>, LedgerError> {
        let rows = self.rows(query).await?;
        rows.at(0).map(|row| decode(&row)).transpose()
    }

    /// The one value of the one row.
    pub async fn one<T: Column>(&mut self, query: Statement) -> Result<T, LedgerError> {
        let value = self.first(query, only).await?;
        Ok(value.ok_or(sqlx::Error::RowNotFound)?)
    }

    pub async fn execute(&mut self, query: Statement) -> Result<(), LedgerError> {
        self.rows(query).await.map(drop)
    }
}
