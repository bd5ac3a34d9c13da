//! Redis decides alone: the script against the domain's rule, and the way of its grants into the
//! ledger.

mod durability;
mod found;
mod outage;
mod rollback;
mod script;
