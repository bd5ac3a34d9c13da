//! Subjects that are at or near a limit of a policy.
//!
//! The walk goes over the entries that may count now, oldest first. An account is met at the first of them, and
//! its present usage is computed as for a claim. So nothing is stored for this list, a change of the policy or of
//! an override is seen at once, and a page costs the same however many entries there are.

use std::str::FromStr;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::Instant;
use uuid::Uuid;

use crate::cursor;
use crate::listed::Misfit;
use crate::{ListFailure, Record};
use claims::instance::Failure;
use claims::protocol::totals;
use domain::grant::Line;
use domain::identity::{AccountId, EntryId};
use domain::limit::per::Per;
use domain::limit::total::Total;
use domain::policy::{Policy, PolicyName};
use domain::replayed_rule::limit_counts_from;
use ledger::{AccountEntry, LedgerError, Look};

/// How many entries a page reads at most.
const ENTRIES_MOST: u32 = 300;

/// The most digits of a part after the point: as many as a double can need from 0.001 on.
const DIGITS_MOST: usize = 20;

/// A part of a limit: so many of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartOfLimit {
    parts: u128,
    of: u128,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write a part from 0.001 to 1, such as 0.8")]
pub struct NoPart;

impl PartOfLimit {
    /// Four fifths.
    pub const MOST: Self = Self { parts: 4, of: 5 };

    fn is_in(self, used: u64, most: u64) -> bool {
        u128::from(used) * self.of >= u128::from(most) * self.parts
    }
}

impl FromStr for PartOfLimit {
    type Err = NoPart;

    fn from_str(text: &str) -> Result<Self, NoPart> {
        let (whole, digits) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let is_short = (1..=DIGITS_MOST).contains(&digits.len());
        if !matches!(whole, "0" | "1") || !is_number || !is_short {
            return Err(NoPart);
        }
        let parts = format!("{whole}{digits}").parse().map_err(|_| NoPart)?;
        let of = 10_u128.pow(digits.len() as u32);
        let part = Self { parts, of };
        (of <= 1000 * parts && parts <= of)
            .then_some(part)
            .ok_or(NoPart)
    }
}

/// Which subjects to list.
#[derive(Debug, Clone)]
pub struct NearQuery {
    pub policy: PolicyName,
    /// How much of a limit is used at least.
    pub at_least: PartOfLimit,
    /// This limit; `None` for any limit of the policy.
    pub per: Option<Per>,
}

/// A subject, and the policy's limits with its present usage.
#[derive(Debug)]
pub struct NearSubject {
    pub subject: String,
    pub totals: Vec<Total>,
}

/// Where a page begins: the first entry of the walk, and the last one of the page before.
#[derive(Debug, Clone, Copy)]
struct Walk {
    from: EntryId,
    after: EntryId,
}

impl Record {
    /// A page of at most `limit` subjects, and the cursor of the next page. A page reads some entries only, so it can
    /// be empty and have a next page. The walk sees the entries that the ledger has.
    ///
    /// # Errors
    /// [`ListFailure`]; [`ListFailure::UnknownOrArchived`] for a policy that is not in use.
    pub async fn near(
        self: &Arc<Self>,
        query: NearQuery,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<NearSubject>, Option<String>), ListFailure> {
        let name = &query.policy;
        let policy = self.instance.usable_policy(name, Instant::now()).await?;
        let policy = policy.filter(|policy| !policy.archived);
        let policy = policy.ok_or_else(|| ListFailure::UnknownOrArchived(name.clone()))?;
        let now = self.instance.clock.now();
        let identity = self.ledger.identity();
        let list = format!("near {query:?}");
        let walk = match cursor {
            Some(cursor) => Walk::decode(cursor::decode(identity, &list, cursor)?),
            None => Walk::begin(&policy, &query, now)?,
        };
        let record = self.clone();
        let work = async move { record.walk(&policy, &query, walk, limit, now).await };
        let (found, next) = self.instance.detached(work).await?.map_err(Failure::from)?;
        let next = next.map(|after| {
            let walk = Walk { after, ..walk };
            cursor::encode(identity, &list, &walk.encode())
        });
        Ok((found, next))
    }

