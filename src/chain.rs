//! An error with its causes, on one line of a log.

use std::error::Error;
use std::fmt;

/// Shows an error and what caused it: `this: that: the other`.
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(formatter, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the claim failed")]
    struct Outer(#[source] std::fmt::Error);

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
