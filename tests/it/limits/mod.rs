//! Limits of every kind, compared with the numbers and the code of other projects.

mod moving_window;
mod tables;

use chrono::{DateTime, Utc};
use perdiem::domain::account::{Verdict, decide};
use perdiem::domain::claim::Units;
use perdiem::domain::grant::Line;
use perdiem::domain::limit::draft::LimitDraft;
use perdiem::domain::limit::total::Total;
use perdiem::domain::past::Past;
use perdiem::domain::policy::{Policy, PolicyId, PolicyName, RuleDraft};
use perdiem::domain::refusal::Refusal;

/// An account of a policy with one limit.
struct Counting {
    policy: Policy,
    last: Option<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// With the total after the grant.
    Granted(Total),
    /// With the total that denied the claim.
    Denied(Total),
    /// More units than ever fit at once.
    NeverFits,
}

impl Counting {
    fn of(limit: LimitDraft) -> Self {
        let draft = RuleDraft {
            time_zone: "UTC".to_owned(),
            limits: vec![limit],
            ..RuleDraft::default()
        };
        let policy = Policy {
            id: PolicyId(1),
            name: PolicyName::new("benefit").expect("a name"),
            version: 1,
            rule: draft.check().expect("a rule"),
            archived: false,
            effective_at: DateTime::UNIX_EPOCH,
            changed_at: DateTime::UNIX_EPOCH,
            changed_by: "test".to_owned(),
            reason: None,
            blocked: None,
        };
        Self { policy, last: None }
    }

    fn claim(&mut self, units: u64, now: DateTime<Utc>) -> Outcome {
        let units = Units::new(units.into()).expect("units");
        let last = self.last.as_ref();
        let verdict = decide(&self.policy, units, last, &Past::default(), now);
        match verdict.expect("a verdict") {
            Verdict::Granted(line) => {
                let total = line.totals[0].clone();
                self.last = Some(line);
                Outcome::Granted(total)
            }
            Verdict::Refused(Refusal::Denied(denied)) => Outcome::Denied(denied.totals[0].clone()),
            Verdict::Refused(Refusal::NeverFits { .. }) => Outcome::NeverFits,
            other => panic!("{other:?}"),
        }
    }
}

fn limit(max: i128, per: &str, kind: Option<&str>) -> LimitDraft {
    LimitDraft {
        max,
        per: per.to_owned(),
        kind: kind.map(str::to_owned),
        ..LimitDraft::default()
    }
}

fn at(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).expect("an instant")
}
