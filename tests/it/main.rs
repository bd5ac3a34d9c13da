//! The integration tests, against real servers: one binary, so that it links once and its
//! tests share their servers.

mod cli;
mod concurrency;
mod counter;
mod counting;
mod durability;
mod faults;
mod house;
mod http;
mod ledger;
mod model;
mod readiness;
mod reconciliation;
mod specification;
mod support;
mod windows;
