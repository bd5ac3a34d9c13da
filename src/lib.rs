//! Perdiem: a daily-quota service with a persistent ledger.
//!
//! The modules are listed in reading order. A module imports only from the modules above it;
//! `ledger` and `counter` do not know each other. `ARCHITECTURE.md` has the idea and the map.

/// Pure rules: policy, limit, window, claim, grant. Time is an argument.
pub mod domain;

/// The wire: the types of `/v1`'s bodies and answers, which server and command line share.
pub mod api;

/// The one source of time.
pub mod clock;

/// Reads the rules of time zones, which the domain uses.
pub mod zone_rules;

/// Measures the time in which the process ran, for time limits.
pub mod running;

/// Writes an error with its causes, for logs.
pub mod chain;

/// Writes files that only their owner can read.
pub mod secret_file;

/// Fail points: named steps at which a test can end or stop the process.
pub mod faults;

/// The ledger: accounts with numbered entries, on PostgreSQL or SQLite. The ledger is the truth.
pub mod ledger;

/// Counters: copies of last lines in Redis.
pub mod counter;

/// The use cases. The engine alone decides the order of writes.
pub mod engine;

/// The HTTP API: the engine's use cases as URLs.
pub mod http;

/// The settings.
pub mod config;

/// Logs.
pub mod telemetry;

/// The command line.
pub mod cli;
