//! The stores without the rest of perdiem: one suite for PostgreSQL and SQLite.

mod append;
mod bursts;
mod corrections;
mod kinds;
#[cfg(feature = "faults")]
mod migrations;
mod open;
mod read;
mod silent;
mod versions;
mod views;
