//! The program, as a shell sees it: what it writes where, and how it ends.

use std::process::{Command, Output};

fn verify(arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_perdiem-verify"));
    program.args(arguments).output().expect("the program runs")
}

#[test]
fn what_cannot_be_checked_ends_with_1() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let ended = verify(&["archive", folder]);
    let said = String::from_utf8(ended.stderr).expect("a text");
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.starts_with("perdiem-verify: "), "{said}");
    assert!(said.contains("is no archive"), "{said}");
    assert_eq!(ended.stdout, b"");
}

#[test]
fn what_is_not_understood_ends_with_2() {
    for arguments in [&[][..], &["ledger"], &["proof", "a.tlog-proof"]] {
        let ended = verify(arguments);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8(ended.stderr).expect("a text");
        assert!(said.contains("Usage: perdiem-verify"), "{said}");
    }
}

#[test]
fn the_version_is_perdiems() {
    let ended = verify(&["--version"]);
    assert_eq!(ended.status.code(), Some(0));
    let said = String::from_utf8(ended.stdout).expect("a text");
    assert_eq!(
        said,
        format!("perdiem-verify {}\n", env!("CARGO_PKG_VERSION"))
    );
}
