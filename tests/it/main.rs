//! The integration tests, against real servers: one binary, so that it links once and its
//! tests share their servers.

mod cli;
mod house;
mod http;
mod smoke;
mod specification;
mod support;
mod windows;
