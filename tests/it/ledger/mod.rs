//! The stores by themselves: one suite for PostgreSQL and SQLite.

mod append;
mod bursts;
mod corrections;
mod entry_details;
mod keys;
mod older;
mod open;
mod overrides;
mod policies;
mod read;
