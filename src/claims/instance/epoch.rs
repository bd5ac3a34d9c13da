//! Epochs: a line that was known before everything was forgotten is of an older one.

/// The number of times that everything was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Epoch(u64);

impl Epoch {
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
