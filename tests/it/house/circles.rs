//! Siblings in a folder (files and folders) must not import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::{code, paths, rust_files, sources};

/// For each sibling, the siblings that it imports, each with one of its files that does.
type Imports = BTreeMap<String, BTreeMap<String, PathBuf>>;

/// A file's module, from the folder of all crates.
fn module(file: &Path) -> Vec<String> {
    let path = if file.ends_with("mod.rs") || file.ends_with("lib.rs") {
        file.parent().expect("a folder").to_owned()
    } else {
        file.with_extension("")
    };
    let part = |part: Component| part.as_os_str().to_str().expect("a text").to_owned();
    path.components().map(part).collect()
}

/// The paths that a module's text names with `crate::` and `super::`. `root` is the module of its crate.
fn named(module: &[String], root: &[String], text: &str) -> Vec<Vec<String>> {
    let after = text.split("crate::").skip(1);
    let of_crate = after.flat_map(|rest| paths(rest).0);
    let mut named: Vec<Vec<String>> = of_crate.map(|path| [root, &path].concat()).collect();
    let mut ups = 0;
    for rest in text.split("super::").skip(1) {
        ups += 1;
        // No word is between the words of `super::super::x`.
        if !rest.is_empty() {
            let above = &module[..module.len().saturating_sub(ups)];
            let below = paths(rest).0.into_iter();
            named.extend(below.map(|path| [above, &path].concat()));
            ups = 0;
        }
    }
    named
}

/// The file with which a folder's module begins.
fn parent(sources: &BTreeMap<PathBuf, String>, folder: &Path) -> Option<PathBuf> {
    let names = [
        folder.join("mod.rs"),
        folder.join("lib.rs"),
        folder.with_extension("rs"),
    ];
    names.into_iter().find(|name| sources.contains_key(name))
}

/// The code without its tests, which may import every module.
fn without_tests(text: &str) -> String {
    let code = code(text);
    let before = code.split("#[cfg(test)]\nmod tests").next();
    before.unwrap_or_default().to_owned()
}

/// The imports between the parts of a folder. A name that the folder's own file re-exports belongs
/// to its owner. The other imports of that file do not count.
fn imports(sources: &BTreeMap<PathBuf, String>, folder: &Path) -> Imports {
    let parent = parent(sources, folder).expect("the folder's own file");
    let above = module(&parent);
    let inside = sources.iter().filter(|(file, _)| file.starts_with(folder));
    let inside: Vec<_> = inside.filter(|(file, _)| **file != parent).collect();
    let own = |file: &Path| module(file)[above.len()].clone();
    let siblings: BTreeSet<String> = inside.iter().map(|(file, _)| own(file)).collect();
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    let handed_on = code(&sources[&parent]);
    for path in handed_on.split("use ").flat_map(|rest| paths(rest).0) {
        if let [owner, .., name] = &path[..]
            && siblings.contains(owner)
        {
            owners.insert(name.clone(), owner.clone());
        }
    }
    let is_root = |above: &&Path| sources.contains_key(&above.join("lib.rs"));
    let root = parent.ancestors().skip(1).find(is_root);
    let root = root.map_or_else(Vec::new, |root| module(&root.join("lib.rs")));
    let mut imports = Imports::new();
    for (file, text) in inside {
        for path in named(&module(file), &root, &without_tests(text)) {
            let Some([name, ..]) = path.strip_prefix(&above[..]) else {
                continue;
            };
            let other = siblings.get(name).or_else(|| owners.get(name));
            if let Some(other) = other.filter(|other| **other != own(file)) {
                let of_own = imports.entry(own(file)).or_default();
                of_own.insert(other.clone(), file.clone());
            }
        }
    }
    imports
}

/// A circle in a folder, with the importing files.
fn circle(sources: &BTreeMap<PathBuf, String>, folder: &Path) -> Option<String> {
    let imports = imports(sources, folder);
    imports.keys().find_map(|start| {
        let mut ways = vec![(start, String::new())];
        let mut seen = BTreeSet::new();
        while let Some((last, way)) = ways.pop() {
            for (next, file) in imports.get(last).into_iter().flatten() {
                let way = format!("{way}{last} ({}) -> ", file.display());
                if next == start {
                    return Some(format!("{way}{next}"));
                }
                if seen.insert(next) {
                    ways.push((next, way));
                }
            }
        }
        None
    })
}

/// The circle of each folder that has one.
fn circles(sources: &BTreeMap<PathBuf, String>) -> BTreeMap<PathBuf, String> {
    let folders: BTreeSet<&Path> = sources.keys().filter_map(|file| file.parent()).collect();
    let has_own_file = |folder: &&Path| parent(sources, folder).is_some();
    let folders = folders.into_iter().filter(has_own_file);
    folders
        .filter_map(|folder| Some((folder.to_owned(), circle(sources, folder)?)))
        .collect()
}

#[test]
fn the_sources_form_no_circle() {
    let found = circles(&sources());
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_tests_form_no_circle() {
    let found = circles(&rust_files("tests/it"));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn circles_are_found() {
    let sound = [
        ("lib.rs", "pub use way::{Outcome, way::Way};"),
        ("cursor.rs", "use super::Claims;"),
        ("way/mod.rs", "pub use step::Step;"),
        (
            "way/ask.rs",
            "use super::step::Step; use crate::{Claims, cursor};",
        ),
        ("way/step.rs", "use domain::counted;"),
        (
            "counted/mod.rs",
            "use super::{cursor::{self, cut}, way::Step};",
        ),
        ("counted/drain.rs", "// use crate::counted::drain;"),
    ];
    let circle_with = |folder: &str, file: &str, text: &str| {
        let texts = sound.iter().copied().chain([(file, text)]);
        let in_crate = |file: &str| PathBuf::from(format!("claims/{file}"));
        let sources = texts.map(|(file, text)| (in_crate(file), text.to_owned()));
        circle(&sources.collect(), &in_crate(folder))
    };
    assert_eq!(circle_with("", "way/send.rs", ""), None);
    let by_folders = "counted (claims/counted/mod.rs) -> way (claims/way/send.rs) -> counted";
    let by_a_file = "cursor (claims/cursor.rs) -> way (claims/way/ask.rs) -> cursor";
    #[rustfmt::skip]
    let rows = [
        ("way/send.rs", "use crate::{Claims, counted::Signal};", by_folders),
        ("way/send.rs", "fn f() { super::super::counted::wake(); }", by_folders),
        // By a name that the parent re-exports.
        ("cursor.rs", "use crate::Outcome;", by_a_file),
    ];
    for (file, text, expected) in rows {
        let found = circle_with("", file, text);
        assert_eq!(found.as_deref(), Some(expected), "{text}");
    }
    let between_files = circle_with("way", "way/step.rs", "use super::ask::Ask;");
    let expected = "ask (claims/way/ask.rs) -> step (claims/way/step.rs) -> ask";
    assert_eq!(between_files.as_deref(), Some(expected));
    let test = "#[cfg(test)]\nmod tests {\n    use crate::way::Ask;\n}";
    assert_eq!(circle_with("", "cursor.rs", test), None);
}
