//! What is wrong with something that somebody wrote.

use std::fmt;

/// One thing that is wrong with a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where: a JSON pointer (RFC 6901) into the draft, such as `/limits/0/max`.
    pub pointer: String,
    /// What is wrong and what to do.
    pub detail: String,
}

impl Fault {
    /// A fault at a place.
    pub fn new(pointer: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self {
            pointer: pointer.into(),
            detail: detail.to_string(),
        }
    }
}

/// The choice with a name; the first one when no name is given or none fits.
pub fn choose<T: Copy>(
    name: Option<&str>,
    choices: &[(&str, T)],
    pointer: &str,
    faults: &mut Vec<Fault>,
) -> T {
    let found = match name {
        None => choices.first(),
        Some(name) => choices.iter().find(|(choice, _)| *choice == name),
    };
    found
        .unwrap_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
            faults.push(Fault::new(
                pointer,
                format!("this value is unknown; write {}", names.join(" or ")),
            ));
            &choices[0]
        })
        .1
}
