//! Commands of the binary, written as a user types them.

use super::app::App;
use super::terminal::Said;

/// Runs a command with the admin key of an application.
pub async fn command(app: &App, line: &str) -> Said {
    Said::by(app, &words(line)).await
}

/// Runs a command with a key for a server.
pub async fn command_with(url: &str, key: &str, line: &str) -> Said {
    Said::with_key(url, key, &words(line)).await
}

/// The words of a line. A word in single quotes may contain spaces.
pub fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        match index % 2 {
            0 => words.extend(part.split_whitespace()),
            _ => words.push(part),
        }
    }
    words
}
