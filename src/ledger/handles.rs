//! The ledger by capability. A part of the program holds the handle of its own work, so it can do
//! nothing else with the ledger.

use super::Ledger;
use domain::identity::Identity;

macro_rules! handles {
    ($($(#[doc = $doc:literal])+ $make:ident: $name:ident;)+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone)]
            pub struct $name {
                pub(super) ledger: Ledger,
            }

            impl $name {
                pub fn identity(&self) -> &Identity {
                    self.ledger.identity()
                }
            }
        )+

        impl Ledger {
            $(
                $(#[doc = $doc])+
                pub fn $make(&self) -> $name {
                    $name {
                        ledger: self.clone(),
                    }
                }
            )+
        }
    };
}

handles! {
    /// What decisions need: last lines, what these do not have, and appends.
    claims: ClaimTables;
    /// What admins change: policies, overrides, blocks, keys, and subjects to erase.
    admin: AdminTables;
    /// What happened, in one order: entries, changes, acts and positions, and what a cut leaves.
    record: RecordTables;
    /// The figures of days, and denials.
    figures: FigureTables;
    /// What the ledger is checked by: recounts of accounts, reconciliations, and the log of leaves.
    audit: AuditTables;
}
