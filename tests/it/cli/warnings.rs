//! Warnings at the start: about PostgreSQL's settings, and about the URL of the database.

use super::{Process, SECRET, fault_of, folder};
use crate::support::app::KEY;
use crate::support::servers::{self, Postgres};

/// The warnings of a server that starts on a database.
fn warnings(database: &str) -> Vec<String> {
    let folder = folder();
    let settings = [("DATABASE_URL", database), ("PERDIEM_ADMIN_KEY", KEY)];
    let (server, _) = Process::serve(folder.path(), &settings);
    let stderr = server.end().stderr;
    let warnings = stderr.lines().filter(|line| line.contains(" WARN "));
    warnings.map(str::to_owned).collect()
}

#[test]
fn settings_of_postgres_are_compared_with_the_docs() {
    const RIGHT: [&str; 5] = [
        "fsync=on",
        "full_page_writes=on",
        "synchronous_commit=on",
        "shared_buffers=256MB",
        "max_wal_size=2GB",
    ];
    // The servers of the tests are fast and not durable.
    let wrong = Postgres::start_with(&["synchronous_commit=off"]);
    let told = warnings(&wrong.create_database());
    let about: Vec<&String> = told
        .iter()
        .filter(|line| line.contains("PostgreSQL's"))
        .collect();
    assert_eq!(about.len(), 5, "{told:?}");
    for (setting, write) in [
        ("fsync is off", "write fsync = on into"),
        (
            "full_page_writes is off",
            "write full_page_writes = on into",
        ),
        ("max_wal_size is 1GB", "write max_wal_size = '8GB' into"),
        ("shared_buffers is 128MB", "shared_buffers = '4GB'"),
        (
            "synchronous_commit is off",
            "write synchronous_commit = on into",
        ),
    ] {
        let line = about.iter().find(|line| line.contains(setting));
        let line = line.unwrap_or_else(|| panic!("{setting}: {about:?}"));
        assert!(line.contains(write), "{line}");
    }
    let right = Postgres::start_with(&RIGHT);
    let told = warnings(&right.create_database());
    assert!(
        told.iter().all(|line| !line.contains("PostgreSQL's")),
        "{told:?}"
    );
}

/// `pasword` is a misspelled `password`, and libpq knows `passfile`.
#[test]
fn a_parameter_without_an_effect_is_told_without_its_value() {
    let url = servers::postgres().create_database();
    let told = warnings(&format!("{url}?passfile={SECRET}&application_name=tests"));
    let about: Vec<&String> = told
        .iter()
        .filter(|line| line.contains("passfile"))
        .collect();
    assert_eq!(about.len(), 1, "{told:?}");
    assert!(about[0].contains("DATABASE_URL"), "{told:?}");
    assert!(
        told.iter().all(|line| !line.contains("hunter2")),
        "{told:?}"
    );
    for url in [url, "sqlite:perdiem.db".to_owned()] {
        let misspelled = format!("{url}?pasword={SECRET}");
        let line = fault_of(
            2,
            &["serve", "--bind", "127.0.0.1:0"],
            &[("DATABASE_URL", &misspelled)],
        );
        assert!(line.contains("pasword"), "{line}");
        assert!(!line.contains("hunter2"), "{line}");
    }
}

#[test]
fn a_parameter_of_redis_is_not_told() {
    let folder = folder();
    let url = format!(
        "{}/?pasword={SECRET}",
        servers::redis().url().trim_end_matches('/')
    );
    let settings = [
        ("REDIS_URL", url.as_str()),
        ("PERDIEM_ADMIN_KEY", KEY),
        ("PERDIEM_LOG", "debug"),
    ];
    let (server, _) = Process::serve(folder.path(), &settings);
    let stderr = server.end().stderr;
    assert!(!stderr.contains("hunter2"), "{stderr}");
}
