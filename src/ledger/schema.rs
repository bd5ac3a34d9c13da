//! The migrations, the check whether a database belongs to perdiem, and the identity of the ledger
//! in it.

use std::pin::pin;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::SqlStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use tokio::time::{Instant, interval_at};
use uuid::Uuid;

use super::query::{Session, query};
use super::row::StoredRow;
use super::{LedgerError, OpenError};
use domain::identity::Identity;

/// The time between two log lines that say that migrations still run.
const PROGRESS_PERIOD: Duration = Duration::from_secs(10);

/// The migrations of a store: the name and the text of each file of its folder, in order.
macro_rules! migrations {
    ($store:literal) => {
        $crate::schema::migrations!($store, "0001_ledger",)
    };
    ($store:literal, $($name:literal,)+) => {
        [$(($name, include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"), "/../../migrations/", $store, "/", $name, ".sql"
        )))),+]
    };
}

pub(super) use migrations;

/// The name and the text of a migration, such as `0001_ledger`.
pub type MigrationFile = (&'static str, &'static str);

/// Makes the migrator. The first migration has version 1, the next 2.
pub fn migrator(files: &[MigrationFile]) -> Migrator {
    let migrations = (1..).zip(files).map(|(version, (name, text))| {
        let (_, description) = name.split_once('_').unwrap_or_default();
        let description = description.replace('_', " ").into();
        let text = SqlStr::from_static(text);
        Migration::new(version, description, MigrationType::Simple, text, false)
    });
    Migrator::with_migrations(migrations.collect())
}

/// A migration that a database has run: its version and its checksum.
pub type Applied = (i64, Vec<u8>);

/// Checks that `migrator` may run on a database.
///
/// # Errors
/// [`OpenError::Foreign`] if it has tables and did not begin with perdiem's first migration.
/// [`OpenError::Newer`] if it has run a migration that this binary does not know.
pub fn check(
    migrator: &Migrator,
    applied: &[Applied],
    has_tables: bool,
    place: &str,
) -> Result<(), OpenError> {
    let (Some(oldest), Some(newest)) = (migrator.iter().next(), migrator.iter().last()) else {
        return Ok(());
    };
    match applied.iter().min_by_key(|(version, _)| *version) {
        None if has_tables => return Err(OpenError::Foreign(place.to_owned())),
        None => {}
        Some((version, checksum))
            if *version != oldest.version || *checksum != *oldest.checksum =>
        {
            return Err(OpenError::Foreign(place.to_owned()));
        }
        Some(_) => {}
    }
    match applied.iter().map(|(version, _)| *version).max() {
        Some(found) if found > newest.version => Err(OpenError::Newer {
            place: place.to_owned(),
            found,
            known: newest.version,
        }),
        _ => Ok(()),
    }
}

/// Checks that a database needs no migration.
///
/// # Errors
/// [`OpenError::Missing`] if it has run none; [`OpenError::Older`].
pub fn check_made(migrator: &Migrator, applied: &[Applied], place: &str) -> Result<(), OpenError> {
    let found = applied.len();
    let known = migrator.iter().count();
    if found == 0 {
        return Err(OpenError::Missing(place.to_owned()));
    }
    if found < known {
        let place = place.to_owned();
        return Err(OpenError::Older {
            place,
            found,
            known,
        });
    }
    Ok(())
}

/// Reads the identity of the ledger. A new ledger gets a random id and a random secret first.
pub async fn identify(
    mut session: Session<'_>,
    now: DateTime<Utc>,
) -> Result<Identity, LedgerError> {
    let identity = |row: &StoredRow<'_>| Ok(Identity::new(row.get("id")?, row.get("secret")?));
    let stored = || query("SELECT id, secret FROM ledger");
    // Read first: the service's role may not insert.
    if let Some(known) = session.first(stored(), identity).await? {
        return Ok(known);
    }
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).expect("the system has randomness");
    // The row's number must be in the insert: SQLite ignores the default of this column.
    let insert = query(
        "INSERT INTO ledger (singleton, id, secret, created_at) VALUES (true, $1, $2, $3)
         ON CONFLICT DO NOTHING",
    );
    let insert = insert
        .bind(Uuid::new_v4())
        .bind(secret.as_slice())
        .bind(now);
    session.execute(insert).await?;
    let stored = session.first(stored(), identity).await?;
    Ok(stored.ok_or(sqlx::Error::RowNotFound)?)
}

/// Logs the progress of migrations of an older ledger.
pub async fn log_progress<T>(
    migrator: &Migrator,
    applied: &[Applied],
    migrating: impl Future<Output = T>,
) -> T {
    let from = applied.len();
    let to = migrator.iter().count();
    if from == 0 || from == to {
        return migrating.await;
    }
    tracing::info!(
        from,
        to,
        "migrating the ledger; it is not served until this has ended"
    );
    let began = Instant::now();
    let mut ticks = interval_at(began + PROGRESS_PERIOD, PROGRESS_PERIOD);
    let mut migrating = pin!(migrating);
    loop {
        tokio::select! {
            migrated = &mut migrating => return migrated,
            _ = ticks.tick() => {
                let seconds = began.elapsed().as_secs();
                tracing::info!(seconds, "still migrating the ledger");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A database knows its migrations by their versions and checksums, so these must never change.
    #[tokio::test]
    async fn the_migrations_are_those_of_the_folders() {
        let stores = [
            ("postgres", migrator(&migrations!("postgres"))),
            ("sqlite", migrator(&migrations!("sqlite"))),
        ];
        for (store, ours) in stores {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../migrations")
                .join(store);
            let theirs = Migrator::new(folder).await.expect("a folder of migrations");
            let facts = |migrator: &Migrator| -> Vec<_> {
                let migrations = migrator.iter().cloned();
                let facts = migrations.map(|m| (m.version, m.description, m.checksum, m.no_tx));
                facts.collect()
            };
            assert_eq!(facts(&ours), facts(&theirs), "{store}");
        }
    }
}
