//! Whether a grant is on two machines before it is answered. Nobody notices when it no longer is: claims become faster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;

use ledger::StandbyFacts;

/// What the ledger's server said last about its standbys.
#[derive(Default)]
pub struct StandbyWatch {
    facts: ArcSwap<Option<StandbyFacts>>,
    /// Whether commits have waited for a synchronous standby since the process began.
    has_waited: AtomicBool,
}

/// Commits waited for a synchronous standby, and do not any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the database waits for no synchronous standby any more, because its synchronous_standby_names became empty: a \
     fail-over can lose grants that were answered; set it again, or restart perdiem if you want it so; claims are \
     still decided"
)]
pub struct NoStandby;

impl StandbyWatch {
    /// Notes what the server says. `None` on SQLite.
    pub fn note(&self, facts: Option<StandbyFacts>) {
        let had_trouble = self.trouble().is_some();
        if facts.as_ref().is_some_and(waits) {
            self.has_waited.store(true, Ordering::Relaxed);
        }
        self.facts.store(Arc::new(facts));
        match self.trouble() {
            Some(trouble) if !had_trouble => tracing::error!("{trouble}"),
            None if had_trouble => {
                tracing::info!("the database waits for synchronous standbys again")
            }
            Some(_) | None => {}
        }
    }

    pub fn trouble(&self) -> Option<NoStandby> {
        let has_waited = self.has_waited.load(Ordering::Relaxed);
        (has_waited && !self.waits()).then_some(NoStandby)
    }

    /// Whether commits wait for a synchronous standby.
    pub fn waits(&self) -> bool {
        let facts = self.facts.load();
        facts.as_ref().as_ref().is_some_and(waits)
    }

    /// The number of synchronous standbys that are connected; `None` if that is not known.
    pub fn synchronous(&self) -> Option<i64> {
        let facts = self.facts.load();
        facts.as_ref().as_ref()?.known_synchronous()
    }
}

fn waits(facts: &StandbyFacts) -> bool {
    !facts.names.trim().is_empty()
}
