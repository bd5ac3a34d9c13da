//! Explanations: why a claim was granted or denied, and which limits it met.

use actix_web::{HttpRequest, HttpResponse};
use chrono::{DateTime, FixedOffset, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::history::{KeyName, parse_as_of};
use super::overrides::OverrideAnswer;
use super::policies::PolicyAnswer;
use crate::domain::account::Verdict;
use crate::domain::claim::{Subject, Units};
use crate::domain::correction::Hold;
use crate::domain::grant::{Entry, KindWord};
use crate::domain::identity::to_micros;
use crate::domain::key::KeyNumber;
use crate::domain::limit::per::Per;
use crate::domain::limit::total::Total;
use crate::domain::policy::PolicyName;
use crate::domain::zone::Zone;
use crate::engine::{
    ClaimQuery, ExplainedClaim, ExplainedGrant, KEY_OF_SETTINGS, LimitThen, LimitsThen, PlacedEntry,
};
use crate::http::answer::{
    ApiError, GrantBody, HttpAnswer, LimitUsage, describe_verdict, notes, words,
};
use crate::http::request::{Auditor, ByHandler, Caller, EngineData, Faults, Query, path_id};

/// Which claim to explain. With one of these parameters the answer is an explanation, for the roles
/// `audit` and `admin`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ExplanationQuery {
    /// The instant of the claim; now when absent. Entries count that were appended then or before.
    #[param(value_type = Option<DateTime<Utc>>)]
    at: Option<String>,
    /// As the record was known then: a position, or an instant, which means the position that the
    /// record had reached then. Everything that is committed when absent. Only the answer at an
    /// instant as known at a position stays for ever.
    #[param(format = "position-or-instant", example = "1842")]
    known_at: Option<String>,
    /// How many units the claim asks for; 1 when absent.
    #[param(value_type = Option<u64>, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    units: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct KnownAtQuery {
    /// As the record was known then: a position, or an instant, which means the position that the
    /// record had reached then. Everything that is committed when absent.
    #[param(format = "position-or-instant", example = "1842")]
    known_at: Option<String>,
}

/// What a claim would have met at an instant.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClaimExplanation {
    #[schema(example = "benefit")]
    policy: String,
    #[schema(example = "member-42")]
    subject: String,
    #[schema(example = 1)]
    units: u64,
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    at: DateTime<Utc>,
    /// The position up to which the record was taken into account; null for everything.
    #[schema(example = 1842)]
    known_at: Option<u64>,
    /// `granted`, or `denied` for everything that was not granted: also where the policy was paused,
    /// archived or not active, or did not exist, and where the units never fit. `reason` tells which.
    #[schema(value_type = words::ClaimOutcome, example = "denied")]
    outcome: &'static str,
    /// Why, in one word.
    #[schema(value_type = words::OutcomeReason, example = "no_room")]
    reason: &'static str,
    /// Why, in a sentence.
    #[schema(example = "there was no room for 1 more per day: 3 of 3 were used")]
    detail: String,
    /// The limits that had no room for the units, by their `per`.
    #[schema(value_type = Vec<words::LimitName>, example = json!(["day"]))]
    lacking: Vec<Per>,
    /// Null where no version of the policy was in force.
    terms: Option<TermsBody>,
    /// In the policy's order, without the claim's own units. Empty where no version was in force.
    limits: Vec<LimitExplanation>,
}

/// What a grant met, and what became of it.
#[derive(Debug, Serialize, ToSchema)]
pub struct GrantExplanation {
    /// As it was known.
    grant: GrantBody,
    /// The grant's entry.
    entry: CountedEntryBody,
    /// The position up to which the record was taken into account; null for everything.
    #[schema(example = 1842)]
    known_at: Option<u64>,
    /// Which units of each limit it took.
    took: Vec<TookBody>,
    /// What is special about it, in sentences.
    #[schema(example = json!(["it was a hold until 2026-11-21T03:14:05Z"]))]
    notes: Vec<String>,
    /// The entries that name it, oldest first.
    since: Vec<CountedEntryBody>,
    terms: TermsBody,
    /// In the policy's order, before the grant.
    limits: Vec<LimitExplanation>,
}

/// The terms that held.
#[derive(Debug, Serialize, ToSchema)]
pub struct TermsBody {
    /// The version of the policy that was in force.
    version: PolicyAnswer,
    /// The version of the subject's override that held; null without one.
    #[serde(rename = "override")]
    exception: Option<OverrideAnswer>,
}

/// Units of a limit: 2 to 2 of 3 for "2nd of 3".
#[derive(Debug, Serialize, ToSchema)]
pub struct TookBody {
    #[schema(value_type = words::LimitName, example = "day")]
    per: Per,
    #[schema(example = 2)]
    first: u64,
    #[schema(example = 2)]
    last: u64,
    #[schema(example = 3)]
    max: u64,
}

