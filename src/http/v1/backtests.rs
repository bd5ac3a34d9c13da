//! Backtests of drafts.

use actix_web::HttpResponse;

use super::policies::check;
use crate::answer::{ApiError, HttpAnswer};
use crate::operation::{POLICY, describe};
use crate::request::{
    Auditor, Body, Caller, Faults, NeedlessKey, PolicyPath, RecordData, Then, parse_date,
};
use api::backtests::{BacktestAnswer, BacktestBody, BacktestTotal, DeniedSubject};
use api::orphans::OrphansBody;
use domain::backtest::{BacktestTally, DayRange};
use domain::policy::{PolicyName, Rule};
use domain::schedule::Effective;
use engine::Backtested;

fn check_backtest(body: BacktestBody, has_counters: bool) -> Result<(Rule, DayRange), ApiError> {
    let mut faults = Faults::default();
    let from = faults.body("/from", parse_date(&body.from));
    let to = faults.body("/to", parse_date(&body.to));
    let range = from.zip(to).map(|(from, to)| DayRange::new(from, to));
    let range = range.and_then(|range| faults.body("/to", range));
    let rule = match check(body.policy.0, Effective::Now, has_counters) {
        Ok(change) => Some(change.rule),
        Err(ApiError::Invalid(parts)) => {
            for part in parts {
                faults.add(part.inside("/policy"));
            }
            None
        }
        Err(other) => return Err(other),
    };
    faults.or(rule.zip(range))
}

fn answer(policy: &PolicyName, tried: Backtested) -> BacktestAnswer {
    let Backtested {
        report,
        mut subjects,
        orphans,
    } = tried;
    let BacktestTally {
        grants,
        units,
        denied_grants,
        denied_units,
    } = report.total;
    let first_denied = report.first_denied.into_iter();
    let first_denied = first_denied.map(|denied| DeniedSubject {
        subject: subjects.remove(&denied.account),
        first_grant: denied.first.0,
        first_denied_at: denied.first.at(),
        denied_grants: denied.grants,
    });
    BacktestAnswer {
        policy: policy.to_string(),
        days: report.days.into_iter().map(Into::into).collect(),
        total: BacktestTotal {
            grants,
            units,
            denied_grants,
            denied_units,
            denied_subjects: report.denied_accounts,
        },
        first_denied: first_denied.collect(),
        orphaned_overrides: OrphansBody::some(&orphans),
    }
}

describe! {
    /// Backtest a draft of a policy: see which past grants it would have denied.
    ///
    /// The draft decides the past grants of the policy, archived or not: a grant that fits into all windows
    /// that contain it takes its units, and any other one counts as denied. Reversals, lapses and adjustments
    /// count as they did. The override and the tier that a subject had then apply, where the draft has
    /// the limit and the tier. Claims that were denied in the past are not known. A grant of a subject that was
    /// blocked then, under a policy that observed, counts as denied. Reading begins
    /// with the earliest window that contains the first day.
    POST: "backtest_policy" of "policies", |it| it
        .json::<BacktestAnswer>(200, "The grants that the draft would have denied.")
        .needs_entries()
        .follows("put_policy", 201, POLICY)
}
pub async fn post(
    caller: Caller<Auditor>,
    Then(body, (_, policy)): Then<Body<BacktestBody>, (NeedlessKey, PolicyPath)>,
    record: RecordData,
) -> HttpAnswer {
    let (draft, range) = check_backtest(body.0, record.instance.has_counters)?;
    let name = policy.0.clone();
    let key = caller.key();
    let tried = record.backtest(&key, name, draft, range).await?;
    Ok(HttpResponse::Ok().json(answer(&policy.0, tried)))
}
