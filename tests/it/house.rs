//! The rules of the source code that a machine can check: layers, circles, twins, names and sizes.

mod circles;
mod first_build;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The longest file of the sources, in lines.
const LINES_MOST: usize = 600;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below a folder, as paths from that folder.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let inside = path.strip_prefix(folder).expect("a path below");
                files.push(inside.to_owned());
            }
        }
    }
    files.sort();
    files
}

/// The Rust files of a folder of the repository with their texts, keyed by path.
fn rust_files(folder: &str) -> BTreeMap<PathBuf, String> {
    let folder = root().join(folder);
    let rust = files_below(&folder).into_iter().filter(|file| {
        let extension = file.extension();
        extension.is_some_and(|extension| extension == "rs")
    });
    let files: BTreeMap<PathBuf, String> = rust
        .map(|file| {
            let text = fs::read_to_string(folder.join(&file)).expect("a text");
            (file, text)
        })
        .collect();
    assert!(files.len() > 20);
    files
}

fn sources() -> BTreeMap<PathBuf, String> {
    rust_files("src")
}

/// The text without its comments.
fn code(text: &str) -> String {
    let without = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text.lines().map(without).collect::<Vec<_>>().join("\n")
}

/// The layer of a file: the first part of its path.
fn layer(file: &Path) -> String {
    let first = file.components().next().expect("a part").as_os_str();
    let first = Path::new(first).with_extension("");
    first.to_str().expect("a text").to_owned()
}

/// The paths at the beginning of a text: the words of one path, or of each branch in braces. Also
/// returns the rest of the text.
fn paths(text: &str) -> (Vec<Vec<String>>, &str) {
    let is_of_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let end = text.find(|character| !is_of_word(character));
    let (word, rest) = text.split_at(end.unwrap_or(text.len()));
    if !word.is_empty() {
        let (mut branches, rest) = match rest.strip_prefix("::") {
            Some(below) => paths(below),
            None => (vec![Vec::new()], rest),
        };
        for branch in &mut branches {
            branch.insert(0, word.to_owned());
        }
        return (branches, rest);
    }
    let Some(mut list) = text.strip_prefix('{') else {
        return (vec![Vec::new()], text);
    };
    let mut branches = Vec::new();
    loop {
        let (found, rest) = paths(list.trim_start());
        branches.extend(found);
        let rest = rest.trim_start_matches(|character| !",}".contains(character));
        match rest.strip_prefix(',').map(str::trim_start) {
            Some(next) if !next.starts_with('}') => list = next,
            Some(last) => return (branches, &last[1..]),
            None => return (branches, rest.get(1..).unwrap_or_default()),
        }
    }
}

/// The rest of a text after the bracket that closes its first one.
fn after_brackets(text: &str) -> Option<&str> {
    let mut depth = 0;
    for (place, character) in text.char_indices() {
        depth += match character {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            return text.get(place + 1..);
        }
    }
    None
}

/// The lines of a text that give several names at once to several values: `let (a, b) = (c, d);`.
fn tuple_lets(text: &str) -> Vec<&str> {
    let statements = text.match_indices("let (").map(|(place, _)| &text[place..]);
    let is_tuple = |statement: &&str| {
        let names = after_brackets(&statement["let ".len()..]);
        let types = names.map(|rest| {
            rest.strip_prefix(": ")
                .and_then(after_brackets)
                .unwrap_or(rest)
        });
        let values = types
            .and_then(|rest| rest.trim_start().strip_prefix("= "))
            .filter(|values| values.starts_with('('))
            .and_then(after_brackets);
        values.is_some_and(|rest| rest.starts_with(';'))
    };
    let tuples = statements.filter(is_tuple);
    tuples
        .map(|statement| statement.lines().next().unwrap_or_default())
        .collect()
}

#[test]
fn each_value_gets_its_name_on_a_line_of_its_own() {
    let text = "let (a, b) = (c(), d);\nlet (e, f) = g;\nlet (Some(h), i) = (j, k) else { return };\n\
         let (l, m): (u8, Vec<(u8, u8)>) = (n, o);\nlet (p, q): (u8, u8) = r;";
    let found = [
        "let (a, b) = (c(), d);",
        "let (l, m): (u8, Vec<(u8, u8)>) = (n, o);",
    ];
    assert_eq!(tuple_lets(text), found);
    for folder in ["src", "tests/it"] {
        for (file, text) in rust_files(folder) {
            if file.ends_with("house.rs") {
                continue;
            }
            let code = code(&text);
            let found = tuple_lets(&code);
            assert!(found.is_empty(), "{}: {found:?}", file.display());
        }
    }
}

