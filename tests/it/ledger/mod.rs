//! The stores without the rest of perdiem: one suite for PostgreSQL and SQLite.

mod append;
mod bursts;
mod corrections;
mod entry_details;
mod kinds;
mod older;
mod open;
mod read;
mod versions;
