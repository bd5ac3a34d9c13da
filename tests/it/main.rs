//! The integration tests, against real servers: one binary, so that it links once and its
//! tests share their servers.

mod concurrency;
mod counter;
mod durability;
mod ledger;
mod readiness;
mod smoke;
mod support;
mod windows;
