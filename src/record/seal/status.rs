//! The state of the log of seals, as this instance knows it.

use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use chrono::{DateTime, TimeDelta, Utc};

use claims::instance::Trouble;

/// The sealer's last findings, for readiness and for the metrics.
#[derive(Default)]
pub struct SealStatus {
    /// When the oldest unsealed position was given.
    unsealed_since: ArcSwap<Option<DateTime<Utc>>>,
    trouble: ArcSwap<Option<Trouble>>,
    forged: ArcSwap<Option<Trouble>>,
    push_failures: AtomicU64,
}

impl SealStatus {
    /// Notes when the oldest unsealed position was given.
    pub fn note(&self, unsealed_since: Option<DateTime<Utc>>) {
        self.unsealed_since.store(unsealed_since.into());
        self.trouble.store(None.into());
    }

    /// Notes that nothing is sealed, and why. Without a reason: the log cannot be read or written.
    pub fn note_stop(&self, why: Option<String>, now: DateTime<Utc>) {
        tell_new(&self.trouble, why.map(Trouble::Seals));
        if self.unsealed_since.load().is_none() {
            self.unsealed_since.store(Some(now).into());
        }
    }

    /// Notes an entry or a change whose place no transaction has had.
    pub fn note_forged(&self, name: Option<String>) {
        tell_new(&self.forged, name.map(Trouble::Forged));
    }

    pub fn troubles(&self) -> impl Iterator<Item = Trouble> {
        [&self.trouble, &self.forged]
            .into_iter()
            .filter_map(|trouble| (**trouble.load()).clone())
    }

    /// The age of the oldest unsealed position.
    pub fn lag(&self, now: DateTime<Utc>) -> TimeDelta {
        let since = **self.unsealed_since.load();
        since.map_or(TimeDelta::zero(), |since| {
            (now - since).max(TimeDelta::zero())
        })
    }

    pub fn note_push_failure(&self) {
        self.push_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// How many pushes of seals have failed.
    pub fn push_failures(&self) -> u64 {
        self.push_failures.load(Ordering::Relaxed)
    }
}

/// Stores a trouble. Logs it if it is new.
fn tell_new(place: &ArcSwap<Option<Trouble>>, trouble: Option<Trouble>) {
    let before = place.swap(trouble.clone().into());
    if *before != trouble
        && let Some(trouble) = trouble
    {
        tracing::error!("{trouble}");
    }
}
