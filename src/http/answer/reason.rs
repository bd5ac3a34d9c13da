//! Why a claim was granted or denied, as text.

use api::instant::written;
use api::limits::in_percent;
use domain::account::Verdict;
use domain::claim::Units;
use domain::grant::{Entry, Provisional};
use domain::limit::total::Total;
use domain::policy::Inactive;
use domain::refusal::Refusal;
use domain::shared::SharedTotal;

/// The reason of a verdict, as a word and as a sentence. No verdict means that no version of the
/// policy was in force. `lacking` are the limits of the subject without room, and `shared` those of all subjects.
pub fn describe_verdict(
    verdict: Option<&Verdict>,
    lacking: &[&Total],
    shared: &[&SharedTotal],
    units: Units,
) -> (&'static str, String) {
    let units = units.get();
    let no_room = || {
        let used = |total: &&Total| {
            format!(
                "{} of {} per {}",
                total.used(),
                total.at_once(),
                total.per()
            )
        };
        let by_all = |total: &&SharedTotal| {
            let per = total.limit.per();
            format!("{} of {} per {per} by all", total.used(), total.limit.max)
        };
        let by_all = shared.iter().map(by_all);
        let used: Vec<String> = lacking.iter().map(used).chain(by_all).collect();
        let used = used.join(", ");
        format!("there was no room for {units} more: {used} were used")
    };
    let refusal = match verdict {
        None => {
            return (
                "no_version",
                "no version of the policy was in force".to_owned(),
            );
        }
        Some(Verdict::Granted(line)) => {
            let topped_up = line.topped_up_units();
            let room = format!(
                "there was room for {} more in every limit",
                units - topped_up
            );
            return match topped_up {
                0 => ("room", room),
                _ => (
                    "topped_up",
                    format!("{room}, and {topped_up} came from top-ups"),
                ),
            };
        }
        Some(Verdict::WouldDeny(_)) => {
            return (
                "observed",
                match (lacking, shared) {
                    ([], []) => "the policy only observed: the subject was blocked".to_owned(),
                    _ => format!("the policy only observed: {}", no_room()),
                },
            );
        }
        Some(Verdict::Refused(refusal)) => refusal,
    };
    match refusal {
        Refusal::Archived => ("archived", "the policy was archived".to_owned()),
        Refusal::Inactive(Inactive::Paused) => ("paused", "the policy was paused".to_owned()),
        Refusal::Inactive(Inactive::Before(from)) => {
            let detail = format!("the policy was not active before {}", written(*from));
            ("not_yet_active", detail)
        }
        Refusal::Inactive(Inactive::After(until)) => {
            let detail = format!("the policy was active until {}", written(*until));
            ("no_longer_active", detail)
        }
        Refusal::Blocked(block) => {
            let until = block
                .until
                .map(|until| format!(" until {}", written(until)));
            let until = until.unwrap_or_default();
            ("blocked", format!("the subject was blocked{until}"))
        }
        Refusal::NeverFits { per, max } => {
            let detail = format!("{units} could never fit: at most {max} fit per {per}");
            ("never_fits", detail)
        }
        Refusal::TooMany => {
            let detail = "a window would have had more units than can be counted".to_owned();
            ("too_many_units", detail)
        }
        // A new claim without a calendar is no correction and no retry: only `Denied` occurs.
        Refusal::Denied(_)
        | Refusal::NoOwnCalendar
        | Refusal::Ended(_)
        | Refusal::NotCorrected(_) => ("no_room", no_room()),
    }
}

/// The special properties of a grant, as sentences.
pub fn notes(grant: &Entry) -> Vec<String> {
    let provisional = grant.provisional.map(|_| {
        let note =
            "Redis alone decided it, as the policy allowed; the ledger recorded it afterwards";
        note.to_owned()
    });
    let is_over = grant.provisional == Some(Provisional::Over);
    let over = is_over.then(|| "it went over a limit when it was recorded".to_owned());
    let observed = "the policy only observed; in the mode enforce it would have denied the claim";
    let would_deny = grant.would_deny.then(|| observed.to_owned());
    let hold = grant.held_until().map(|until| {
        let until = written(until);
        format!("it is a hold: it lapses at {until} unless it is confirmed or reversed before")
    });
    let levels: Vec<u8> = grant.crossed.percents().collect();
    let crossed = in_percent(&levels).map(|levels| format!("it brought a limit to {levels}"));
    let notes = [provisional, over, would_deny, hold, crossed];
    notes.into_iter().flatten().collect()
}
