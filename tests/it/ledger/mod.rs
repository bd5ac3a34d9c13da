//! The stores by themselves: one suite for PostgreSQL and SQLite.

mod append;
mod keys;
mod open;
mod overrides;
mod policies;
mod read;
