//! What the tests stand on.

pub mod app;
pub mod servers;
