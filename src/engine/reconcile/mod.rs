//! Reconciliation: the counters are compared with the ledger (`compare`), and the ledger with
//! itself (`walk`), when an admin asks for it and by itself now and then (`reconciler`). It goes on
//! beside claims, at a pace that leaves them half of every store (`pace`).

mod compare;
mod findings;
mod pace;
mod reconciler;
mod walk;

pub use compare::{Ended, heal_counters};
pub use pace::Pace;
pub use reconciler::{ReconcileFailure, Reconciler};
