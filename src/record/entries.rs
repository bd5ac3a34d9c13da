//! The entries of one account.

use std::sync::Arc;

use crate::cursor::{self, cut_page};
use crate::{ListFailure, Record};
use claims::instance::Failure;
use domain::claim::Subject;
use domain::grant::Entry;
use domain::policy::PolicyName;

impl Record {
    /// A page of an account's entries, newest first, and the cursor of the next page.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn entries(
        self: &Arc<Self>,
        policy: PolicyName,
        subject: &Subject,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<Entry>, Option<String>), ListFailure> {
        let identity = self.ledger.identity();
        let account = self.instance.account_in_view(&policy, subject).await?;
        self.listed_policy(&policy).await?;
        let list = format!("entries of {}", account.0);
        let before = match cursor {
            Some(cursor) => u64::from_be_bytes(cursor::decode(identity, &list, cursor)?),
            None => i64::MAX.cast_unsigned(),
        };
        let record = self.clone();
        let work = async move {
            record
                .ledger
                .record()
                .entries(account, before, limit + 1)
                .await
        };
        let mut entries = self.instance.detached(work).await?.map_err(Failure::from)?;
        let next = cut_page(&mut entries, limit)
            .map(|last| cursor::encode(identity, &list, &last.line.number.to_be_bytes()));
        Ok((entries, next))
    }
}
