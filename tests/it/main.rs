//! The integration tests, against real servers. They are one binary, so that it is linked once and
//! its tests share their servers.

#![cfg_attr(
    not(feature = "faults"),
    allow(
        dead_code,
        unused_imports,
        reason = "only the fault suite uses all of the support"
    )
)]

mod archive;
mod blocks;
mod cli;
mod clocks;
mod concurrency;
mod console;
mod counter;
mod counting;
mod erasure;
#[cfg(feature = "faults")]
mod faults;
mod house;
mod http;
mod judge;
mod lapses;
mod ledger;
mod limits;
mod plain;
mod readiness;
mod reconciliation;
mod record;
mod redis_access;
mod seals;
mod service_role;
mod sim;
mod specification;
mod standby;
mod starting;
mod support;
mod tiers;
mod totals;
mod windows;
