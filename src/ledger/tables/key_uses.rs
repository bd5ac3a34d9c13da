//! The days on which API keys were used.

use std::collections::BTreeMap;

use chrono::NaiveDate;
use uuid::Uuid;

use crate::access::Ending;
use crate::boxed;
use crate::query::{Texts, query};
use crate::{AdminTables, LedgerError};

/// A key was used on a day of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyUse {
    pub key: Uuid,
    pub used_on: NaiveDate,
}

/// Adds a use of each of the keys $1 on the day $2. A ledger that went back in time can lack some of them. Two
/// instances add them in the same order, so neither waits for the other in a circle.
const ADD_USES: Texts = Texts {
    postgres: "INSERT INTO key_uses (key, used_on)
        SELECT id, $2 FROM keys WHERE id = ANY($1) ORDER BY id
        ON CONFLICT (key, used_on) DO NOTHING",
    sqlite: "INSERT INTO key_uses (key, used_on)
        SELECT id, $2 FROM keys WHERE id IN (SELECT unhex(value) FROM json_each($1)) ORDER BY id
        ON CONFLICT (key, used_on) DO NOTHING",
};

impl AdminTables {
    /// Adds uses. A use that another instance has added is left as it is.
    #[boxed]
    pub async fn add_key_uses(&self, uses: Vec<KeyUse>) -> Result<(), LedgerError> {
        // All uses are of one day, except at midnight.
        let mut days: BTreeMap<NaiveDate, Vec<Uuid>> = BTreeMap::new();
        for KeyUse { key, used_on } in uses {
            days.entry(used_on).or_default().push(key);
        }
        self.ledger
            .own_edit(async |mut session| {
                for (used_on, keys) in days {
                    let add = query(ADD_USES).bind(keys).bind(used_on);
                    session.execute(add).await?;
                }
                Ok(Ending::Commit(()))
            })
            .await
    }
}
