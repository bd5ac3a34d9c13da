//! What the file of a ledger on SQLite says of itself. The file is opened read-only, beside a running instance.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, SqliteConnection};

use crate::file::LedgerFile;
use crate::schema::{check, check_made, migrator};
use crate::{OpenError, sqlite};

/// The longest wait for a lock of a running instance.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is known of the file.
pub struct FileFacts {
    /// The path as the URL has it.
    pub place: String,
    /// The path, absolute and without links. The file need not exist.
    pub path: PathBuf,
    /// Why it is no ledger of this version. `None` if it is one.
    pub refusal: Option<OpenError>,
    /// Whether every user of the machine may read or write it.
    pub is_open_to_others: bool,
}

impl FileFacts {
    pub(super) async fn read(url: &str) -> Result<Self, OpenError> {
        let file = LedgerFile::of(url)?;
        Ok(Self {
            place: file.place().to_owned(),
            path: file.path().to_owned(),
            refusal: refusal(&file, url).await.err(),
            is_open_to_others: file.is_open_to_others(),
        })
    }
}

/// Checks the migrations of the file.
async fn refusal(file: &LedgerFile, url: &str) -> Result<(), OpenError> {
    if file.is_missing() {
        return Err(OpenError::Missing(file.place().to_owned()));
    }
    let options = SqliteConnectOptions::from_str(url)
        .map_err(|error| OpenError::InvalidUrl(error.to_string()))?
        .create_if_missing(false)
        .read_only(true)
        .busy_timeout(PATIENCE);
    let unreadable = |error| sqlite::unreadable(file, error);
    let mut connection = SqliteConnection::connect_with(&options)
        .await
        .map_err(unreadable)?;
    let surveyed = sqlite::survey(&mut connection).await;
    connection.close().await.map_err(unreadable)?;
    let (applied, has_tables) = surveyed.map_err(unreadable)?;
    let migrator = migrator(sqlite::MIGRATIONS);
    check(&migrator, &applied, has_tables, file.place())?;
    check_made(&migrator, &applied, file.place())
}
