//! Blocks, and what a change of a policy does to overrides and to a pause: facts that a change of the
//! limits must not lose.

mod decided;
mod orphans;
mod pauses;
mod views;
