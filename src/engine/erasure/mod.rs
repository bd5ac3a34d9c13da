//! Erasure of subjects, in two parts. `erase` erases the texts at once. `eraser` gives accounts
//! random ids after their windows are over, and clears their keys after 48 hours.

mod erase;
mod eraser;

pub use erase::SubjectErasure;
pub use eraser::Eraser;
