//! Faults of what a client wrote.

use std::fmt;

/// One fault of a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The place: a JSON pointer (RFC 6901) into the draft, such as `/limits/0/max`.
    pub pointer: String,
    /// What is wrong, and then what to write instead.
    pub detail: String,
}

impl Fault {
    pub fn new(pointer: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self {
            pointer: pointer.into(),
            detail: detail.to_string(),
        }
    }
}

/// The choice with a name. The first choice if there is no name, or no choice has it.
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
