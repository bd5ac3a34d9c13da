//! The page at `/docs`, for a person who sees perdiem for the first time: a first claim in the
//! reader's language, the frequent problems, and links to the rest.

use std::sync::LazyLock;

use super::document::Document;
use super::problems;
use super::template::Html;
use crate::answer::problem::{
    CLAIM_IN_PROGRESS, FORBIDDEN, IDEMPOTENCY_KEY_REUSED, INVALID, MALFORMED, QUOTA_EXCEEDED,
    UNAUTHORIZED, UNAVAILABLE, UNDECIDED, UNKNOWN_POLICY,
};

/// The problems that a newcomer meets first, in the order of their status.
const FREQUENT: [&str; 10] = [
    MALFORMED.name,
    UNAUTHORIZED.name,
    FORBIDDEN.name,
    UNKNOWN_POLICY.name,
    CLAIM_IN_PROGRESS.name,
    INVALID.name,
    IDEMPOTENCY_KEY_REUSED.name,
    QUOTA_EXCEEDED.name,
    UNDECIDED.name,
    UNAVAILABLE.name,
];

/// The address in the examples. The page's script replaces it by the address in the browser.
/// The server does not know the address that its clients use, and a `Host` field may be forged.
const DEFAULT_ADDRESS: &str = "http://127.0.0.1:8080";

/// The name and the text of a file.
type Example = (&'static str, &'static str);

macro_rules! example {
    ($file:literal) => {
        (
            $file,
            include_str!(concat!("examples/", $file)).trim_ascii_end(),
        )
    };
}

/// The texts of the panel for curl, by their places in the page.
const COMMANDS: [Example; 9] = [
    example!("put.sh"),
    example!("put.txt"),
    example!("claim_once.sh"),
    example!("claim_once.txt"),
    example!("usage.sh"),
    example!("usage.txt"),
    example!("claim.sh"),
    example!("claims.sh"),
    example!("claims.txt"),
];

/// A program that a reader saves and runs. Every program prints the same.
struct Program {
    /// The id of its panel.
    language: &'static str,
    source: Example,
    needs: &'static str,
    command: &'static str,
}

const PROGRAMS: [Program; 4] = [
    Program {
        language: "python",
        source: example!("first.py"),
        needs: "The program needs Python 3.9 or newer, and no packages.",
        command: "python3 first.py",
    },
    Program {
        language: "typescript",
        source: example!("first.mts"),
        needs: "The program needs Node.js 20 or newer. `npx` installs `tsx`, which runs TypeScript. \
                With Node.js 22.18 or newer you can type `node first.mts` instead.",
        command: "npx tsx first.mts",
    },
    Program {
        language: "go",
        source: example!("first.go"),
        needs: "The program needs Go 1.19 or newer, and no modules.",
        command: "go run first.go",
    },
    Program {
        language: "java",
        source: example!("First.java"),
        needs: "The program needs Java 17 or newer, and no libraries.",
        command: "java First.java",
    },
];

/// `scripts/check-examples` runs every example as the page shows it.
pub static PAGE: LazyLock<Document> = LazyLock::new(|| Document::new(page()));

fn page() -> String {
    let commands = COMMANDS.map(|(name, text)| (name, Html::text(text)));
    let mut parts = Vec::from(commands);
    parts.extend([
        ("address", Html::text(DEFAULT_ADDRESS)),
        ("programs", PROGRAMS.iter().map(panel).collect()),
        (
            "problems",
            problems::sections(|kind| FREQUENT.contains(&kind.name)),
        ),
    ]);
    let page = Html::fill(include_str!("first_claim.html"), &parts);
    page.into_string()
}

fn panel(program: &Program) -> Html {
    let (file, text) = program.source;
    let (_, output) = example!("program.txt");
    let parts = [
        ("language", Html::text(program.language)),
        ("file", Html::text(file)),
        ("needs", Html::prose(program.needs)),
        ("program", Html::text(text)),
        ("command", Html::text(program.command)),
        ("output", Html::text(output)),
    ];
    Html::fill(include_str!("program.html"), &parts)
}
