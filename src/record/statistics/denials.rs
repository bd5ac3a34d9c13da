//! Lists of first denials: those of a subject, and those of all subjects.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::cursor::{self, cut_page};
use crate::{DaySpan, InstantSpan, InvalidCursor, ListFailure, Record};
use claims::instance::Failure;
use domain::claim::Subject;
use domain::identity::AccountId;
use domain::policy::PolicyName;
use domain::record::RecordPlace;
use domain::statistics::FirstDenial;
use domain::window::Window;
use ledger::{DenialFilter, DenialPlace, ListedDenial};

/// Which first denials to list. Filters combine.
#[derive(Debug, Clone, Default)]
pub struct DenialQuery {
    /// Denials of this policy, archived or not.
    pub policy: Option<PolicyName>,
    /// Denials in this span.
    pub span: DaySpan,
}

impl Record {
    /// A page of at most `limit` first denials of a subject, newest first, and the cursor of the
    /// next page.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn first_denials(
        self: &Arc<Self>,
        policy: &PolicyName,
        subject: &Subject,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<FirstDenial>, Option<String>), ListFailure> {
        self.listed_policy(policy).await?;
        let identity = self.ledger.identity();
        let list = format!("denials {policy} {}", subject.as_str());
        let account = self.instance.account_in_view(policy, subject).await?;
        let before = match cursor {
            Some(cursor) => decode_denial(cursor::decode(identity, &list, cursor)?)?,
            None => (DateTime::<Utc>::MAX_UTC, DateTime::UNIX_EPOCH),
        };
        let record = self.clone();
        let work = async move {
            record
                .ledger
                .figures()
                .first_denials(account, before, limit + 1)
                .await
        };
        let mut found = self.instance.detached(work).await?.map_err(Failure::from)?;
        let next = cut_page(&mut found, limit).map(|last| {
            let (_, Window { start, .. }) = last.window;
            let place = [last.denied_at, start].map(|at| at.timestamp_micros().to_be_bytes());
            cursor::encode(identity, &list, place.as_flattened())
        });
        Ok((found, next))
    }

    /// A page of at most `limit` first denials of all subjects, newest first, and the cursor of the next
    /// page.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn denials(
        self: &Arc<Self>,
        query: &DenialQuery,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<ListedDenial>, Option<String>), ListFailure> {
        let policy = match &query.policy {
            Some(name) => Some(self.listed_policy(name).await?),
            None => None,
        };
        let identity = self.ledger.identity();
        let list = format!("denials {query:?}");
        let after = match cursor {
            Some(cursor) => decode_place(cursor::decode(identity, &list, cursor)?)?,
            None => DenialPlace {
                denied_at: DateTime::<Utc>::MAX_UTC,
                account: AccountId(Uuid::max()),
                window_start: DateTime::<Utc>::MAX_UTC,
            },
        };
        let span = self.counted_span(&query.span, policy.as_deref(), RecordPlace::LAST);
        let InstantSpan { from, to } = span.await?.unwrap_or(InstantSpan::ALL);
        let filter = DenialFilter {
            policy: policy.map(|policy| policy.id),
            // PostgreSQL has no instants as early as chrono.
            from: from.max(DateTime::UNIX_EPOCH),
            to,
        };
        let record = self.clone();
        let work = async move {
            let figures = record.ledger.figures();
            figures.listed_denials(&filter, after, limit + 1).await
        };
        let mut found = self.instance.detached(work).await?.map_err(Failure::from)?;
        let next = cut_page(&mut found, limit)
            .map(|last| cursor::encode(identity, &list, &encode_place(&last.denial)));
        Ok((found, next))
    }
}

/// The place of a denial in the list of all: its instant, its account, and the start of its window.
fn encode_place(denial: &FirstDenial) -> [u8; 32] {
    let (_, Window { start, .. }) = denial.window;
    let [denied_at, start] =
        [denial.denied_at, start].map(|at| at.timestamp_micros().to_be_bytes());
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&denied_at);
    bytes[8..24].copy_from_slice(denial.account.0.as_bytes());
    bytes[24..].copy_from_slice(&start);
    bytes
}

fn decode_place(bytes: [u8; 32]) -> Result<DenialPlace, InvalidCursor> {
    let at = |bytes: &[u8]| {
        let micros = i64::from_be_bytes(bytes.try_into().map_err(|_| InvalidCursor)?);
        DateTime::from_timestamp_micros(micros).ok_or(InvalidCursor)
    };
    Ok(DenialPlace {
        denied_at: at(&bytes[..8])?,
        account: AccountId(Uuid::from_slice(&bytes[8..24]).map_err(|_| InvalidCursor)?),
        window_start: at(&bytes[24..])?,
    })
}

fn decode_denial(bytes: [u8; 16]) -> Result<(DateTime<Utc>, DateTime<Utc>), InvalidCursor> {
    let both = u128::from_be_bytes(bytes);
    let at = |micros: u64| DateTime::from_timestamp_micros(micros.cast_signed());
    let denied_at = at((both >> 64) as u64);
    let start = at(both as u64);
    denied_at.zip(start).ok_or(InvalidCursor)
}
