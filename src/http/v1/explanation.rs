//! Explanations: why a claim was granted or denied, and which limits it met.

use actix_web::HttpResponse;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use utoipa::IntoParams;

use super::history::parse_as_of;
use crate::answer::{ApiError, HttpAnswer, describe_verdict, notes, shared_name};
use crate::operation::{GRANT, describe};
use crate::request::{Auditor, ByHandler, Caller, Faults, GrantPath, Query, RecordData};
use api::blocks::BlockAnswer;
use api::explanation::{
    ClaimExplanation, CountedEntryBody, GrantExplanation, LimitExplanation, TermsBody, TookBody,
};
use api::grants::GrantBody;
use api::keys::KeyName;
use api::limits::LimitUsage;
use api::overrides::OverrideAnswer;
use api::policies::PolicyAnswer;
use api::tiers::SubjectTierAnswer;
use domain::account::Verdict;
use domain::claim::{Subject, Units};
use domain::correction::Hold;
use domain::exceptions::ExceptionsThen;
use domain::forecast::Forecast;
use domain::grant::{Entry, KindWord};
use domain::identity::to_micros;
use domain::key::KeyNumber;
use domain::limit::total::Total;
use domain::policy::PolicyName;
use domain::reads::ReadKind;
use domain::refusal::Refusal;
use domain::shared::SharedTotal;
use domain::subject_tier::TierTerms;
use domain::zone::Zone;
use engine::{
    ClaimQuery, ExplainedClaim, ExplainedGrant, KEY_OF_SETTINGS, LimitThen, LimitsThen, PlacedEntry,
};

/// The claim to explain. With one of these parameters the answer is an explanation, which requires
/// the role `audit` or `admin`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ExplanationQuery {
    /// The instant of the claim. Entries that were appended up to it count. Default: now.
    #[param(value_type = Option<DateTime<Utc>>)]
    at: Option<String>,
    /// The record is used only up to this position, or to the last position of this time. Default: everything.
    /// Only an answer with an instant `at` and a position here never changes.
    #[param(format = "position-or-instant", example = "1842")]
    known_at: Option<String>,
    /// Default: 1.
    #[param(value_type = Option<u64>, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    units: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct KnownAtQuery {
    /// The record is used only up to this position, or to the last position of this time. Default: everything.
    #[param(format = "position-or-instant", example = "1842")]
    known_at: Option<String>,
}

fn counted_entry(placed: PlacedEntry) -> CountedEntryBody {
    let entry: &Entry = &placed.listed.entry;
    let note = entry.note.as_ref();
    let key = placed.listed.key;
    let is_of_settings = entry.claimed_by == Some(KeyNumber::OF_SETTINGS);
    let claimed_by = key.as_ref().map(|(id, _)| id.to_string());
    let claimed_by = claimed_by.or(is_of_settings.then(|| KEY_OF_SETTINGS.to_owned()));
    CountedEntryBody {
        id: Some(entry.id.0),
        kind: entry.kind.word().as_str().into(),
        units: entry.own_units_added(),
        topped_up_units: entry.topped_up_units(),
        counted_at: entry.counted_at(),
        at: entry.line.at,
        position: placed.position,
        policy_version: Some(entry.line.policy_version),
        time_zone: placed.zone.map(|zone| zone.name().to_owned()),
        grant: entry.kind.grant().map(|grant| grant.0),
        per: entry.kind.per().map(|per| per.to_string()),
        by: note.map(|note| note.by.to_string()).or(claimed_by),
        reason: note.and_then(|note| note.reason.clone()),
        key: key.map(KeyName::from),
    }
}

fn lapsed_hold(lapsed: Hold) -> CountedEntryBody {
    let own_units = lapsed.returning().own_units();
    CountedEntryBody {
        id: None,
        kind: KindWord::Lapse.as_str().into(),
        units: -own_units.cast_signed(),
        topped_up_units: lapsed.units.get() - own_units,
        counted_at: lapsed.grant.at(),
        at: lapsed.until,
        position: None,
        policy_version: None,
        time_zone: None,
        grant: Some(lapsed.grant.0),
        per: None,
        by: None,
        reason: None,
        key: None,
    }
}

fn describe_limit(limit: LimitThen, forecast: &Forecast, zone: &Zone) -> LimitExplanation {
    let local = |at: DateTime<Utc>| at.with_timezone(&zone.offset(at));
    let LimitThen {
        total,
        count,
        lapsed,
        newest,
    } = limit;
    let lapsed = lapsed.into_iter().map(lapsed_hold);
    let newest = newest.into_iter().map(counted_entry);
    let entries: Vec<_> = lapsed.chain(newest).collect();
    let usage = LimitUsage::new(&total, forecast.returns_of(&total));
    LimitExplanation {
        window_start_local: usage.window_start.map(local),
        resets_at_local: usage.resets_at.map(local),
        usage,
        entry_count: count,
        entries_cut: count > entries.len() as u64,
        entries,
    }
}

