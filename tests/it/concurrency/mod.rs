//! Many clients at the same time, through HTTP: never over, nothing twice, nothing lost.

mod bundles;
mod changes;
mod cuts;
mod exact;
mod histories;
mod keys;
mod kinds;
mod known_lines;
mod mixed;
mod newcomers;
mod overrides;
mod schedules;
mod stalled;
mod together;
