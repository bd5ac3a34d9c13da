//! Parameters that lists of entries and of grants share: a span of instants or local days, and a
//! key.

use serde::Deserialize;
use utoipa::IntoParams;

use super::faults::{Faults, parse_date};
use engine::{DaySpan, MadeBy};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SpanQuery {
    /// Only those that count on this local day of the policy, by the version that was in force
    /// then.
    #[param(value_type = Option<NaiveDate>, example = "2026-11-03")]
    on: Option<String>,
    /// Only those that count at this instant or later. A date means the start of that local day of
    /// the policy.
    #[param(format = "day-or-instant", example = "2026-11-03T00:00:00Z")]
    from: Option<String>,
    /// Only those that count before this instant. A date means the start of that local day of the
    /// policy.
    #[param(format = "day-or-instant", example = "2026-11-04")]
    to: Option<String>,
    /// Only those that this key claimed or corrected: the key's id, or `PERDIEM_ADMIN_KEY`.
    #[param(format = "maker", example = "PERDIEM_ADMIN_KEY")]
    by: Option<String>,
}

impl SpanQuery {
    pub fn check(&self, faults: &mut Faults) -> (DaySpan, Option<MadeBy>) {
        let span = DaySpan {
            on: faults.parameter("on", self.on.as_ref(), parse_date),
            from: faults.bound("from", self.from.as_ref()),
            to: faults.bound("to", self.to.as_ref()),
        };
        (
            span,
            faults.parameter("by", self.by.as_ref(), parse_made_by),
        )
    }
}

fn parse_made_by(text: &str) -> Result<MadeBy, &'static str> {
    let id = text.parse().map(MadeBy::Key);
    match text {
        "PERDIEM_ADMIN_KEY" => Ok(MadeBy::Settings),
        _ => id.map_err(|_| "write a key's id, or PERDIEM_ADMIN_KEY"),
    }
}
