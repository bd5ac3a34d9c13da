//! How far the log of seals is, as this instance knows it.

use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use chrono::{DateTime, TimeDelta, Utc};

use crate::engine::instance::Trouble;

/// What the sealer found last, for readiness and for the metrics.
#[derive(Default)]
pub struct SealStatus {
    /// When the oldest position that is not sealed was given.
    unsealed_since: ArcSwap<Option<DateTime<Utc>>>,
    trouble: ArcSwap<Option<Trouble>>,
    push_failures: AtomicU64,
}

impl SealStatus {
    /// Notes when the oldest position that is not sealed was given.
    pub fn note(&self, unsealed_since: Option<DateTime<Utc>>) {
        self.unsealed_since.store(unsealed_since.into());
        self.trouble.store(None.into());
    }

    /// Notes why nothing is sealed.
    pub fn note_trouble(&self, why: String, now: DateTime<Utc>) {
        let trouble = Some(Trouble::Seals(why));
        let before = self.trouble.swap(trouble.clone().into());
        if *before != trouble
            && let Some(trouble) = trouble
        {
            tracing::error!("{trouble}");
        }
        if self.unsealed_since.load().is_none() {
            self.unsealed_since.store(Some(now).into());
        }
    }

    pub fn trouble(&self) -> Option<Trouble> {
        (**self.trouble.load()).clone()
    }

    /// How old the oldest position is that is not sealed.
    pub fn lag(&self, now: DateTime<Utc>) -> TimeDelta {
        let since = **self.unsealed_since.load();
        since.map_or(TimeDelta::zero(), |since| {
            (now - since).max(TimeDelta::zero())
        })
    }

    pub fn note_push_failure(&self) {
        self.push_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// How often a seal could not be pushed out.
    pub fn push_failures(&self) -> u64 {
        self.push_failures.load(Ordering::Relaxed)
    }
}