/// What a crate may name in its manifest: the crates of this repository that it uses, and those of the libraries
/// of [`OF_A_LAYER`] that it may use.
#[rustfmt::skip]
const MAY_NAME: &[(&str, &str, &str)] = &[
    ("domain", "", ""),
    ("host", "domain", "tokio"),
    ("api", "domain", "utoipa"),
    ("verify", "domain api", "clap tokio anyhow"),
    ("ledger", "domain host", "sqlx tokio tracing"),
    ("counter", "domain", "redis tokio tracing"),
    ("claims", "domain host ledger counter", "tokio tracing"),
    ("record", "domain host verify ledger counter claims", "tokio tracing"),
    ("admin", "domain host ledger counter claims record", "tokio tracing"),
    ("engine", "domain host ledger counter claims record admin", "tokio tracing"),
    ("sign_on", "domain", "reqwest tokio"),
    ("console", "domain api", ""),
    ("http", "domain host api engine sign_on console", "actix-web hyper tonic utoipa tokio tracing"),
    ("cli", "domain host api verify ledger counter engine sign_on http", "clap reqwest tokio anyhow tracing"),
];

/// The libraries that a crate uses only if [`MAY_NAME`] says so.
const OF_A_LAYER: &[&str] = &[
    "sqlx",
    "redis",
    "actix-web",
    "hyper",
    "tonic",
    "utoipa",
    "reqwest",
    "clap",
    "tokio",
    "tracing",
    "anyhow",
];

/// All that a manifest depends on, also for its tests: the first word of each line of those sections.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_inside = line.contains("dependencies");
            assert!(!line.contains("dependencies."), "one line for each: {line}");
        } else if is_inside && let Some(name) = line.split(['.', ' ']).find(|word| !word.is_empty())
        {
            assert!(
                line.contains("workspace = true"),
                "named in the workspace: {line}"
            );
            found.push(name);
        }
    }
    found
}

/// The compiler keeps a crate from what its manifest does not name, so the manifests are the layers.
#[test]
fn a_crate_knows_only_those_above_it() {
    let order: Vec<String> = code(&sources()[Path::new("lib.rs")])
        .lines()
        .filter_map(|line| line.strip_prefix("pub use ")?.strip_suffix(';'))
        .map(str::to_owned)
        .collect();
    let listed: Vec<&str> = MAY_NAME.iter().map(|(name, ..)| *name).collect();
    assert_eq!(
        order, listed,
        "src/lib.rs lists the crates in reading order"
    );
    let folders = fs::read_dir(root().join("src")).expect("a folder");
    let folders = folders.map(|entry| entry.expect("an entry").path());
    let folders: BTreeSet<PathBuf> = folders.filter(|path| path.is_dir()).collect();
    let of_crates = listed.iter().map(|name| root().join("src").join(name));
    assert_eq!(
        folders,
        of_crates.collect(),
        "each folder of src is a crate"
    );
    for (index, (name, crates, libraries)) in MAY_NAME.iter().enumerate() {
        let path = root().join("src").join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(path).expect("a manifest");
        let found = dependencies(&manifest);
        assert!(found.len() > 1, "{name}: {found:?}");
        for known in found {
            if let Some(place) = listed.iter().position(|other| *other == known) {
                assert!(place < index, "{name} uses {known}, which comes later");
                let may = crates.split(' ').any(|other| other == known);
                assert!(may, "{name} must not use {known}");
            } else if OF_A_LAYER.contains(&known) {
                let may = libraries.split(' ').any(|other| other == known);
                assert!(may, "{name} must not use {known}");
            }
        }
    }
}

/// The workspace gives each name one meaning: no library hides behind the name of another.
#[test]
fn dependencies_have_their_own_names() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    for line in manifest
        .lines()
        .filter(|line| line.contains("package = \""))
    {
        let name = line.split(' ').next().unwrap_or_default();
        let package = name.replace('_', "-");
        let own = format!("package = \"perdiem-{package}\", path = \"src/{name}\"");
        assert!(line.contains(&own), "{line}");
    }
}

/// The handles give a face their use cases. What a handle works with is for the engine.
#[test]
fn no_handler_reaches_past_its_handle() {
    for (file, text) in sources() {
        if layer(&file) != "http" {
            continue;
        }
        let text = code(&text);
        for part in [
            "ledger",
            "dispatch",
            "counting",
            "drain",
            "eraser",
            "reconciler",
            "watch",
        ] {
            let uses = [format!(".{part}."), format!(".{part}\n")];
            let reaches = uses.iter().any(|part| text.contains(part));
            assert!(!reaches, "{} uses {part}", file.display());
        }
    }
}

