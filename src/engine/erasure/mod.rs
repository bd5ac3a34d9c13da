//! Erasure of subjects, in two steps: texts go at once (`erase`). Accounts get random ids once their
//! windows are over, and lose their keys after 48 hours (`eraser`).

mod erase;
mod eraser;

pub use erase::SubjectErasure;
pub use eraser::Eraser;
