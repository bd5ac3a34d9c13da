//! Whether a database is perdiem's to use, told from the migrations that it has seen.

use sqlx::migrate::Migrator;

use super::OpenError;

/// A migration that a database has seen.
#[derive(sqlx::FromRow)]
pub struct Applied {
    pub version: i64,
    pub checksum: Vec<u8>,
}

/// Says whether `migrator` may run on a database.
///
/// # Errors
/// [`OpenError::Foreign`] when it holds tables and did not begin with perdiem's first
/// migration, [`OpenError::Newer`] when it has seen one that this binary does not know.
pub fn check(
    migrator: &Migrator,
    applied: &[Applied],
    has_tables: bool,
    place: &str,
) -> Result<(), OpenError> {
    let (Some(oldest), Some(newest)) = (migrator.iter().next(), migrator.iter().last()) else {
        return Ok(());
    };
    match applied.iter().min_by_key(|migration| migration.version) {
        None if has_tables => return Err(OpenError::Foreign(place.to_owned())),
        None => {}
        Some(first) if first.version != oldest.version || first.checksum != *oldest.checksum => {
            return Err(OpenError::Foreign(place.to_owned()));
        }
        Some(_) => {}
    }
    match applied.iter().map(|migration| migration.version).max() {
        Some(found) if found > newest.version => Err(OpenError::Newer {
            place: place.to_owned(),
            found,
            known: newest.version,
        }),
        _ => Ok(()),
    }
}
