//! A copy of the ledger that replaces it.

use std::time::Duration;

use super::trial::Trial;
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::Postgres;

/// A copy of the ledger. It lacks the transactions that were committed after it was made.
pub struct LedgerCopy {
    /// The copy has the transactions that were committed before this.
    made_at: Duration,
    /// The standby that is the copy. `None` for a database on the ledger's server.
    standby: Option<Postgres>,
}

/// How a copy is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// A standby loses the connection to its primary.
    Standby,
    /// The database is copied on its server.
    Database,
}

impl LedgerCopy {
    /// Makes a copy of a trial's ledger.
    pub async fn make(means: Means, postgres: &Postgres, trial: &Trial) -> Self {
        let made_at = trial.load.time();
        let standby = match means {
            Means::Standby => {
                let standby = postgres.start_standby();
                standby.cut_off().await;
                Some(standby)
            }
            Means::Database => {
                postgres.copy_database(trial.database());
                None
            }
        };
        Self { made_at, standby }
    }

    /// Ends the ledger. The copy replaces it, and the proxies connect to the copy. In some trials,
    /// chosen at random, the proxies hold new connections during that time, as a paused pooler
    /// does.
    pub fn replace(self, postgres: &mut Postgres, ways: &[Proxy], trial: &mut Trial) {
        let database = trial.database().to_owned();
        match &self.standby {
            Some(_) => postgres.kill(),
            None => postgres.drop_database(&database),
        }
        if trial.dice.percent(70) {
            ways.iter().for_each(|way| way.set(Mode::Hold));
        }
        if let Some(standby) = self.standby {
            standby.promote();
            ways.iter().for_each(|way| way.lead_to(standby.port()));
            *postgres = standby;
        } else {
            postgres.rename_copy(&database);
        }
        trial.ledger_is_copy(self.made_at, postgres.url(&database));
        ways.iter().for_each(|way| way.set(Mode::Pass));
    }
}
