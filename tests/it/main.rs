//! The integration tests, against real servers: one binary, so that it links once and its
//! tests share their servers.

mod concurrency;
mod ledger;
mod smoke;
mod support;
mod windows;
