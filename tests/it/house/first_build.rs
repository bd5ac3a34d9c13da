//! What the README's first command compiles. It once took nine minutes on two cores.

use std::collections::BTreeSet;
use std::process::Command;

use super::{root, sources};

/// The number of others' crates.
#[test]
fn the_first_build_stays_small() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges", "normal,build"])
        .args(["--prefix", "none", "--no-dedupe", "--format", "{p}"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{output:?}");
    let packages = String::from_utf8(output.stdout).expect("a text");
    let packages: BTreeSet<&str> = packages
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|name| !name.is_empty() && !name.starts_with("perdiem"))
        .collect();
    // sqlx's macros compile sqlx and its drivers a second time, for the compiler.
    for costly in ["sqlx-macros", "sqlx-mysql", "aws-lc-sys"] {
        assert!(!packages.contains(costly), "{costly} is compiled");
    }
    assert!(packages.len() <= 281, "{}: {packages:?}", packages.len());
}

/// The types of the stores that other crates call.
const CALLED: [&str; 9] = [
    "AdminTables",
    "AuditTables",
    "ClaimTables",
    "FigureTables",
    "RecordTables",
    "Ledger",
    "Snapshot",
    "Checkup",
    "Counters",
];

/// The public async functions of these types that have no `#[boxed]`.
fn unboxed(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for block in text.split("\nimpl ").skip(1) {
        let block = block.split("\n}\n").next().unwrap_or_default();
        let name = block.split(' ').next().unwrap_or_default();
        if !CALLED.contains(&name) {
            continue;
        }
        let mut functions = block.split("pub async fn ");
        let mut before = functions.next().unwrap_or_default();
        for function in functions {
            let is_boxed = before.trim_end().ends_with("#[boxed]");
            before = function;
            if !is_boxed && !is_generic(function) {
                found.extend(function.split('(').next());
            }
        }
    }
    found
}

/// A generic function is compiled for its caller, whatever it returns.
fn is_generic(function: &str) -> bool {
    let head = function.split(" {\n").next().unwrap_or_default();
    let name = head.split('(').next().unwrap_or_default();
    name.contains('<') || head.contains("impl ")
}

/// Otherwise a function is compiled in each crate that awaits it, with sqlx or redis.
#[test]
fn what_others_call_of_a_store_is_compiled_once() {
    let mut count = 0;
    for (file, text) in sources() {
        if file.starts_with("ledger") || file.starts_with("counter") {
            let unboxed = unboxed(&text);
            assert!(unboxed.is_empty(), "{file:?}: {unboxed:?} lack #[boxed]");
            count += text.matches("#[boxed]\n    pub async fn ").count();
        }
    }
    assert!(count > 150, "{count}");
}

#[test]
fn a_function_without_a_box_is_found() {
    let text = "
impl Counters {
    #[boxed]
    pub async fn ask(&self) {
    }

    pub async fn settle(&self) {
    }

    pub async fn run<T>(&self, wanted: T) {
    }

    pub async fn all(
        &self,
        wanted: impl Iterator<Item = u8>,
    ) {
    }
}

impl Scan {
    pub async fn step(&self) {
    }
}
";
    assert_eq!(unboxed(text), ["settle"]);
}
