//! The files of a SQLite ledger: only the owner can read new files, and only one process at a time
//! can use a ledger.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::{Process, fault, folder, migrate, run, sqlite_url};

const FILES: [&str; 3] = ["perdiem.db", "perdiem.db-wal", "perdiem.db-shm"];

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").mode() & 0o777
}

#[test]
fn the_files_of_a_new_ledger_are_their_owners_alone() {
    let folder = folder();
    let (_server, _) = Process::serve(folder.path(), &[]);
    for name in FILES {
        assert_eq!(mode(&folder.path().join(name)), 0o600, "{name}");
    }
}

#[test]
fn a_new_ledger_behind_a_link_is_its_owners_alone() {
    let folder = folder();
    let target = folder.path().join("disk");
    let link = folder.path().join("link.db");
    fs::create_dir(&target).expect("a folder");
    symlink("disk/perdiem.db", &link).expect("a link");
    migrate(&sqlite_url(&link));
    assert_eq!(mode(&target.join("perdiem.db")), 0o600);
}

/// An operator can choose another mode, for example for a group that makes backups.
#[test]
fn the_mode_of_a_file_that_exists_is_left_and_told() {
    let folder = folder();
    let path = folder.path().join("perdiem.db");
    migrate(&sqlite_url(&path));
    for (chosen, is_told) in [(0o640, false), (0o644, true)] {
        fs::set_permissions(&path, Permissions::from_mode(chosen)).expect("a mode");
        let (server, _) = Process::serve(folder.path(), &[]);
        for name in FILES {
            assert_eq!(mode(&folder.path().join(name)), chosen, "{name}");
        }
        let ended = server.end();
        assert_eq!(ended.stderr.contains("chmod 600"), is_told, "{ended:?}");
    }
}

/// A command that needs a ledger and no server does not create the ledger.
#[test]
fn what_only_reads_makes_no_ledger() {
    let folder = folder();
    let path = folder.path().join("perdiem.db");
    let key = folder.path().join("seal.key");
    let key = key.to_str().expect("a path");
    run(&["seal", "new-key", key], &[]);
    let url = sqlite_url(&path);
    let archive = folder.path().join("archive");
    let archive = archive.to_str().expect("a path");
    let commands: [&[&str]; 3] = [
        &["verify"],
        &["archive", archive, "--before", "2026-01-01"],
        &[
            "seal",
            "restart",
            "--reason",
            "a test",
            "--seal-key-file",
            key,
        ],
    ];
    for command in commands {
        let line = fault(command, &[("DATABASE_URL", &url)]);
        assert!(line.contains("there is no ledger at "), "{line}");
        assert!(line.contains("perdiem.db"), "{line}");
        assert!(!path.exists(), "{command:?}");
    }
}

#[test]
fn a_second_process_on_a_file_is_refused() {
    let folder = folder();
    let path = folder.path().join("perdiem.db");
    let link = folder.path().join("link.db");
    symlink("perdiem.db", &link).expect("a link");
    let (server, _) = Process::serve(folder.path(), &[]);
    let roundabout = folder.path().join("../").join(
        path.strip_prefix(folder.path().parent().expect("a parent"))
            .expect("a path below"),
    );
    for other in [&path, &link, &roundabout] {
        let url = sqlite_url(other);
        let settings = [
            ("DATABASE_URL", url.as_str()),
            ("PERDIEM_BIND", "127.0.0.1:0"),
        ];
        for command in ["serve", "migrate"] {
            let line = fault(&[command], &settings);
            for word in ["perdiem.db", "another perdiem uses it", "end that one"] {
                assert!(line.contains(word), "{word}: {line}");
            }
        }
    }
    // The kernel releases the lock when a process ends, also after a kill.
    drop(server);
    migrate(&sqlite_url(&path));
    let (_server, _) = Process::serve(folder.path(), &[]);
}
