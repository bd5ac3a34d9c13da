//! A connection of a test's own to an application's database.

use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

use crate::support::app::Ground;

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

    /// The same in the words of PostgreSQL and in those of SQLite. Returns how many rows it
    /// made.
    pub async fn execute(&mut self, postgres: &str, sqlite: &str) -> u64 {
        match self {
            Self::Postgres(connection) => {
                let query = sqlx::query(AssertSqlSafe(postgres));
                let done = query.execute(connection).await;
                done.expect("it is done").rows_affected()
            }
            Self::Sqlite(connection) => {
                let query = sqlx::query(AssertSqlSafe(sqlite));
                let done = query.execute(connection).await;
                done.expect("it is done").rows_affected()
            }
        }
    }
}
