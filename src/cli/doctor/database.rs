//! The database of the ledger, before the ledger is opened.

use super::findings::Diagnosis;
use super::machine::look_at_disk;
use super::server::look_at_server;
use crate::config::ServeArgs;
use engine::EngineOptions;
use host::chain::Chain;
use ledger::{Checkup, FileFacts, OpenError};

/// Looks at the database. Returns whether it has a ledger that can be opened.
pub async fn look_at_database(
    found: &mut Diagnosis,
    serve: &ServeArgs,
    options: &EngineOptions,
) -> bool {
    match Checkup::of(serve.database.url(), serve.read_only, &options.clock).await {
        Ok(Checkup::Postgres(facts)) => look_at_server(found, &facts, options),
        Ok(Checkup::Sqlite(facts)) => look_at_file(found, &facts),
        Err(error) => {
            found.wrong("database", Chain(&error));
            false
        }
    }
}

fn look_at_file(found: &mut Diagnosis, facts: &FileFacts) -> bool {
    let FileFacts {
        place,
        path,
        refusal,
        is_open_to_others,
    } = facts;
    match refusal {
        None => found.ok("database", format!("SQLite, in {place}")),
        Some(OpenError::Missing(_)) => found.ok(
            "database",
            format!("SQLite, in {place}, which does not exist yet: the first start makes it"),
        ),
        Some(OpenError::Older {
            found: at, known, ..
        }) => found.look(
            "database",
            format!("SQLite, in {place}, at version {at} of {known}: the next start migrates it"),
        ),
        Some(error) => found.wrong("database", Chain(error)),
    }
    if *is_open_to_others {
        let text = format!("every user of this machine may use {place}: run chmod o= {place}");
        found.look("file permissions", text);
    }
    look_at_disk(found, path.parent().unwrap_or(path));
    refusal.is_none()
}