    /// Goes on until the page is full, and returns the last entry that it has read if there may be more.
    async fn walk(
        &self,
        policy: &Arc<Policy>,
        query: &NearQuery,
        walk: Walk,
        limit: u32,
        now: DateTime<Utc>,
    ) -> Result<(Vec<NearSubject>, Option<EntryId>), LedgerError> {
        // 1. Read entries, and the last lines of the accounts that are met.
        let tables = self.ledger.record();
        let entries = tables.entries_since(policy.id, walk.from, walk.after, ENTRIES_MOST);
        let entries = entries.await?;
        let last = entries
            .last()
            .filter(|_| entries.len() == ENTRIES_MOST as usize);
        let last = last.map(|entry| entry.id);
        let is_met = |entry: &AccountEntry| entry.before.is_none_or(|before| before < walk.from);
        let met: Vec<AccountEntry> = entries.into_iter().filter(is_met).collect();
        let look = Look {
            accounts: met.iter().map(|entry| entry.account).collect(),
            ..Look::default()
        };
        let mut lines = self.ledger.claims().look(&look).await?.lines;
        // 2. Compute the usage of each.
        let mut found = Vec::new();
        for entry in met {
            // A subject that was erased has no name.
            let Some(subject) = entry.subject else {
                continue;
            };
            let line = lines.remove(&entry.account);
            let totals = self.usage_after(policy, entry.account, line, now).await?;
            if totals.iter().any(|total| query.is_near(total)) {
                found.push(NearSubject { subject, totals });
            }
            if found.len() == limit as usize {
                return Ok((found, Some(entry.id)));
            }
        }
        Ok((found, last))
    }

    async fn usage_after(
        &self,
        policy: &Arc<Policy>,
        account: AccountId,
        last: Option<Line>,
        now: DateTime<Utc>,
    ) -> Result<Vec<Total>, LedgerError> {
        let policies = &self.instance.policies;
        let terms = policies
            .terms_after(policy, account, last.as_ref(), now)
            .await?;
        totals(&self.ledger.claims(), &terms, account, last, now).await
    }
}

impl NearQuery {
    fn asks_for(&self, per: Per) -> bool {
        self.per.is_none_or(|asked| asked == per)
    }

    fn is_near(&self, total: &Total) -> bool {
        self.asks_for(total.per()) && self.at_least.is_in(total.used(), total.at_once())
    }
}

impl Walk {
    /// Begins at the first entry that may count now in a limit.
    fn begin(policy: &Policy, query: &NearQuery, now: DateTime<Utc>) -> Result<Self, ListFailure> {
        let rule = &policy.rule;
        let limits = rule.limits.iter();
        let asked = limits.filter(|limit| query.asks_for(limit.per()));
        let from = asked.map(|limit| limit_counts_from(rule, limit, now));
        let from = from.min().map(EntryId::first_from);
        let from = from.ok_or(ListFailure::Misfit("per", Misfit::NoSuchLimit))?;
        Ok(Self { from, after: from })
    }

    fn encode(self) -> [u8; 32] {
        let [from, after] = [self.from, self.after].map(|id| id.0.as_u128());
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&from.to_be_bytes());
        bytes[16..].copy_from_slice(&after.to_be_bytes());
        bytes
    }

    fn decode(bytes: [u8; 32]) -> Self {
        let (from, after) = bytes.split_at(16);
        let id = |bytes: &[u8]| EntryId(Uuid::from_slice(bytes).unwrap_or_default());
        Self {
            from: id(from),
            after: id(after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_exact() {
        let is_in = |text: &str, used, most| text.parse::<PartOfLimit>().unwrap().is_in(used, most);
        assert!(is_in("0.07", 7, 100) && !is_in("0.07", 6, 100));
        assert!(is_in("0.8", 4, 5) && !is_in("0.80000000000000004441", 4, 5));
        assert!(is_in("1", 5, 5) && is_in("1.000", 6, 5) && !is_in("1.0", 4, 5));
        assert!(is_in("0.001", 1, 1000) && is_in("0.001", 0, 0));
        let most = domain::claim::UNITS_MAX;
        assert!(is_in("0.99999999999999999999", most, most) && !is_in("1", most - 1, most));
        for wrong in [
            "",
            "0",
            "0.0",
            "0.0009",
            "1.001",
            "2",
            ".8",
            "0.",
            "80",
            "-0.8",
            "0,8",
            "1e-1",
            "0.+5",
            "0.800000000000000000000",
        ] {
            assert_eq!(wrong.parse::<PartOfLimit>(), Err(NoPart), "{wrong}");
        }
    }
}
