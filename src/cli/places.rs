//! Where the parts of a request are on the command line. A problem document names them as the API does: by a JSON
//! pointer, or by the name of a parameter or of a header field.

use std::borrow::Cow;

use api::problem::InvalidPart;

/// Names of the API, each with what a person writes for it. A name with a slash is that of a field of the body, where a
/// parameter has the same name.
pub type PlaceNames = &'static [(&'static str, &'static str)];

/// What has no place on the command line, such as the fields of a file.
pub const NOWHERE: PlaceNames = &[];

pub const SUBJECT_OF_POLICY: PlaceNames = &[("policy", "POLICY"), ("subject", "SUBJECT")];
pub const CLAIM: PlaceNames = &[
    ("policy", "POLICY"),
    ("subject", "SUBJECT"),
    ("units", "--units"),
    ("hold_seconds", "--hold-seconds"),
    ("calendar", "--time-zone and --anchor"),
    ("/calendar/time_zone", "--time-zone"),
    ("/calendar/anchor", "--anchor"),
    ("metadata", "--metadata"),
    ("Idempotency-Key", "--idempotency-key"),
];
pub const SUBJECTS: PlaceNames = &[
    ("policy", "POLICY"),
    ("prefix", "--prefix"),
    ("limit", "--limit"),
];
pub const NEAR: PlaceNames = &[
    ("policy", "POLICY"),
    ("at_least", "--at-least"),
    ("per", "--per"),
];
pub const DENIALS: PlaceNames = &[
    ("policy", "POLICY"),
    ("subject", "SUBJECT"),
    ("on", "--on"),
    ("from", "--from"),
    ("to", "--until"),
];
/// Of lists, exports and figures.
pub const LIST: PlaceNames = &[
    ("policy", "POLICY"),
    ("subject", "SUBJECT"),
    ("kind", "--kind"),
    ("on", "--on"),
    ("from", "--from"),
    ("to", "--until"),
    ("by", "--by"),
    ("recorded_from", "--recorded-from"),
    ("recorded_to", "--recorded-until"),
    ("metadata", "--metadata"),
    ("as_of", "--as-of"),
    ("after", "--after"),
    ("limit", "--limit"),
];
pub const EXPLAIN: PlaceNames = &[
    ("id", "GRANT"),
    ("policy", "POLICY"),
    ("subject", "SUBJECT"),
    ("at", "--at"),
    ("known_at", "--as-of"),
    ("units", "--units"),
];
/// A confirmation is made once, so it takes no key.
pub const CONFIRM: PlaceNames = &[
    ("id", "GRANT"),
    ("units", "--units"),
    ("Idempotency-Key", "GRANT"),
];
pub const REVERSE: PlaceNames = &[
    ("policy", "--policy"),
    ("subject", "--subject"),
    ("on", "--on"),
    ("from", "--from"),
    ("to", "--until"),
    ("metadata", "--metadata"),
    ("id", "GRANT"),
    ("units", "--units"),
    ("reason", "--reason"),
    ("Idempotency-Key", "--idempotency-key"),
];
pub const BUNDLE: PlaceNames = &[("id", "BUNDLE"), ("reason", "--reason")];
pub const ADJUST: PlaceNames = &[
    ("policy", "POLICY"),
    ("subject", "SUBJECT"),
    ("units", "--units"),
    ("at", "--at"),
    ("reason", "--reason"),
    ("Idempotency-Key", "--idempotency-key"),
];
pub const RESET: PlaceNames = &[
    ("policy", "POLICY"),
    ("subject", "SUBJECT"),
    ("per", "--per"),
    ("reason", "--reason"),
    ("Idempotency-Key", "--idempotency-key"),
];
pub const MOVE_CALENDAR: PlaceNames = &[
    ("policy", "POLICY"),
    ("subject", "SUBJECT"),
    ("calendar", "--time-zone and --anchor"),
    ("time_zone", "--time-zone"),
    ("anchor", "--anchor"),
    ("reason", "--reason"),
    ("Idempotency-Key", "--idempotency-key"),
];
pub const TOP_UP: PlaceNames = &[
    ("policy", "POLICY"),
    ("subject", "SUBJECT"),
    ("units", "--units"),
    ("until", "--until"),
    ("reason", "--reason"),
    ("Idempotency-Key", "--idempotency-key"),
];
pub const TOP_UP_REVERSAL: PlaceNames = &[
    ("policy", "POLICY"),
    ("subject", "SUBJECT"),
    ("id", "TOP_UP"),
    ("reason", "--reason"),
];
/// Of a line in the file of adjustments. The name of the file makes the keys of its lines.
pub const ADJUSTMENT_LINE: PlaceNames = &[
    ("policy", "POLICY"),
    ("subject", "column subject"),
    ("units", "column units"),
    ("at", "column at"),
    ("reason", "column reason or --reason"),
    ("Idempotency-Key", "--name"),
];
/// Of a line in the file of reversals.
pub const REVERSAL_LINE: PlaceNames = &[
    ("id", "column grant"),
    ("units", "column units"),
    ("reason", "column reason or --reason"),
    ("Idempotency-Key", "--name"),
];
pub const PROOF: PlaceNames = &[("id", "GRANT"), ("revision", "--change")];
pub const ERASE: PlaceNames = &[("subject", "SUBJECT"), ("reason", "--reason")];
pub const POLICY_PUT: PlaceNames = &[
    ("policy", "POLICY"),
    ("description", "--description"),
    ("time_zone", "--time-zone"),
    ("limits", "--limit"),
    ("day_starts_at", "--day-starts-at"),
    ("week_starts_on", "--week-starts-on"),
    ("calendar", "--calendar"),
    ("active_from", "--from"),
    ("active_until", "--until"),
    ("mode", "--mode"),
    ("effective", "--effective"),
    ("durability", "--durability"),
    ("on_ledger_outage", "--on-ledger-outage"),
    ("warn_at", "--warn-at"),
    ("idempotency_days", "--idempotency-days"),
    ("tiers", "--tier"),
    ("total", "--total"),
    ("orphaned_overrides", "--orphaned-overrides"),
    ("reason", "--reason"),
];
pub const POLICY_STOP: PlaceNames = &[("policy", "POLICY"), ("reason", "--reason")];
pub const APPROVE: PlaceNames = &[("proposal", "PROPOSAL")];
pub const BACKTEST: PlaceNames = &[
    ("/policy", "--file"),
    ("policy", "POLICY"),
    ("from", "--from"),
    ("to", "--until"),
];
/// Of overrides, tiers of subjects and blocks.
pub const EXCEPTION: PlaceNames = &[
    ("policy", "POLICY"),
    ("subject", "SUBJECT"),
    ("limits", "--limit"),
    ("tier", "--tier"),
    ("until", "--until"),
    ("reason", "--reason"),
];
/// Of a line in such a file.
pub const EXCEPTION_LINE: PlaceNames = &[
    ("policy", "POLICY"),
    ("subject", "column subject"),
    ("limits", "column limit or --limit"),
    ("tier", "column tier or --tier"),
    ("until", "column until or --until"),
    ("reason", "column reason or --reason"),
];
pub const KEY_REPLACE: PlaceNames = &[("keep_seconds", "--keep"), ("reason", "--reason")];
pub const KEY: PlaceNames = &[
    ("name", "NAME"),
    ("role", "--role"),
    ("policies", "--policy"),
    ("/bounds", "--max and --days"),
    ("/bounds/max", "--max"),
    ("/bounds/days", "--days"),
    ("ends_at", "--until"),
    ("reason", "--reason"),
];

