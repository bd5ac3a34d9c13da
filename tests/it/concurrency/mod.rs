//! Many clients at once, through HTTP: never over, nothing twice, nothing lost.

mod exact;
mod keys;
