//! The rules, without IO, clock or async. Time is an argument.
//!
//! Invariant: a value is checked once, where it enters perdiem, and its type keeps it right
//! afterwards.

pub mod account;
pub mod account_calendar;
pub mod account_facts;
pub mod account_totals;
pub mod almanac;
pub mod audit;
pub mod backtest;
pub mod blocks;
pub mod calendar_words;
pub mod claim;
pub mod correction;
pub mod course;
pub mod drafting;
pub mod elapsed;
pub mod erasure;
pub mod exceptions;
pub mod explanation;
pub mod fault;
pub mod forecast;
pub mod four_eyes;
pub mod grant;
#[cfg(test)]
pub mod histories;
pub mod identity;
pub mod joint_drafting;
pub mod keeping;
pub mod key;
pub mod kind;
pub mod legible;
pub mod limit;
pub mod line_text;
pub mod local_days;
#[cfg(test)]
mod model;
pub mod name;
pub mod orphans;
pub mod overrides;
pub mod own_calendar;
pub mod partial;
pub mod past;
pub mod policy;
pub mod quarters;
pub mod reads;
pub mod reconciliation;
pub mod record;
pub mod refusal;
pub mod replay;
pub mod replayed_rule;
pub mod replayed_top_ups;
pub mod replayed_windows;
pub mod reset;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
pub mod schedule;
pub mod seal;
pub mod shared;
pub mod shared_limit;
pub mod statistics;
pub mod subject_tier;
pub mod tiers;
pub mod top_up;
pub mod topping_up;
pub mod warning;
pub mod window;
pub mod work;
pub mod zone;
pub mod zone_hints;
pub mod zones;
