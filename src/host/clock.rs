//! The one source of time.
//!
//! Time comes from the machine's clock since its start, which nobody sets, and an offset. So a step
//! of the wall clock changes no instant. The wall clock is read when a clock starts, and to warn of
//! a step.

mod followed;
mod sandbox;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use rustix::time::{ClockId, clock_gettime};

use domain::identity::to_micros;

pub use followed::FollowedClock;
pub use sandbox::{NotMoved, SandboxClock};

/// A source of time, cut to microseconds, so that every store returns what it got. A clone is
/// cheap.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The clock of the machine.
    System(SystemClock),
    /// A clock that is set by hand.
    Manual(ManualClock),
    /// A clock that a developer moves forward.
    Sandbox(SandboxClock),
    /// One of these clocks with a correction.
    Followed(FollowedClock),
}

impl Clock {
    /// A clock that starts now, at the instant of the wall clock.
    pub fn system() -> Self {
        Self::System(SystemClock::start())
    }

    pub fn now(&self) -> DateTime<Utc> {
        at_micros(self.micros())
    }

    /// The present instant, in microseconds since 1970.
    fn micros(&self) -> i64 {
        match self {
            Self::System(clock) => clock.micros(),
            Self::Manual(clock) => clock.micros(),
            Self::Sandbox(clock) => clock.micros(),
            Self::Followed(clock) => clock.micros(),
        }
    }

    /// The clock that a developer moves; `None` outside of a sandbox.
    pub fn sandbox(&self) -> Option<&SandboxClock> {
        match self {
            Self::Sandbox(clock) => Some(clock),
            Self::Followed(clock) => clock.sandbox(),
            Self::System(_) | Self::Manual(_) => None,
        }
    }

    /// How far the wall clock is ahead of this clock; negative if it is behind.
    pub fn wall_ahead(&self) -> TimeDelta {
        match self {
            Self::System(clock) => clock.wall_ahead(),
            Self::Manual(clock) => clock.wall_ahead(),
            Self::Sandbox(clock) => clock.wall_ahead(),
            Self::Followed(clock) => clock.wall_ahead(),
        }
    }
}

/// The machine's wall clock. People and NTP set it, so it can step. It decides nothing.
#[expect(
    clippy::disallowed_methods,
    reason = "read at the start, and for warnings"
)]
pub fn wall_clock() -> DateTime<Utc> {
    to_micros(Utc::now())
}

/// A clock that goes on while the machine sleeps, where the system has one that also cannot be set.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "openbsd"))]
const SINCE_BOOT: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "openbsd")))]
const SINCE_BOOT: ClockId = ClockId::Monotonic;

/// How long this thread has computed. What it waited for does not count.
#[expect(clippy::disallowed_methods, reason = "the one source of time")]
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.cast_unsigned(),
        time.tv_nsec.cast_unsigned() as u32,
    )
}

/// The time since the start of the machine, in microseconds.
#[expect(clippy::disallowed_methods, reason = "the one source of time")]
fn since_boot_micros() -> i64 {
    let time = clock_gettime(SINCE_BOOT);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1000
}

/// The time since the start of the machine, with an offset that was measured once against the wall
/// clock. Invariant: it never steps and never runs backwards.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    offset_micros: i64,
}

impl SystemClock {
    pub fn start() -> Self {
        Self {
            offset_micros: wall_offset(),
        }
    }

    fn micros(self) -> i64 {
        since_boot_micros() + self.offset_micros
    }

    fn wall_ahead(self) -> TimeDelta {
        TimeDelta::microseconds(wall_offset() - self.offset_micros)
    }
}

/// How far the wall clock is ahead of the time since the start of the machine, in microseconds.
fn wall_offset() -> i64 {
    offset_between(since_boot_micros, || wall_clock().timestamp_micros())
}

/// Two clocks that are read within this time are read together, in microseconds.
const TOGETHER: i64 = 1000;
/// How often two clocks are read before the closest readings are used.
const READINGS_MOST: u32 = 10;

/// How far `theirs` is ahead of `own`. The process can be paused between two readings, so `own` is
/// read on both sides of `theirs`, again if these readings are far apart.
fn offset_between(own: impl Fn() -> i64, theirs: impl Fn() -> i64) -> i64 {
    let read = || {
        let before = own();
        let their_time = theirs();
        let apart = own() - before;
        (apart, their_time - before - apart / 2)
    };
    let mut closest = read();
    for _ in 1..READINGS_MOST {
        if closest.0 <= TOGETHER {
            break;
        }
        closest = closest.min(read());
    }
    closest.1
}

fn at_micros(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).unwrap_or(DateTime::UNIX_EPOCH)
}

/// A clock that is set by hand, to try out midnight. Clones share it.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Hands>);

#[derive(Debug)]
struct Hands {
    micros: AtomicI64,
    /// How far the wall clock of this machine is ahead, in microseconds.
    wall_ahead: AtomicI64,
}

impl ManualClock {
    pub fn at(now: DateTime<Utc>) -> Self {
        Self(Arc::new(Hands {
            micros: AtomicI64::new(now.timestamp_micros()),
            wall_ahead: AtomicI64::new(0),
        }))
    }

    pub fn now(&self) -> DateTime<Utc> {
        at_micros(self.micros())
    }

    fn micros(&self) -> i64 {
        self.0.micros.load(Ordering::SeqCst)
    }

    /// Sets the clock to any instant, including an earlier one. The wall clock moves with it.
    pub fn set(&self, now: DateTime<Utc>) {
        self.0
            .micros
            .store(now.timestamp_micros(), Ordering::SeqCst);
    }

    pub fn advance(&self, by: TimeDelta) {
        let micros = by.num_microseconds().unwrap_or(0);
        self.0.micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// Steps the wall clock alone, as NTP does.
    pub fn step_wall(&self, by: TimeDelta) {
        let micros = by.num_microseconds().unwrap_or(0);
        self.0.wall_ahead.fetch_add(micros, Ordering::SeqCst);
    }

    fn wall_ahead(&self) -> TimeDelta {
        TimeDelta::microseconds(self.0.wall_ahead.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The clocks of a machine: the second reading of `own` can come late.
    #[test]
    fn clocks_that_are_read_apart_are_read_again() {
        let now = Cell::new(0);
        let pauses = Cell::new(0);
        let own = || {
            let pause = if pauses.replace(pauses.get() + 1) == 1 {
                2_000_000
            } else {
                10
            };
            now.set(now.get() + pause);
            now.get()
        };
        assert_eq!(offset_between(own, || now.get() + 7_000_000), 6_999_995);
    }

    #[test]
    fn clocks_that_are_never_read_together_are_read_as_close_as_possible() {
        let now = Cell::new(0);
        let pause = Cell::new(40_000);
        let own = || {
            pause.set(pause.get() - 1000);
            now.set(now.get() + pause.get());
            now.get()
        };
        let offset = offset_between(own, || now.get() + 7_000_000);
        assert!((6_980_000..7_000_000).contains(&offset), "{offset}");
    }

    #[test]
    fn the_machines_clock_starts_at_the_wall_clock_and_goes_on() {
        let clock = Clock::system();
        let first = clock.now();
        let wall = wall_clock();
        assert!(
            (first - wall).abs() < TimeDelta::seconds(1),
            "{first} {wall}"
        );
        assert!(clock.wall_ahead().abs() < TimeDelta::seconds(1));
        assert!(clock.now() >= first);
    }
}
