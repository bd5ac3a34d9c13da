//! The history of entries: of all accounts, in the order of the record.

use std::time::Duration;

use actix_web::HttpResponse;
use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::entries::EntryBody;
use crate::domain::claim::Subject;
use crate::domain::grant::KindWord;
use crate::domain::key::Key;
use crate::domain::policy::PolicyName;
use crate::engine::{AsOf, HistoryPage, HistoryQuery, RecordedEntry, Share};
use crate::http::answer::{ApiError, HttpAnswer, InvalidPart, words};
use crate::http::request::{
    Auditor, Caller, EngineData, Faults, InQuery, MetadataQuery, PageQuery, Query, SpanQuery,
    WAIT_MOST, parse_instant, parse_position,
};

/// An entry of the record.
#[derive(Debug, Serialize, ToSchema)]
pub struct HistoryItem {
    /// 1, 2, 3 …: its place in the order of all entries and changes. It never changes. A list of
    /// entries leaves out the positions of changes.
    #[schema(example = 1842)]
    pub position: u64,
    /// When it got its position, soon after it was committed.
    pub recorded_at: DateTime<Utc>,
    #[schema(example = "benefit")]
    pub policy: String,
    /// Null once the subject was erased.
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    /// The local date on which its units count, by the version of the policy that was in force then.
    /// Where a change of the zone set the local clock back, the day of the change is longer.
    #[schema(example = "2026-11-21")]
    pub counted_on: NaiveDate,
    #[serde(flatten)]
    pub entry: EntryBody,
    /// The key that claimed or corrected. Absent for a lapse, for the key of the settings, and where
    /// nobody kept it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyName>,
    /// What the claim brought. Absent where it brought nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, example = json!({ "order": "A-17" }))]
    pub metadata: Option<Box<RawValue>>,
}

/// A key, as lists name it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct KeyName {
    pub id: Uuid,
    #[schema(example = "shop")]
    pub name: String,
}

impl From<Key> for KeyName {
    fn from(key: Key) -> Self {
        Self {
            id: key.id,
            name: key.rule.name,
        }
    }
}

impl From<(Uuid, String)> for KeyName {
    fn from((id, name): (Uuid, String)) -> Self {
        Self { id, name }
    }
}

/// A page of the record's entries.
#[derive(Debug, Serialize, ToSchema)]
pub struct HistoryList {
    items: Vec<HistoryItem>,
    /// Where the next page begins; null on the last. It stays right while entries come in.
    next_cursor: Option<String>,
    /// The list is that of the entries up to this position. With it as `as_of` the list is the same
    /// for ever; with it as `after` the next list goes on.
    #[schema(example = 1842)]
    as_of: u64,
}

impl From<RecordedEntry> for HistoryItem {
    fn from(recorded: RecordedEntry) -> Self {
        let listed = recorded.listed;
        let metadata = listed.entry.metadata.as_ref();
        Self {
            position: recorded.position,
            recorded_at: recorded.recorded_at,
            policy: listed.policy.to_string(),
            subject: listed.subject,
            counted_on: recorded.counted_on,
            entry: EntryBody::from(&listed.entry),
            key: listed.key.map(KeyName::from),
            metadata: metadata
                .and_then(|json| RawValue::from_string(json.as_str().to_owned()).ok()),
        }
    }
}

impl From<HistoryPage> for HistoryList {
    fn from(page: HistoryPage) -> Self {
        Self {
            items: page.entries.into_iter().map(HistoryItem::from).collect(),
            next_cursor: page.next_cursor,
            as_of: page.as_of,
        }
    }
}

/// Which entries to list. Filters combine.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HistoryFilterQuery {
    /// Those of a policy, archived or not. Local days want one.
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    policy: Option<String>,
    /// Those of a subject.
    #[param(
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    subject: Option<String>,
    /// Those of a kind.
    #[param(value_type = Option<words::EntryKind>)]
    kind: Option<String>,
    /// Those that got their positions at this instant or later.
    #[param(value_type = Option<DateTime<Utc>>)]
    recorded_from: Option<String>,
    /// Those that got their positions before this instant.
    #[param(value_type = Option<DateTime<Utc>>)]
    recorded_to: Option<String>,
    /// The list as it was known then: a position, or an instant, which stands for the position that the
    /// record had reached then. Only a list as of a position stays for ever.
    #[param(format = "position-or-instant", example = "1842")]
    as_of: Option<String>,
    /// Those above this position.
    #[param(value_type = Option<u64>, minimum = 0)]
    after: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// While the list is empty, wait so many seconds for an entry: 0 to 30.
    #[param(value_type = Option<u64>, minimum = 0, maximum = 30)]
    wait: Option<String>,
}

