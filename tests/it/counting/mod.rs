//! Redis decides alone: the script is compared with the domain's rule, and its grants reach the
//! ledger.

mod durability;
mod found;
mod outage;
mod rollback;
mod script;
