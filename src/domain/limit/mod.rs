//! Limits: how many units a subject can take, how units return, and the state that each line keeps.
//!
//! Each kind is a small state machine. A [`total::Total`] is its state as of an instant.

pub mod draft;
pub mod first_claim;
pub mod fit;
pub mod maxima;
pub mod per;
pub mod rate;
pub mod shape;
pub mod sliding;
pub mod text;
pub mod total;
