//! The days on which API keys were used.

use chrono::NaiveDate;
use uuid::Uuid;

use crate::access::Ending;
use crate::query::query;
use crate::{AdminTables, LedgerError};

/// A key was used on a day of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyUse {
    pub key: Uuid,
    pub used_on: NaiveDate,
}

/// A ledger that went back in time can lack the key.
const ADD_USE: &str = "INSERT INTO key_uses (key, used_on) SELECT id, $2 FROM keys WHERE id = $1
    ON CONFLICT (key, used_on) DO NOTHING";

impl AdminTables {
    /// Adds uses. A use that another instance has added is left as it is.
    pub async fn add_key_uses(&self, mut uses: Vec<KeyUse>) -> Result<(), LedgerError> {
        // Two instances add them in the same order, so neither waits for the other in a circle.
        uses.sort_unstable();
        self.ledger
            .own_edit(async |mut session| {
                for of_key in uses {
                    let add = query(ADD_USE).bind(of_key.key).bind(of_key.used_on);
                    session.execute(add).await?;
                }
                Ok(Ending::Commit(()))
            })
            .await
    }
}
