//! Perdiem: a daily-quota service with a persistent ledger.
//!
//! In reading order. A layer imports only from those above it; `ledger` and `counter` do not
//! know each other. `ARCHITECTURE.md` draws the map.

/// The rules, pure: policy, limit, window, claim, grant. Time is an argument.
pub mod domain;

/// The one source of time.
pub mod clock;

/// Time in which the process ran, for limits on what it waits for.
pub mod running;

/// An error with its causes, for a log.
pub mod chain;

/// Fail points: named steps at which a test ends or stops the process.
pub mod faults;

/// The truth: accounts with numbered entries, on PostgreSQL or SQLite.
pub mod ledger;

/// The fast view: Redis' copies of last lines.
pub mod counter;

/// The use cases. It alone decides the order of writes.
pub mod engine;

/// The HTTP face.
pub mod http;

/// The settings.
pub mod config;

/// Logs.
pub mod telemetry;

/// The command line.
pub mod cli;
