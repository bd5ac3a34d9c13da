//! The public key of a log, as a person gives it.

use std::fs;

use anyhow::Context;

use domain::seal::note::VerifierKey;

/// Said where no key was given.
pub const UNSIGNED: &str = "the signatures were not checked: add --key";

/// A public key from the command line, or from the file that it names.
///
/// # Errors
/// The file cannot be read, or the text is no key.
pub fn read_key(given: &str) -> anyhow::Result<VerifierKey> {
    let key = match fs::read_to_string(given) {
        Ok(text) => VerifierKey::parse(&text),
        Err(error) => match VerifierKey::parse(given) {
            // A text without a plus is a file's name, not a mistyped key.
            Err(_) if !given.contains('+') => {
                return Err(error)
                    .with_context(|| format!("--key {given}: the file cannot be read"));
            }
            parsed => parsed,
        },
    };
    key.with_context(|| format!("--key {given}"))
}