/// A limit, and the entries that make what was used.
#[derive(Debug, Serialize, ToSchema)]
pub struct LimitExplanation {
    #[serde(flatten)]
    usage: LimitUsage,
    /// When the window began, by clocks in the policy's zone; null where there was none.
    #[schema(example = "2026-11-21T00:00:00+08:00")]
    window_start_local: Option<DateTime<FixedOffset>>,
    /// From when on nothing was used any more, by those clocks; null where nothing returned.
    #[schema(example = "2026-11-22T00:00:00+08:00")]
    resets_at_local: Option<DateTime<FixedOffset>>,
    /// How many entries make what was used.
    #[schema(example = 3)]
    entry_count: u64,
    /// Whether `entries` leaves older ones out: it has 1,000.
    entries_cut: bool,
    /// Newest first. First come holds that had lapsed, though no entry said so yet: these have no id.
    entries: Vec<CountedEntryBody>,
}

/// An entry that counts in a window.
#[derive(Debug, Serialize, ToSchema)]
pub struct CountedEntryBody {
    /// Null for a lapse that no entry told of yet.
    #[schema(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    id: Option<Uuid>,
    /// `grant`, `confirmation`, `reversal`, `lapse` or `adjustment`.
    #[schema(value_type = words::EntryKind, example = "grant")]
    kind: &'static str,
    /// What it adds to the units used: below zero where it gives back.
    #[schema(example = 1)]
    units: i64,
    /// The instant in whose windows its units count.
    counted_at: DateTime<Utc>,
    /// When it was appended; when the hold lapsed where no entry told of it yet.
    at: DateTime<Utc>,
    /// Null while it has none.
    #[schema(example = 1842)]
    position: Option<u64>,
    /// The grant that it names; null for grants and adjustments.
    grant: Option<Uuid>,
    /// The key that claimed or corrected, if it has a name.
    key: Option<KeyName>,
    /// Who claimed or corrected: a key's id, or where the key was set; null for a lapse, and where
    /// nobody kept it.
    by: Option<String>,
    /// Why; null where nobody says.
    reason: Option<String>,
}

impl From<PlacedEntry> for CountedEntryBody {
    fn from(placed: PlacedEntry) -> Self {
        let entry: &Entry = &placed.listed.entry;
        let note = entry.note.as_ref();
        let key = placed.listed.key;
        let is_of_settings = entry.claimed_by == Some(KeyNumber::OF_SETTINGS);
        let claimed_by = key.as_ref().map(|(id, _)| id.to_string());
        let claimed_by = claimed_by.or(is_of_settings.then(|| KEY_OF_SETTINGS.to_owned()));
        Self {
            id: Some(entry.id.0),
            kind: entry.kind.word().as_str(),
            units: entry.units_added(),
            counted_at: entry.counted_at(),
            at: entry.line.at,
            position: placed.position,
            grant: entry.kind.of().map(|grant| grant.0),
            by: note.map(|note| note.by.to_string()).or(claimed_by),
            reason: note.and_then(|note| note.reason.clone()),
            key: key.map(KeyName::from),
        }
    }
}

impl From<Hold> for CountedEntryBody {
    fn from(lapsed: Hold) -> Self {
        Self {
            id: None,
            kind: KindWord::Lapse.as_str(),
            units: -lapsed.units.get().cast_signed(),
            counted_at: lapsed.grant.at(),
            at: lapsed.until,
            position: None,
            grant: Some(lapsed.grant.0),
            by: None,
            reason: None,
            key: None,
        }
    }
}

impl LimitExplanation {
    fn new(limit: LimitThen, zone: &Zone) -> Self {
        let local = |at: DateTime<Utc>| at.with_timezone(&zone.offset(at));
        let LimitThen {
            total,
            count,
            lapsed,
            newest,
        } = limit;
        let lapsed = lapsed.into_iter().map(CountedEntryBody::from);
        let newest = newest.into_iter().map(CountedEntryBody::from);
        let entries: Vec<_> = lapsed.chain(newest).collect();
        let usage = LimitUsage::from(&total);
        Self {
            window_start_local: usage.window_start.map(local),
            resets_at_local: usage.resets_at.map(local),
            usage,
            entry_count: count,
            entries_cut: count > entries.len() as u64,
            entries,
        }
    }
}

