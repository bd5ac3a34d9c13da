//! Erasure of subjects. An admin's request erases the texts at once (`admin/erase.rs`). The eraser gives
//! accounts random ids after their windows are over, and clears their keys after 48 hours.

mod eraser;

pub use eraser::Eraser;