/// Where a wrong part is, such as `--limit (the first one)`.
pub fn place(places: PlaceNames, part: &InvalidPart) -> String {
    let pointer = part.pointer.as_deref();
    let pointer = pointer.map(|pointer| pointer.trim_start_matches(['#', '/']));
    let named = pointer.or(part.parameter.as_deref()).unwrap_or_default();
    let mut steps = named.split(if pointer.is_some() { '/' } else { '.' });
    let name = steps.next().unwrap_or_default();
    let written = |name: &str| {
        let is_row = |row: &&(&'static str, &'static str)| row.0 == name;
        places.iter().find(is_row).map(|row| row.1)
    };
    if let Some(whole) = pointer.and_then(|pointer| written(&format!("/{pointer}"))) {
        return whole.to_owned();
    }
    let of_body = pointer.and_then(|_| written(&format!("/{name}")));
    let place = of_body.or_else(|| written(name)).unwrap_or(name);
    if pointer.is_none() {
        return place.to_owned();
    }
    steps.fold(place.to_owned(), |place, step| match step.parse() {
        Ok(index) => format!("{place} (the {})", nth(index)),
        Err(_) => format!("{place}, {step}"),
    })
}

/// The place of an item, such as `first one`.
fn nth(index: usize) -> String {
    let words = ["first", "second", "third", "fourth", "fifth"];
    match words.get(index) {
        Some(word) => format!("{word} one"),
        None => format!("{}th one", index + 1),
    }
}

