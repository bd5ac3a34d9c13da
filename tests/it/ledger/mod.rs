//! The stores by themselves: one suite for PostgreSQL and SQLite.

mod append;
mod corrections;
mod keys;
mod older;
mod open;
mod overrides;
mod policies;
mod read;
