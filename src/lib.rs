//! Perdiem: a daily-quota service with a persistent ledger.
//!
//! Each folder of `src` is a crate, and they are listed here in reading order. A crate knows only those
//! above it, and `ledger` and `counter` do not know each other. `ARCHITECTURE.md` has the idea and the
//! map.

/// Pure rules: policy, limit, window, claim, grant. Time is an argument.
pub use domain;

/// What the host gives: the one source of time, fail points, files that only their owner can read.
pub use host;

/// The wire: the types of `/v1`'s answers, which server and command line share.
pub use api;

/// Checks of what auditors got: archives, exports and proofs, without a ledger.
pub use verify;

/// The ledger: accounts with numbered entries, on PostgreSQL or SQLite. The ledger is the truth.
pub use ledger;

/// Counters: copies of last lines in Redis.
pub use counter;

/// What product backends ask for, and the way of a claim.
pub use claims;

/// What auditors read and check: the record of all entries and changes, figures, seals, archives.
pub use record;

/// What admins change.
pub use admin;

/// An instance, put together of its parts.
pub use engine;

/// Signing in with a company's account.
pub use sign_on;

/// The console: pages that are made of answers of `/v1`.
pub use console;

/// The HTTP API: the use cases as URLs.
pub use http;

/// The command line, with the settings and the logs.
pub use cli;
