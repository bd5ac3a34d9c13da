//! A test's own connection to an application's database.

use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

use super::app::Ground;

pub enum Direct {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

impl Direct {
    pub async fn to(ground: &Ground) -> Self {
        let url = &ground.database_url;
        if url.starts_with("sqlite:") {
            let connection = SqliteConnection::connect(url).await;
            Self::Sqlite(connection.expect("a connection"))
        } else {
            let connection = PgConnection::connect(url).await;
            Self::Postgres(connection.expect("a connection"))
        }
    }

    /// Runs one statement, given in PostgreSQL's SQL and in SQLite's SQL. Returns how many rows it
    /// changed.
    pub async fn execute(&mut self, postgres: &str, sqlite: &str) -> u64 {
        self.try_execute(postgres, sqlite)
            .await
            .expect("the SQL runs")
    }

    pub async fn try_execute(&mut self, postgres: &str, sqlite: &str) -> Result<u64, sqlx::Error> {
        match self {
            Self::Postgres(connection) => {
                let done = sqlx::query(AssertSqlSafe(postgres))
                    .execute(connection)
                    .await;
                done.map(|done| done.rows_affected())
            }
            Self::Sqlite(connection) => {
                let done = sqlx::query(AssertSqlSafe(sqlite)).execute(connection).await;
                done.map(|done| done.rows_affected())
            }
        }
    }

    /// The first column of the result. The SQL must be valid in both stores.
    pub async fn texts(&mut self, sql: &str) -> Vec<String> {
        let query = AssertSqlSafe(sql);
        let found = match self {
            Self::Postgres(one) => sqlx::query_scalar(query).fetch_all(one).await,
            Self::Sqlite(one) => sqlx::query_scalar(query).fetch_all(one).await,
        };
        found.expect("texts")
    }
}
