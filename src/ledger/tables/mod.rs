//! The administrative tables: their rows, their statements, and the methods of
//! [`Ledger`](super::Ledger) on them, each written once. A method without a section on errors fails
//! with [`LedgerError::Unavailable`](super::LedgerError::Unavailable), or with
//! [`LedgerError::Corrupt`](super::LedgerError::Corrupt) if it reads rows.

pub mod accounts;
pub mod acts;
pub mod audit;
pub mod backtest;
pub mod busiest;
pub mod changes;
pub mod closed_days;
pub mod cuts;
pub mod denials;
pub mod due_lapses;
pub mod entry_lists;
pub mod erasures;
pub mod explanation;
pub mod forged;
pub mod grant_lists;
pub mod grants;
pub mod history;
pub mod instances;
pub mod key_uses;
pub mod keys;
pub mod leaves;
pub mod open_days;
pub mod overrides;
pub mod past;
pub mod policies;
pub mod policy_edits;
pub mod positions;
pub mod quarters;
pub mod reconciliations;
pub mod record;
pub mod recount;
pub mod replacements;
pub mod replay;
pub mod seals;
pub mod shared_sums;
pub mod statistics;
pub mod subjects;
pub mod versions;

/// The statements of lists and positions, by name, for a test that reads their plans.
#[cfg(feature = "faults")]
pub fn list_texts() -> Vec<(String, super::query::Texts)> {
    [
        entry_lists::texts(),
        grant_lists::texts(),
        grants::texts(),
        positions::texts(),
        audit::texts(),
        denials::texts(),
        quarters::texts(),
        subjects::texts(),
    ]
    .concat()
}
