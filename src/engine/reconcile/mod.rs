//! Reconciliation compares the counters with the ledger (`compare`), checks the ledger itself
//! (`walk`), and counts the figures of one day again (`recount`). A reconciliation runs when an admin
//! asks for it, and regularly (`reconciler`). It runs beside claims, at a pace that leaves claims at
//! least half of every store (`pace`).

mod compare;
mod findings;
mod pace;
mod reconciler;
mod recount;
mod walk;

pub use compare::{Ended, heal_counters};
pub use pace::Pace;
pub use reconciler::{ReconcileFailure, Reconciler};