/// The terms and limits as answers have them.
fn told(met: LimitsThen) -> (TermsBody, Vec<LimitExplanation>) {
    let version = met.terms.version;
    let zone = version.rule.calendar.zone.clone();
    let limits = met.limits.into_iter();
    let limits = limits.map(|limit| LimitExplanation::new(limit, &zone));
    let exception = met.terms.exception;
    let exception = exception.map(|found| OverrideAnswer::new(&version.name, found));
    let terms = TermsBody {
        version: PolicyAnswer::from(version),
        exception,
    };
    (terms, limits.collect())
}

impl ClaimExplanation {
    fn new(asked: &ClaimQuery, found: ExplainedClaim) -> Self {
        let units = asked.units;
        let met = found.met.as_ref();
        let totals = met.into_iter().flat_map(|(met, _)| &met.limits);
        let lacking: Vec<&Total> = totals
            .map(|limit| &limit.total)
            .filter(|total| !total.fits(units))
            .collect();
        let verdict = met.map(|(_, verdict)| verdict);
        let is_refused = matches!(verdict, None | Some(Verdict::Refused(_)));
        let (reason, detail) = describe_verdict(verdict, &lacking, units);
        let lacking = lacking.iter().map(|total| total.per()).collect();
        let told = found.met.map(|(met, _)| told(met));
        let (terms, limits) = told.unzip();
        Self {
            policy: asked.policy.to_string(),
            subject: asked.subject.as_str().to_owned(),
            units: units.get(),
            at: found.at,
            known_at: found.known_at,
            outcome: if is_refused { "denied" } else { "granted" },
            reason,
            detail,
            lacking,
            terms,
            limits: limits.unwrap_or_default(),
        }
    }
}

impl GrantExplanation {
    fn new(found: ExplainedGrant) -> Self {
        let ExplainedGrant {
            grant,
            known_until,
            known_at,
            entry,
            since,
            met,
        } = found;
        let took = met.limits.iter().map(|limit| TookBody {
            per: limit.total.per(),
            first: limit.total.used() + 1,
            last: limit.total.used() + grant.entry.units.get(),
            max: limit.total.at_once(),
        });
        let took = took.collect();
        let (terms, limits) = told(met);
        Self {
            notes: notes(&grant.entry),
            grant: GrantBody::new(&grant, known_until),
            entry: entry.into(),
            known_at,
            took,
            since: since.into_iter().map(CountedEntryBody::from).collect(),
            terms,
            limits,
        }
    }
}

impl ExplanationQuery {
    pub fn is_empty(&self) -> bool {
        self.at.is_none() && self.known_at.is_none() && self.units.is_none()
    }

    fn check(self, policy: PolicyName, subject: Subject) -> Result<ClaimQuery, ApiError> {
        let mut faults = Faults::default();
        let at = faults.instant("at", self.at.as_ref());
        let known_at = faults.parameter("known_at", self.known_at.as_ref(), parse_as_of);
        let units = faults.parameter("units", self.units.as_ref(), parse_units);
        faults.or(Some(ClaimQuery {
            policy,
            subject,
            at: at.map(to_micros),
            known_at,
            units: units.unwrap_or(Units::ONE),
        }))
    }
}

fn parse_units(text: &str) -> Result<Units, String> {
    let units = Units::new(text.parse().unwrap_or_default());
    units.map_err(|error| error.to_string())
}

/// Answers for a claim.
pub async fn explain(
    policy: PolicyName,
    subject: Subject,
    query: ExplanationQuery,
    engine: &EngineData,
) -> HttpAnswer {
    let query = query.check(policy, subject)?;
    let found = engine.explain_claim(query.clone()).await?;
    Ok(HttpResponse::Ok().json(ClaimExplanation::new(&query, found)))
}

/// Why a grant was granted: the limits that it met, the entries that had used them, the version and
/// the override that held, and what became of it since.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/grants/{id}/explanation", operation_id = "explain_grant", tag = "grants",
    params(KnownAtQuery),
    responses((status = 200, description = "The explanation.", body = GrantExplanation)),
)]
pub async fn of_grant(
    caller: Caller<Auditor, ByHandler>,
    request: HttpRequest,
    query: Query<KnownAtQuery>,
    engine: EngineData,
) -> HttpAnswer {
    let id = path_id(&request, "a grant's id")?;
    let mut faults = Faults::default();
    let known_at = faults.parameter("known_at", query.0.known_at.as_ref(), parse_as_of);
    faults.or(Some(()))?;
    let grant = engine.grant(id).await?;
    let grant = grant.ok_or(ApiError::NotFound("there is no grant with this id"))?;
    caller.may_use(&grant.policy)?;
    let found = engine.explain_grant(grant, known_at).await?;
    let unknown = "there was no grant with this id yet: write a later known_at";
    let found = found.ok_or(ApiError::NotFound(unknown))?;
    Ok(HttpResponse::Ok().json(GrantExplanation::new(found)))
}
