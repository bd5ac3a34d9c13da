//! How both stores write the reports of reconciliations.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::LedgerError;
use super::record::unsigned;
use super::row::row;
use crate::domain::identity::AccountId;
use crate::domain::policy::PolicyName;
use crate::domain::reconciliation::{
    CountersCompared, Difference, DifferenceKind, Figures, Finished, KeptDifference,
    Reconciliation, Started, Tally,
};
use crate::domain::window::Window;

/// A report's row.
pub struct ReportRecord {
    pub id: Uuid,
    pub started_at: DateTime<Utc>,
    pub requested_by: Option<String>,
    pub apply: bool,
    pub finished_at: Option<DateTime<Utc>>,
    pub counters_compared: Option<String>,
    pub tally: TallyRow,
}

row! {
    pub struct TallyRow {
        accounts: i64,
        entries: i64,
        counters: i64,
        differences: i64,
        healed: i64,
        alarms: i64,
    }
}

impl ReportRecord {
    /// # Errors
    /// [`LedgerError::Corrupt`].
    pub fn decode(self) -> Result<Reconciliation, LedgerError> {
        let finished = match self.finished_at {
            None => None,
            Some(finished_at) => Some(Finished {
                finished_at,
                counters: decode_counters(self.counters_compared.as_deref().unwrap_or_default())?,
                tally: self.tally.decode()?,
            }),
        };
        Ok(Reconciliation {
            started: Started {
                id: self.id,
                started_at: self.started_at,
                requested_by: self.requested_by,
                apply: self.apply,
            },
            finished,
        })
    }
}

impl TallyRow {
    fn decode(self) -> Result<Tally, LedgerError> {
        Ok(Tally {
            accounts: unsigned(self.accounts)?,
            entries: unsigned(self.entries)?,
            counters: unsigned(self.counters)?,
            differences: unsigned(self.differences)?,
            healed: unsigned(self.healed)?,
            alarms: unsigned(self.alarms)?,
        })
    }
}

row! {
    /// A difference's row, and the names around it.
    pub struct DifferenceRow {
        kind: String,
        account: Option<Uuid>,
        found: Option<i64>,
        expected: Option<i64>,
        windows: String,
        healed: bool,
        policy: Option<String>,
        subject: Option<String>,
    }
}

impl DifferenceRow {
    /// # Errors
    /// [`LedgerError::Corrupt`].
    pub fn decode(self) -> Result<KeptDifference, LedgerError> {
        let kind = DifferenceKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == self.kind)
            .ok_or_else(|| LedgerError::Corrupt(format!("a difference's kind {:?}", self.kind)))?;
        Ok(KeptDifference {
            difference: Difference {
                kind,
                account: self.account.map(AccountId),
                found: self.found.map(unsigned).transpose()?,
                expected: self.expected.map(unsigned).transpose()?,
                windows: decode_figures(&self.windows)?,
                is_healed: self.healed,
            },
            policy: self.policy.and_then(|name| PolicyName::new(&name).ok()),
            subject: self.subject,
        })
    }
}

fn decode_counters(text: &str) -> Result<CountersCompared, LedgerError> {
    CountersCompared::ALL
        .into_iter()
        .find(|outcome| outcome.as_str() == text)
        .ok_or_else(|| LedgerError::Corrupt(format!("an outcome {text:?}")))
}

/// `["day", start, end, found, expected]`, instants in seconds since 1970.
#[derive(Serialize, Deserialize)]
struct FiguresRecord<'a>(&'a str, i64, i64, Option<u64>, Option<u64>);

/// Figures as JSON.
pub fn encode_figures(figures: &[Figures]) -> String {
    let record = |figures: &Figures| {
        let Window { start, end } = figures.window;
        FiguresRecord(
            figures.per.as_str(),
            start.timestamp(),
            end.timestamp(),
            figures.found,
            figures.expected,
        )
    };
    let records: Vec<FiguresRecord<'_>> = figures.iter().map(record).collect();
    serde_json::to_string(&records).expect("arrays of texts and numbers are JSON")
}

fn decode_figures(text: &str) -> Result<Vec<Figures>, LedgerError> {
    let corrupt = || LedgerError::Corrupt(format!("a difference's windows {text:?}"));
    let records: Vec<FiguresRecord<'_>> = serde_json::from_str(text).map_err(|_| corrupt())?;
    let figures = |FiguresRecord(per, start, end, found, expected)| {
        let instant = |seconds| DateTime::from_timestamp(seconds, 0).ok_or_else(corrupt);
        Ok(Figures {
            per: per.parse().map_err(|_| corrupt())?,
            window: Window {
                start: instant(start)?,
                end: instant(end)?,
            },
            found,
            expected,
        })
    };
    records.into_iter().map(figures).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::window::Per;

    #[test]
    fn figures_come_back_as_they_were() {
        let instant = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
        let figures = [Some(3), None].map(|found| Figures {
            per: Per::Week,
            window: Window {
                start: instant(-5),
                end: instant(604_795),
            },
            found,
            expected: Some(2),
        });
        let text = encode_figures(&figures);
        assert_eq!(
            text,
            r#"[["week",-5,604795,3,2],["week",-5,604795,null,2]]"#
        );
        assert_eq!(decode_figures(&text).unwrap(), figures);
        assert!(decode_figures("[[1]]").is_err());
        assert!(decode_counters("").is_err());
    }
}
