//! The events that can happen next.

use std::time::Duration;

use chrono::TimeDelta;
use perdiem::claims::protocol::lane::Lane;

use super::clients::Wish;

/// An event. A call is named by its place in the world.
#[derive(Debug, Clone)]
pub enum Event {
    Send(usize, Wish),
    /// An instance gets an atomic batch. A wrong claim besides may doom it.
    SendTogether(usize, [Wish; 2], bool),
    /// A lane of an instance takes the groups that wait for it.
    Begin(usize, Lane),
    /// An instance reads the queue, to append the queued grants to the ledger.
    Drain(usize),
    /// An instance records the lapses that are due.
    Sweep(usize),
    /// A request has its effect.
    Effect(usize),
    /// A request has its effect, and will have the effect again later.
    Repeat(usize),
    /// A response arrives.
    Hear(usize),
    /// An instance stops waiting for a response. The request can still have its effect.
    Lose(usize),
    /// A connection breaks before the effect.
    Break(usize),
    /// The ledger returns data that cannot be read.
    Garble(usize),
    /// A lane panics.
    Panic(usize),
    Crash(usize),
    FlushRedis,
    CopyRedis,
    RollBackRedis,
    /// An instance opens or closes its circuit breaker.
    Breaker(usize),
    /// An instance begins to treat the ledger as silent, or stops to do so.
    Silence(usize),
    CopyLedger,
    /// A copy replaces the ledger: on another server (`true`), or on the same server.
    RestoreLedger(bool),
    /// Time passes. One instance may be paused during that time.
    Pass(Duration, Option<usize>),
    /// A new version of the policy is made.
    Change,
    /// The clock of an instance steps forward by this time, or is right again.
    Step(usize, TimeDelta),
}