/// The places of a text where a value is looked up by the name of its field: `answer["units"]`.
fn look_ups(text: &str) -> Vec<&str> {
    let is_of_value = |before: char| before.is_alphanumeric() || "_)]?".contains(before);
    let named = text.lines().filter(|line| {
        let mut places = line.match_indices("[\"");
        places.any(|(place, _)| line[..place].ends_with(is_of_value))
    });
    named.collect()
}

/// The command line reads answers into the types of `api`: a field with another name is then an error, and
/// no empty cell.
#[test]
fn the_command_line_looks_up_no_field_by_its_name() {
    let text =
        "let a = b[\"c\"];\nlet d = [\"e\", \"f\"];\nlet g = &h()[\"i\"][\"j\"];\nk(&[\"l\"]);";
    assert_eq!(
        look_ups(text),
        ["let a = b[\"c\"];", "let g = &h()[\"i\"][\"j\"];"]
    );
    for (file, text) in sources() {
        if layer(&file) != "cli" {
            continue;
        }
        let text = code(&text);
        let text = text.split("#[cfg(test)]\nmod tests").next();
        let found = look_ups(text.unwrap_or_default());
        assert!(found.is_empty(), "{}: {found:?}", file.display());
    }
}

#[test]
fn the_domain_has_no_clock_and_does_not_wait() {
    for (file, text) in sources() {
        if layer(&file) != "domain" {
            continue;
        }
        let text = code(&text);
        for word in [
            "async ",
            ".await",
            "Utc::now",
            "SystemTime",
            "Instant::now",
            "std::net",
        ] {
            assert!(!text.contains(word), "{}: {word}", file.display());
        }
    }
}

/// The words of a text with which code reads files or the environment.
fn readings(text: &str) -> Vec<&'static str> {
    let words = [
        "std::fs",
        "std::env",
        "std::io",
        "std::path",
        "std::process",
        "env::var",
        "File::",
        "fs::",
        "from_dir",
        "from_env",
        "TimeZone::system",
    ];
    words
        .into_iter()
        .filter(|word| text.contains(word))
        .collect()
}

/// What a rule needs is an argument, or was handed to the domain (`zone_rules`).
#[test]
fn the_domain_reads_no_files_and_no_environment() {
    for (text, found) in [
        ("use std::fs::File;", vec!["std::fs", "fs::"]),
        ("let folder = env::var(\"TZDIR\");", vec!["env::var"]),
        ("TimeZoneDatabase::from_dir(folder)", vec!["from_dir"]),
        ("include_str!(\"windows_zones.txt\")", vec![]),
    ] {
        assert_eq!(readings(text), found, "{text}");
    }
    for (file, text) in sources() {
        if layer(&file) == "domain" {
            let found = readings(&code(&text));
            assert!(found.is_empty(), "{}: {found:?}", file.display());
        }
    }
}

#[test]
fn nothing_but_the_check_of_clocks_asks_a_database_for_the_time() {
    // PostgreSQL compares the instants of an append with its clock.
    let bounds = |file: &Path| file.ends_with("postgres/append.rs");
    // The age of a standby's data is by its own clock, and decides nothing.
    let age = |file: &Path| file.ends_with("replay.rs");
    let allowed = |file: &Path, word| match word {
        "statement_timestamp" => bounds(file),
        "clock_timestamp" if age(file) => true,
        _ => file.ends_with("instances.rs"),
    };
    for (file, text) in sources() {
        let text = code(&text).to_lowercase();
        for word in [
            "now()\"",
            " now() ",
            "current_timestamp",
            "clock_timestamp",
            "statement_timestamp",
            "'now'",
        ] {
            let uses = text.contains(word) && layer(&file) == "ledger";
            assert!(!uses || allowed(&file, word), "{}: {word}", file.display());
        }
    }
    for folder in ["postgres", "sqlite"] {
        let folder = root().join("migrations").join(folder);
        for file in files_below(&folder) {
            let text = fs::read_to_string(folder.join(&file))
                .expect("a text")
                .to_lowercase();
            assert!(
                !text.contains("now()") && !text.contains("current_timestamp"),
                "{file:?}"
            );
        }
    }
}

#[test]
fn both_stores_have_the_same_migrations() {
    let migrations = root().join("migrations");
    let postgres = migrations.join("postgres");
    let sqlite = migrations.join("sqlite");
    let names = files_below(&postgres);
    assert_eq!(names, files_below(&sqlite));
    for (index, name) in names.iter().enumerate() {
        let name = name.to_str().expect("a text");
        let (version, rest) = name.split_once('_').expect("a version and a name");
        assert_eq!(version, format!("{:04}", index + 1), "{name}");
        assert!(rest.ends_with(".sql"), "{name}");
    }
}

