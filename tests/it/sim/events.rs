//! What can happen next.

use std::time::Duration;

use perdiem::engine::claim::way::Lane;

use super::clients::Wish;

/// An event. Calls go by their places in the world.
#[derive(Debug, Clone)]
pub enum Event {
    Send(usize, Wish),
    /// A lane of an instance takes the groups that wait for it.
    Begin(usize, Lane),
    /// An instance reads the queue, to bring what waits there into the ledger.
    Drain(usize),
    /// A request has its effect.
    Effect(usize),
    /// A request has its effect, and will have it once more.
    Repeat(usize),
    /// A response arrives.
    Hear(usize),
    /// An instance gives up waiting. The request may still have its effect.
    Lose(usize),
    /// A connection breaks before the effect.
    Break(usize),
    /// The ledger holds what cannot be read.
    Garble(usize),
    /// A lane panics.
    Panic(usize),
    Crash(usize),
    FlushRedis,
    CopyRedis,
    RollBackRedis,
    /// An instance opens or closes its breaker.
    Breaker(usize),
    /// An instance begins or ends to take the ledger for silent.
    Silence(usize),
    CopyLedger,
    /// The ledger is replaced by its copy: on another server, or on the same one, set back.
    RestoreLedger(bool),
    /// Time passes. One instance may be paused meanwhile.
    Pass(Duration, Option<usize>),
    /// Another version of the policy is made.
    Change,
}
