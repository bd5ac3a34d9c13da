//! What the tests stand on.

pub mod app;
pub mod books;
pub mod crowd;
pub mod desk;
pub mod dice;
pub mod process;
pub mod proxy;
pub mod servers;
