//! The stores by themselves: one suite for PostgreSQL and SQLite.

mod append;
mod open;
mod overrides;
mod policies;
mod read;