/// A text of the server in the words of the command line.
pub fn in_words(places: PlaceNames, text: &str) -> String {
    // Only names that are no words of English are names of the API wherever they are.
    let is_name = |name: &str| name.contains(['_', '-']);
    let names = places.iter().filter(|(name, _)| is_name(name));
    let others = [
        (" (in a query, write + as %2B)", ""),
        (", with policy=", ""),
        ("/readyz", "`perdiem status`"),
        (
            "PUT /v1/policies/{policy}/blocks/{subject}",
            "`perdiem block put`",
        ),
        (
            "PUT or DELETE /v1/policies/{policy}/pause",
            "`perdiem policy pause` or `perdiem policy resume`",
        ),
        // Only an empty word makes such a path.
        (
            "there is nothing at this path: see /docs",
            "a word is empty: write the name or the id",
        ),
    ];
    let rows = names.chain(&others);
    let text = rows.fold(Cow::Borrowed(text), |text, (name, written)| {
        text.replace(name, written).into()
    });
    text.into_owned()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::Cli;

    fn told(places: PlaceNames, pointer: &str) -> String {
        place(places, &InvalidPart::body(pointer, ""))
    }

    #[test]
    fn a_place_is_told_as_it_was_written() {
        assert_eq!(
            told(POLICY_PUT, "/limits/0/max"),
            "--limit (the first one), max"
        );
        assert_eq!(told(POLICY_PUT, "/limits/9"), "--limit (the 10th one)");
        assert_eq!(told(POLICY_PUT, "/active_until"), "--until");
        assert_eq!(told(KEY, "/policies/1"), "--policy (the second one)");
        assert_eq!(told(KEY, "/bounds"), "--max and --days");
        assert_eq!(told(KEY, "/bounds/days"), "--days");
        assert_eq!(
            told(NOWHERE, "/limits/0/max"),
            "limits (the first one), max"
        );
        let draft = "--file, limits (the first one), max";
        assert_eq!(told(BACKTEST, "/policy/limits/0/max"), draft);
        let parameter = |places, name| place(places, &InvalidPart::parameter(name, ""));
        assert_eq!(parameter(BACKTEST, "policy"), "POLICY");
        assert_eq!(parameter(LIST, "to"), "--until");
        assert_eq!(parameter(LIST, "metadata.<name>"), "--metadata");
        assert_eq!(
            in_words(
                POLICY_PUT,
                "set active_from to let it start later; do what /readyz says"
            ),
            "set --from to let it start later; do what `perdiem status` says"
        );
    }

    /// What a table names exists: the command has the flag, or the place for a word.
    #[test]
    fn every_place_is_one_of_its_command() {
        for line in [
            "claim a b",
            "usage a b",
            "subjects a",
            "near a",
            "denials a b",
            "entries",
            "explain a b",
            "confirm a",
            "reverse a --reason x",
            "adjust a b --units 1 --reason x",
            "reset a b --reason x",
            "top-up give a b --units 1 --until now --reason x",
            "top-up reverse a b c --reason x",
            "move-calendar a b --anchor 2026-01-31 --reason x",
            "proof a",
            "erase a --reason x",
            "policy put a --limit '3' --time-zone UTC",
            "policy set a",
            "policy pause a --reason x",
            "approve a",
            "policy backtest a -f x --from today --until today",
            "override put a b --limit '3'",
            "tier put a b --tier x",
            "block put a b --reason x",
            "key create a --role x",
            "key end a --never --reason x",
            "key replace a --reason x",
        ] {
            let words = line.split(' ').map(|word| word.replace("'3'", "3 per day"));
            let words: Vec<String> = words.collect();
            let read = Cli::try_parse_from(["perdiem".to_owned()].iter().chain(&words));
            let places = read.expect(line).command.places();
            let mut command = Cli::command();
            command.build();
            let mut command = &command;
            while let Some(found) = words.iter().find_map(|word| command.find_subcommand(word)) {
                command = found;
            }
            assert!(!places.is_empty(), "{line}");
            for (_, written) in places {
                // These tables are shared by commands of which some have fewer flags.
                let shared = ["override", "tier", "block", "key end"];
                let is_shared = shared.iter().any(|of| line.starts_with(of));
                let is_flag = |flag: &str| {
                    let mut arguments = command.get_arguments();
                    arguments.any(|argument| argument.get_long() == Some(flag))
                };
                let is_known = match written.strip_prefix("--") {
                    Some(flags) => flags.split(" and --").all(is_flag),
                    None => command.get_positionals().any(|positional| {
                        let names = positional.get_value_names().unwrap_or_default();
                        names
                            .iter()
                            .any(|name| name.split('|').any(|name| name == *written))
                    }),
                };
                assert!(is_known || is_shared, "{line}: {written}");
            }
        }
    }
}
