//! What an instance that only reads knows of its server: whether it is a standby, and how far it is
//! behind its primary.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

use ledger::ReplayReading;

/// A problem of a standby. The instance answers all the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StandbyTrouble {
    #[error(
        "the standby is not connected to its primary, so the answers are at least {seconds} s old: \
         check the primary, the network and the standby's log"
    )]
    CutOff { seconds: u64 },
    #[error(
        "the standby is not connected to its primary, and does not say how old its data is: check the \
         primary, the network and the standby's log"
    )]
    OfUnknownAge,
    /// It was promoted, or DATABASE_URL names a primary.
    #[error(
        "the database is not a standby: this instance goes on only reading; name a standby in \
         DATABASE_URL, or start perdiem without --read-only to decide claims"
    )]
    Primary,
}

/// The last findings about the server.
#[derive(Default)]
pub struct Standby(ArcSwap<Option<Finding>>);

#[derive(Clone, Copy)]
struct Finding {
    reading: ReplayReading,
    noted_at: Instant,
    /// Everything that the primary committed before this instant is here.
    complete_to: Option<DateTime<Utc>>,
}

impl Standby {
    /// Notes a reading. A standby that has replayed all is up to date while it is connected. A
    /// standby with something to replay is as old as the last replayed transaction, or as the
    /// reading at which it was up to date.
    pub fn note(&self, reading: ReplayReading, noted_at: Instant) {
        let before = self.found().and_then(|found| found.complete_to);
        let is_up_to_date = reading.is_receiving && reading.has_replayed_all;
        let complete_to = if is_up_to_date || !reading.is_standby {
            Some(reading.now)
        } else {
            before.max(reading.replayed_to)
        };
        let found = Finding {
            reading,
            noted_at,
            complete_to,
        };
        self.0.store(Arc::new(Some(found)));
    }

    fn found(&self) -> Option<Finding> {
        **self.0.load()
    }

    /// How old the answers are at most; `None` if the standby does not say.
    pub fn lag(&self, now: Instant) -> Option<Duration> {
        let found = self.found()?;
        let age = (found.reading.now - found.complete_to?).max(TimeDelta::zero());
        let age = age.to_std().unwrap_or_default();
        Some(age + now.saturating_duration_since(found.noted_at))
    }

    pub fn trouble(&self, now: Instant) -> Option<StandbyTrouble> {
        let reading = self.found()?.reading;
        match (reading.is_standby, reading.is_receiving) {
            (false, _) => Some(StandbyTrouble::Primary),
            (true, true) => None,
            (true, false) => Some(match self.lag(now) {
                Some(lag) => StandbyTrouble::CutOff {
                    seconds: lag.as_secs(),
                },
                None => StandbyTrouble::OfUnknownAge,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    const UP_TO_DATE: ReplayReading = ReplayReading {
        is_standby: true,
        is_receiving: true,
        has_replayed_all: true,
        replayed_to: None,
        now: DateTime::UNIX_EPOCH,
    };

    #[test]
    fn a_standby_is_as_old_as_what_it_has_replayed() {
        let standby = Standby::default();
        let now = Instant::now();
        let lag_of = |reading: ReplayReading| {
            standby.note(reading, now);
            standby.lag(now).map(|lag| lag.as_secs())
        };
        assert_eq!(standby.lag(now), None);
        let behind = ReplayReading {
            has_replayed_all: false,
            ..UP_TO_DATE
        };
        assert_eq!(lag_of(behind), None);
        // The last transaction is old because nothing happens.
        let replayed_to = Some(at(100));
        let idle = ReplayReading {
            replayed_to,
            now: at(900),
            ..UP_TO_DATE
        };
        assert_eq!(lag_of(idle), Some(0));
        // It was up to date at 900, whatever the instant of the last transaction.
        let now_behind = ReplayReading {
            replayed_to,
            now: at(903),
            ..behind
        };
        assert_eq!(lag_of(now_behind), Some(3));
        let replaying = ReplayReading {
            replayed_to: Some(at(902)),
            now: at(904),
            ..behind
        };
        assert_eq!(lag_of(replaying), Some(2));
        // Without its primary nobody knows what it lacks.
        let cut_off = ReplayReading {
            is_receiving: false,
            replayed_to: Some(at(902)),
            now: at(960),
            ..UP_TO_DATE
        };
        assert_eq!(lag_of(cut_off), Some(58));
        // The server does not answer: the age grows.
        let later = now + Duration::from_secs(5);
        assert_eq!(standby.lag(later), Some(Duration::from_secs(63)));
        let trouble = StandbyTrouble::CutOff { seconds: 63 };
        assert_eq!(standby.trouble(later), Some(trouble));
        let promoted = ReplayReading {
            is_standby: false,
            ..cut_off
        };
        assert_eq!(lag_of(promoted), Some(0));
        assert_eq!(standby.trouble(now), Some(StandbyTrouble::Primary));
    }
}
