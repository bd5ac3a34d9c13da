//! The stores by themselves: one suite for PostgreSQL and SQLite.

mod append;
mod corrections;
mod open;
mod policies;
mod read;
