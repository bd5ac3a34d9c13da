//! An error with its causes, on one line of a log.

use std::error::Error;
use std::fmt;

/// Shows an error and its causes: `this: that: the other`. A cause whose text is already shown is
/// left out: some errors, such as those of sqlx, repeat their causes.
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let cause_text = error.to_string();
            if !text.contains(&cause_text) {
                text.push_str(": ");
                text.push_str(&cause_text);
            }
            cause = error.source();
        }
        formatter.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the claim failed")]
    struct Outer(#[source] std::fmt::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("it is over: {0}")]
    struct Talkative(#[source] Outer);

    #[test]
    fn a_cause_is_told_once() {
        let error = Talkative(Outer(std::fmt::Error));
        let text = Chain(&error).to_string();
        assert_eq!(text.matches("the claim failed").count(), 1, "{text}");
        assert!(text.contains("an error occurred"), "{text}");
    }

    #[test]
    fn causes_follow() {
        let error = Outer(std::fmt::Error);
        let text = Chain(&error).to_string();
        assert!(
            text.starts_with("the claim failed: an error occurred"),
            "{text}"
        );
    }
}
