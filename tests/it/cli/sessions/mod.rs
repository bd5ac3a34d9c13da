//! Sessions at a terminal: what a person types, and everything that the commands print.
//!
//! A block is a command after `$ `, its output, and `? code` when the exit code is not 0. In the
//! output, `{name}` is one word, which later blocks can use. Before the `$ `, `{name}` is the key
//! for the command. A block that begins with `> ` is a file in `{folder}`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::app::{App, KEY, Stack};
use crate::support::command_line::words;
use crate::support::terminal::Said;

/// The words of the output, by their names.
struct Names(BTreeMap<String, String>);

impl Names {
    fn fill(&self, text: &str) -> String {
        let fill = |text: String, (name, word): (&String, &String)| {
            text.replace(&format!("{{{name}}}"), word)
        };
        self.0.iter().fold(text.to_owned(), fill)
    }

    /// Whether a line of the output matches the written line. Stores the words of the names.
    fn meet(&mut self, written: &str, said: &str) -> bool {
        let Some((before, rest)) = written.split_once('{') else {
            return written == said;
        };
        let (name, after) = rest.split_once('}').expect("a name");
        let Some(rest) = said.strip_prefix(before) else {
            return false;
        };
        let word = rest.split(' ').next().unwrap_or_default();
        self.0.insert(name.to_owned(), word.to_owned());
        self.meet(after, &rest[word.len()..])
    }
}

/// Plays a session on a new application, whose clock does not move.
async fn play(name: &str) {
    let sessions = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cli/sessions");
    let session = fs::read_to_string(sessions.join(name)).expect("a session");
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_str().expect("a text").to_owned();
    let mut names = Names([("folder".to_owned(), path)].into());
    for block in session.trim_end().split("\n\n").skip(1) {
        let block = names.fill(block);
        let (line, written) = block.split_once('\n').unwrap_or((&block, ""));
        if let Some(name) = line.strip_prefix("> ") {
            fs::write(folder.path().join(name), written).expect("a file");
            continue;
        }
        let (key, command) = line.split_once("$ ").expect("a command");
        let key = if key.is_empty() { KEY } else { key };
        let Said {
            code,
            stdout,
            stderr,
        } = Said::with_key(&app.url, key, &words(command)).await;
        let mut said = stdout + &stderr;
        if code != 0 {
            said.push_str(&format!("? {code}\n"));
        }
        let lines = [written, &said].map(|text| text.lines().collect::<Vec<_>>());
        let mut both = lines[0].iter().zip(&lines[1]);
        let is_as_long = lines[0].len() == lines[1].len();
        let is_same = is_as_long && both.all(|(written, said)| names.meet(written, said));
        assert!(is_same, "{line}\n{said}");
    }
}

macro_rules! sessions {
    ($($name:ident),*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                play(concat!(stringify!($name), ".txt")).await;
            }
        )*
    };
}

sessions!(
    apply,
    calendars,
    claims,
    corrections,
    explanation,
    import,
    keys,
    overrides,
    policies,
    policy_changes,
    taking_back,
    tiers,
    top_ups,
    totals
);
