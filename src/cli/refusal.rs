//! A request that the server refused: its exit code, and its text in the words of the command line.

use serde_json::Value;

use super::orphans::describe_orphans;
use super::places::{self, PlaceNames};
use super::{DENIED, FAILED, TRY_AGAIN, WAITS};
use api::problem::Problem;

/// The codes of "no": the server understood the request, and a rule or a fact is against it.
const NO: [&str; 5] = [
    "quota-exceeded",
    "subject-blocked",
    "policy-inactive",
    "grant-reversed",
    "hold-lapsed",
];
/// The codes of what can succeed the next time.
const LATER: [&str; 5] = [
    "unavailable",
    "undecided",
    "claim-in-progress",
    "reconciliation-in-progress",
    "being-erased",
];

/// The error, where the parts of the request are at these places, unless others are known already.
pub fn at_places(mut error: anyhow::Error, places: PlaceNames) -> anyhow::Error {
    if let Some(refused) = error.downcast_mut::<Refused>()
        && refused.places.is_empty()
    {
        refused.places = places;
    }
    error
}

/// An answer that is a problem document.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.told())]
pub struct Refused {
    /// The answer as it came.
    pub answer: Value,
    pub problem: Problem,
    /// The version of the thing to change, where the request named another one.
    pub version: Option<String>,
    /// Where the parts of the request are on the command line.
    pub places: PlaceNames,
}

impl Refused {
    /// The kind of the problem, in one word.
    pub fn code(&self) -> &str {
        &self.problem.code
    }

    /// Whether the answer is "no", as that to a claim that is denied.
    pub fn is_no(&self) -> bool {
        NO.contains(&self.code())
    }

    /// The command with which another admin makes the change that waits.
    pub fn approval(&self) -> Option<String> {
        let proposal = self.problem.proposal.as_ref()?;
        Some(format!("perdiem approve {proposal}"))
    }

    pub fn exit_code(&self) -> u8 {
        match self.code() {
            _ if self.is_no() => DENIED,
            "needs-approval" => WAITS,
            code if LATER.contains(&code) => TRY_AGAIN,
            _ => FAILED,
        }
    }

    /// What is wrong, and what to write instead.
    pub fn told(&self) -> String {
        let problem = &self.problem;
        let detail = match (self.code(), &self.version) {
            ("precondition-failed", Some(version)) => format!(
                "it has version {version} now: look at it again, and write --if-version {version}"
            ),
            ("precondition-failed", None) => {
                "it does not exist: leave out --if-version to create it".to_owned()
            }
            ("read-only", _) => {
                "this instance only reads: name another one in PERDIEM_URL, or for \
                 an export in --record-at"
                    .to_owned()
            }
            _ => places::in_words(self.places, &problem.detail),
        };
        // The parts say it all.
        let is_in_parts = self.code() == "invalid" && !problem.errors.is_empty();
        let mut told = Vec::from_iter((!is_in_parts).then_some(detail));
        told.extend(problem.errors.iter().map(|part| {
            let place = places::place(self.places, part);
            let detail = places::in_words(self.places, &part.detail);
            format!("{place}: {detail}")
        }));
        told.extend(problem.orphaned_overrides.as_ref().map(describe_orphans));
        let id = problem
            .request_id
            .as_ref()
            .filter(|_| problem.status >= 500);
        told.extend(id.map(|id| format!("the server's log has this request as {id}")));
        told.join("; ")
    }
}
