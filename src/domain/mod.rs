//! The rules, pure: no IO, no clock, no async. Time is an argument.
//!
//! Each type is parsed once, at the edge, and cannot be wrong afterwards.

pub mod account;
pub mod almanac;
pub mod audit;
pub mod backtest;
pub mod claim;
pub mod correction;
pub mod drafting;
pub mod erasure;
pub mod explanation;
pub mod grant;
pub mod identity;
pub mod key;
pub mod local_days;
pub mod overrides;
pub mod policy;
pub mod reconciliation;
pub mod record;
pub mod refusal;
#[cfg(test)]
pub mod samples;
pub mod schedule;
pub mod seal;
pub mod statistics;
pub mod totals;
pub mod window;
pub mod work;
pub mod zone;
pub mod zones;