impl HistoryFilterQuery {
    pub fn check(
        &self,
        span: &SpanQuery,
        metadata: &MetadataQuery,
        faults: &mut Faults,
    ) -> HistoryQuery {
        let (span, by) = span.check(faults);
        HistoryQuery {
            policy: faults.parameter("policy", self.policy.as_ref(), PolicyName::new),
            subject: faults.parameter("subject", self.subject.as_ref(), Subject::new),
            kind: faults.parameter("kind", self.kind.as_ref(), parse_kind),
            by,
            span,
            metadata: metadata.check(faults),
            recorded_from: faults.instant("recorded_from", self.recorded_from.as_ref()),
            recorded_to: faults.instant("recorded_to", self.recorded_to.as_ref()),
            as_of: faults.parameter("as_of", self.as_of.as_ref(), parse_as_of),
            after: faults.parameter("after", self.after.as_ref(), parse_position),
        }
    }
}

impl WaitQuery {
    /// How long to wait for an entry of a list.
    fn check(&self, list: &HistoryFilterQuery, faults: &mut Faults) -> Duration {
        let parse = |text: &str| {
            let wait = text.parse().ok().map(Duration::from_secs);
            let wait = wait.filter(|wait| *wait <= WAIT_MOST);
            wait.ok_or_else(|| format!("write 0 to {} seconds", WAIT_MOST.as_secs()))
        };
        let wait = faults.parameter("wait", self.wait.as_ref(), parse);
        if wait.is_some() && (list.as_of.is_some() || list.recorded_to.is_some()) {
            let detail = "a list with as_of or recorded_to ends: nothing comes to it";
            faults.add(InvalidPart::parameter("wait", detail));
        }
        wait.unwrap_or_default()
    }
}

fn parse_kind(text: &str) -> Result<KindWord, String> {
    let mut kinds = KindWord::ALL.into_iter();
    let found = kinds.find(|kind| kind.as_str() == text);
    found.ok_or_else(|| {
        let names = KindWord::ALL.map(KindWord::as_str);
        format!("a kind is one of {}", names.join(", "))
    })
}

pub fn parse_as_of(text: &str) -> Result<AsOf, String> {
    match parse_position(text) {
        Ok(position) => Ok(AsOf::Position(position)),
        Err(position) => parse_instant(text)
            .map(AsOf::Instant)
            .map_err(|instant| format!("{position}; or {instant}")),
    }
}

/// Entries of all accounts, oldest first: grants, confirmations, reversals, lapses and adjustments,
/// in the order of the record.
///
/// An entry gets its position soon after it was committed, and keeps it. So a list as of a position is
/// the same for ever, and who goes on with `after` misses nothing and sees nothing twice: write the
/// last `as_of` there, after the last page. A key that is confined to policies must name one of them.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/entries", operation_id = "list_history", tag = "entries",
    params(HistoryFilterQuery, SpanQuery, MetadataQuery, WaitQuery, PageQuery),
    responses((status = 200, description = "A page.", body = HistoryList)),
)]
pub async fn list(
    caller: Caller<Auditor, InQuery>,
    query: Query<HistoryFilterQuery>,
    span: Query<SpanQuery>,
    metadata: Query<MetadataQuery>,
    wait: Query<WaitQuery>,
    page: Query<PageQuery>,
    engine: EngineData,
) -> HttpAnswer {
    let mut faults = Faults::default();
    let filter = query.0.check(&span.0, &metadata.0, &mut faults);
    let wait = wait.0.check(&query.0, &mut faults);
    let page = page.0.check(&mut faults);
    let filter = faults.or(Some(filter))?;
    let waits_until = Instant::now() + wait;
    let mut filter = filter;
    let mut waiting = None;
    loop {
        let deadline = Instant::now() + engine.answer_time();
        let place = engine.place(Share::Reads, &caller.key(), deadline).await;
        let place = place.ok_or(ApiError::TooManyAtOnce)?;
        let found = engine.history(&filter, page.limit, page.cursor());
        let found = timeout_at(deadline, found).await;
        let found = found.map_err(|_| ApiError::TooSlow)??;
        if found.entries.is_empty() && Instant::now() < waits_until {
            drop(place);
            if waiting.is_none() {
                let place = engine.place(Share::Waits, &caller.key(), waits_until).await;
                waiting = Some(place.ok_or(ApiError::TooManyAtOnce)?);
            }
            if engine.recorded_above(found.newest, waits_until).await {
                // Up to there it is empty.
                if page.cursor().is_none() {
                    filter.after = Some(found.as_of);
                }
                continue;
            }
            return Ok(HttpResponse::Ok().json(HistoryList::from(found)));
        }
        let mut response = HttpResponse::Ok();
        // The answer keeps its place until it is written.
        response.extensions_mut().insert(place);
        return Ok(response.json(HistoryList::from(found)));
    }
}
