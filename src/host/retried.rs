//! Work that is tried again and again. A log tells only the first of its failures in a row.

use std::error::Error;
use std::mem;

use crate::chain::Chain;

/// How the last try of some work ended.
#[derive(Debug, Default)]
pub struct Retried {
    is_failing: bool,
}

impl Retried {
    /// Takes how a try ended. Returns its error, if the try before it did not fail.
    pub fn first_failure<'a, T, E: Error + 'a>(
        &mut self,
        tried: &'a Result<T, E>,
    ) -> Option<Chain<'a>> {
        let was_failing = mem::replace(&mut self.is_failing, tried.is_err());
        let error = tried.as_ref().err().filter(|_| !was_failing)?;
        Some(Chain(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_are_told_once() {
        let mut retried = Retried::default();
        let tries = [true, false, false, true, false, true];
        let tries = tries.map(|is_good| {
            if is_good {
                Ok(())
            } else {
                Err(std::fmt::Error)
            }
        });
        let told = tries
            .each_ref()
            .map(|tried| retried.first_failure(tried).is_some());
        assert_eq!(told, [false, true, false, false, true, false]);
    }
}
