//! What admins change and auditors read: policies, overrides, blocks and keys with their history,
//! corrections of grants, lists and exports of grants, windows, and backtests. A change is made in
//! the ledger first; then this instance knows it at once.

mod backtest;
mod changes;
mod corrections;
mod edit;
mod find;
mod grants;
mod keys;
mod overrides;

pub use backtest::Backtested;
pub use changes::ChangeQuery;
pub use corrections::{Adjustment, Correction};
pub use edit::{EditError, PolicyChange, Precondition};
pub use grants::{GrantPage, GrantQuery};
pub use keys::KeyError;
pub use overrides::EditedTerms;
