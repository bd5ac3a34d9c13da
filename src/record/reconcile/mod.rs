//! Reconciliation compares the counters with the ledger (`compare`), checks the ledger itself
//! (`walk`), counts the figures of one day again (`recount`), and sums the entries of one window of a limit that all
//! subjects share (`shared`). A reconciliation runs when an admin
//! asks for it, and regularly (`reconciler`). It runs beside claims, at a pace that leaves claims at
//! least half of every store.

mod compare;
mod findings;
mod reconciler;
mod recount;
mod shared;
mod walk;

pub use compare::{Ended, heal_counters};
pub use reconciler::{ReconcileFailure, Reconciler};
