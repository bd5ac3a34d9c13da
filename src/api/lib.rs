//! The wire: what `/v1` takes and answers, as types that the server, the command line and the console share.
//!
//! A type is written with the bytes that the specification describes, and `reading::read` reads it again. Clients
//! in Rust can use the crate, because it knows the domain, and nothing else of perdiem.

pub mod address;
pub mod approvals;
pub mod backtests;
pub mod blocks;
pub mod bundles;
pub mod calendars;
pub mod changes;
pub mod claims;
pub mod distinct;
pub mod entries;
pub mod erasures;
mod exact;
pub mod explanation;
pub mod exports;
pub mod format;
pub mod grants;
pub mod health;
pub mod instant;
pub mod keys;
pub mod limit_text;
pub mod limits;
pub mod orphans;
pub mod overrides;
mod page;
pub mod policies;
pub mod problem;
mod reading;
pub mod reconciliations;
pub mod sandbox;
pub mod seals;
pub mod statistics;
pub mod strict;
pub mod subjects;
pub mod tiers;
pub mod top_ups;
pub mod versions;
pub mod words;

pub use page::AnyPage;
pub use reading::{ForeignAnswer, read};