/// The terms and the limits, in the form of answers.
fn describe(met: LimitsThen, forecast: &Forecast) -> (TermsBody, Vec<LimitExplanation>) {
    let version = met.terms.version;
    let zone = version.rule.calendar.zone.clone();
    let limits = met.limits.into_iter();
    let limits = limits.map(|limit| describe_limit(limit, forecast, &zone));
    let ExceptionsThen {
        tier,
        overridden,
        block,
    } = met.terms.exceptions;
    let is_in = |terms: &TierTerms| terms.is_in(&version.rule);
    let tier = tier.filter(|found| found.terms.as_ref().is_some_and(is_in));
    let terms = TermsBody {
        exception: overridden.map(|found| OverrideAnswer::new(&version.name, found)),
        block: block.map(|found| BlockAnswer::new(&version.name, found)),
        tier: tier.map(|found| SubjectTierAnswer::new(&version.name, found)),
        version: PolicyAnswer::from(version),
    };
    (terms, limits.collect())
}

fn describe_claim(asked: &ClaimQuery, found: ExplainedClaim) -> ClaimExplanation {
    let units = asked.units;
    let met = found.met.as_ref();
    let own_units = match met.map(|(_, verdict)| verdict) {
        Some(Verdict::Granted(line) | Verdict::WouldDeny(line)) => {
            units.get().saturating_sub(line.topped_up_units())
        }
        Some(Verdict::Refused(Refusal::Denied(denied))) => denied.own_units,
        Some(Verdict::Refused(_)) | None => units.get(),
    };
    let totals = met.into_iter().flat_map(|(met, _)| &met.limits);
    let lacking: Vec<&Total> = totals
        .map(|limit| &limit.total)
        .filter(|total| own_units > total.remaining())
        .collect();
    let verdict = met.map(|(_, verdict)| verdict);
    let is_refused = matches!(verdict, None | Some(Verdict::Refused(_)));
    let shared = met.map_or(&[][..], |(met, _)| &met.shared);
    let lacking_shared: Vec<&SharedTotal> =
        shared.iter().filter(|total| !total.fits(units)).collect();
    let (reason, detail) = describe_verdict(verdict, &lacking, &lacking_shared, units);
    let total = LimitUsage::shared(shared);
    let lacking = lacking.iter().map(|total| total.per().to_string());
    let lacking = lacking.chain(lacking_shared.into_iter().map(shared_name));
    let lacking = lacking.collect();
    let fits_at = found.forecast.fits_at.filter(|_| is_refused);
    let parts = found.met.map(|(met, _)| describe(met, &found.forecast));
    let (terms, limits) = parts.unzip();
    ClaimExplanation {
        policy: asked.policy.to_string(),
        subject: asked.subject.as_str().to_owned(),
        units: units.get(),
        at: found.at,
        known_at: found.known_at,
        outcome: if is_refused { "denied" } else { "granted" }.into(),
        reason: reason.into(),
        detail,
        fits_at,
        lacking,
        terms,
        limits: limits.unwrap_or_default(),
        total,
    }
}

fn describe_grant(found: ExplainedGrant) -> GrantExplanation {
    let ExplainedGrant {
        grant,
        known_until,
        known_at,
        entry,
        since,
        met,
    } = found;
    let own_units = grant.entry.own_units();
    let limits = met.limits.iter().filter(|_| own_units > 0);
    let took = limits.map(|limit| TookBody {
        per: limit.total.per(),
        first: limit.total.used() + 1,
        last: limit.total.used() + own_units,
        max: limit.total.at_once(),
    });
    let took = took.collect();
    let (terms, limits) = describe(met, &Forecast::default());
    GrantExplanation {
        notes: notes(&grant.entry),
        grant: GrantBody::new(&grant, known_until),
        entry: counted_entry(entry),
        known_at,
        took,
        since: since.into_iter().map(counted_entry).collect(),
        terms,
        limits,
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

/// Answers with the explanation of a claim.
pub async fn explain<W, P>(
    caller: &Caller<W, P>,
    policy: PolicyName,
    subject: Subject,
    query: ExplanationQuery,
    record: &RecordData,
) -> HttpAnswer {
    let query = query.check(policy, subject)?;
    let found = record.explain_claim(query.clone()).await?;
    let policy = Some(&query.policy);
    let subject = query.subject.as_str();
    let read = caller.record_read(record, ReadKind::Explanation, policy, subject);
    read.await?;
    Ok(HttpResponse::Ok().json(describe_claim(&query, found)))
}

describe! {
    /// Explain a grant: why it was granted, and what happened to it since.
    ///
    /// The explanation has the limits before the grant, the entries that had used them, what was in force, and
    /// the corrections since.
    OF_GRANT: "explain_grant" of "grants", |it| it
        .json::<GrantExplanation>(200, "The explanation.")
        .needs_entries()
        .follows("claim", 201, GRANT)
}
pub async fn of_grant(
    caller: Caller<Auditor, ByHandler>,
    id: GrantPath,
    query: Query<KnownAtQuery>,
    record: RecordData,
) -> HttpAnswer {
    let mut faults = Faults::default();
    let known_at = faults.parameter("known_at", query.0.known_at.as_ref(), parse_as_of);
    faults.or(Some(()))?;
    let grant = record.claims.grant(id.0).await?;
    let grant = grant.ok_or(ApiError::NotFound("there is no grant with this id"))?;
    caller.may_use(&grant.policy)?;
    let found = record.explain_grant(grant, known_at).await?;
    let unknown = "the grant did not exist yet: write a later known_at";
    let found = found.ok_or(ApiError::NotFound(unknown))?;
    let policy = Some(&found.grant.policy);
    let subject = found.grant.subject.as_deref();
    let read = caller.record_read(&record, ReadKind::Explanation, policy, subject);
    read.await?;
    Ok(HttpResponse::Ok().json(describe_grant(found)))
}