#[test]
fn the_stores_are_twins() {
    let ledger = root().join("src/ledger");
    let files = files_below(&ledger.join("postgres"));
    assert_eq!(files, files_below(&ledger.join("sqlite")));
    assert!(files.contains(&PathBuf::from("mod.rs")));
}

#[test]
fn every_script_of_redis_says_what_it_takes() {
    let folder = root().join("src/counter/lua");
    let scripts = files_below(&folder);
    assert!(!scripts.is_empty());
    for script in scripts {
        let text = fs::read_to_string(folder.join(&script)).expect("a text");
        let header: Vec<&str> = text
            .lines()
            .take_while(|line| line.starts_with("--"))
            .collect();
        let header = header.join("\n");
        for word in ["KEYS", "ARGV", "eturns"] {
            assert!(header.contains(word), "{}: {word}", script.display());
        }
    }
}

#[test]
fn names_say_what_is_inside() {
    let vague = [
        "utils", "util", "helpers", "helper", "common", "types", "misc",
    ];
    for folder in ["src", "tests"] {
        for file in files_below(&root().join(folder)) {
            for part in file.components() {
                let name = Path::new(part.as_os_str()).file_stem().unwrap_or_default();
                let name = name.to_str().expect("a text");
                assert!(!vague.contains(&name), "{}", file.display());
            }
        }
    }
}

/// A file of tests that no `mod` names would be passed over.
#[test]
fn every_file_of_the_tests_is_compiled() {
    let files = rust_files("tests/it");
    for file in files.keys().filter(|file| **file != Path::new("main.rs")) {
        let folder = file.parent().expect("a folder");
        let is_of_folder = file.ends_with("mod.rs");
        let module = if is_of_folder { folder } else { file.as_path() };
        let above = module.parent().expect("a folder");
        let parents = [
            above.join("mod.rs"),
            above.with_extension("rs"),
            above.join("main.rs"),
        ];
        let name = module.file_stem().and_then(|it| it.to_str());
        let line = format!("mod {};", name.expect("a name"));
        let parent = parents.iter().find_map(|parent| files.get(parent));
        let lines = parent.into_iter().flat_map(|text| text.lines());
        let mut lines = lines.map(|it| it.trim_start().trim_start_matches("pub "));
        assert!(
            lines.any(|it| it == line),
            "{}: no file has `{line}`",
            file.display()
        );
    }
}

/// The type that a line of code begins to define.
fn defined(line: &str) -> Option<&str> {
    // The types of a macro have their names where the macro is used.
    if line.contains('$') {
        return None;
    }
    let words: Vec<&str> = line
        .split(|character: char| !character.is_alphanumeric() && character != '_')
        .filter(|word| !matches!(*word, "" | "pub" | "crate" | "super" | "in"))
        .collect();
    match words[..] {
        ["struct" | "enum" | "trait" | "union", name, ..] => Some(name),
        // A type in a block belongs to a trait.
        ["type", name, ..] if !line.starts_with(' ') => Some(name),
        _ => None,
    }
}

/// The two stores have similar types. Each type has its own name.
#[test]
fn a_types_name_is_used_once() {
    let mut owners: BTreeMap<(Option<PathBuf>, String), PathBuf> = BTreeMap::new();
    for (file, text) in sources() {
        let is_twin = |store: &&str| file.starts_with(store);
        let twin = ["ledger/postgres", "ledger/sqlite"]
            .into_iter()
            .find(is_twin);
        let text = code(&text);
        let text = text
            .split("#[cfg(test)]\nmod tests")
            .next()
            .unwrap_or_default();
        for name in text.lines().filter_map(defined) {
            let owner = owners.insert((twin.map(PathBuf::from), name.to_owned()), file.clone());
            assert_eq!(owner, None, "{name}: also in {}", file.display());
        }
    }
    assert!(owners.len() > 300, "{}", owners.len());
}

#[test]
fn files_are_short_enough_to_read() {
    for (file, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= LINES_MOST, "{} has {lines} lines", file.display());
    }
}

/// Each crate has one line in `src/lib.rs`, and each module at the head of its file.
#[test]
fn every_file_says_what_it_is_for() {
    for (file, text) in sources() {
        assert!(text.starts_with("//! "), "{}", file.display());
    }
    let library = fs::read_to_string(root().join("src/lib.rs")).expect("a text");
    let lines: Vec<&str> = library.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        if line.starts_with("pub use ") {
            assert!(lines[index - 1].starts_with("/// "), "{line}");
        }
    }
}
