//! A copy of the ledger that takes its place.

use std::time::Duration;

use super::trial::Trial;
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::Postgres;

/// A copy of the ledger, which lacks what is committed after it was made.
pub struct LedgerCopy {
    /// It has what was committed before this.
    made_at: Duration,
    /// The standby that is the copy. `None` for a database beside the ledger's.
    standby: Option<Postgres>,
}

/// How a copy is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// A standby is cut off its primary.
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

    /// Ends the ledger. The copy takes its place, and the ways lead there. By lot they hold new
    /// connections meanwhile, as a pooler does that is told to pause.
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
