//! What the metrics show of policies: the figures of their present local days.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use claims::instance::Instance;
use domain::window::Length;
use ledger::{FigureTables, LedgerError, PolicyDay};

/// The shortest time between two reads, however often the metrics are read.
const READS_APART: Duration = Duration::from_secs(5);
/// How long an answer waits for a read. Prometheus waits ten seconds for all metrics.
const PATIENCE: Duration = Duration::from_secs(2);

/// The policies with the most units granted on their present local days.
pub struct BusiestPolicies {
    pub instance: Arc<Instance>,
    pub figures: FigureTables,
    /// The most policies.
    pub most: u32,
    pub last: Mutex<Option<LastLook>>,
}

/// The last read: when it began, and what it found. `None` as long as it has not ended, and if it failed.
pub struct LastLook {
    began_at: Instant,
    found: Option<Arc<Vec<PolicyDay>>>,
}

impl BusiestPolicies {
    /// The figures of the policies' present days, most units first; `None` if they are unknown: the ledger
    /// does not answer, or not in time.
    pub async fn now(&self) -> Option<Arc<Vec<PolicyDay>>> {
        let deadline = Instant::now() + PATIENCE;
        let mut last = timeout_at(deadline, self.last.lock()).await.ok()?;
        if let Some(last) = &*last
            && last.began_at.elapsed() < READS_APART
        {
            return last.found.clone();
        }
        // Noted before the read, because a reader that goes away leaves it unfinished: the next one must not
        // read again at once.
        let looked = last.insert(LastLook {
            began_at: Instant::now(),
            found: None,
        });
        let read = self.instance.detached(self.read());
        match timeout_at(deadline, read).await.ok()?.ok()? {
            Ok(found) => looked.found = Some(Arc::new(found)),
            Err(error) => tracing::debug!(%error, "the metrics lack the figures of policies"),
        }
        looked.found.clone()
    }

    fn read(&self) -> impl Future<Output = Result<Vec<PolicyDay>, LedgerError>> + use<> {
        let instance = self.instance.clone();
        let figures = self.figures.clone();
        let most = self.most;
        async move {
            let now = instance.clock.now();
            let policies = instance.policies.terms.readable(now);
            let days = policies.iter().map(|policy| {
                let calendar = &policy.rule.calendar;
                let date = calendar.local_date(Length::Day, calendar.window(Length::Day, now));
                (policy.id, date)
            });
            let days: Vec<_> = days.collect();
            figures.busiest_days(&days, most).await
        }
    }
}
