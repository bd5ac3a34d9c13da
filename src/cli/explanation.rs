//! The command that explains a grant, or a claim at an instant.

use std::process::ExitCode;

use chrono::{DateTime, Utc};
use clap::Args;
use reqwest::Method;

use super::ServerArgs;
use super::client::{call, request, segment, show};
use super::limits::{describe_maxes, describe_use};
use super::local::LocalTime;
use api::explanation::{
    ClaimExplanation, CountedEntryBody, GrantExplanation, LimitExplanation, TermsBody, TookBody,
};

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The grant's id, or the policy's name together with a subject
    #[arg(value_name = "GRANT|POLICY")]
    about: String,

    /// The subject of the claim
    subject: Option<String>,

    /// Instant of the claim, such as 2026-11-03T09:00:00Z [default: now]
    #[arg(long, requires = "subject")]
    at: Option<String>,

    /// Use the record only up to this position or instant [default: the whole record]
    #[arg(long)]
    known_at: Option<String>,

    /// Units of the claim
    #[arg(long, default_value_t = 1, requires = "subject")]
    units: u64,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn explain(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    let about = segment(&args.about);
    let mut query = Vec::from_iter(args.known_at.map(|known_at| ("known_at", known_at)));
    let path = match &args.subject {
        Some(subject) => {
            query.extend(args.at.map(|at| ("at", at)));
            query.push(("units", args.units.to_string()));
            format!("/v1/policies/{about}/subjects/{}", segment(subject))
        }
        None => format!("/v1/grants/{about}/explanation"),
    };
    let answer = call(request(&args.server, Method::GET, &path)?.query(&query)).await?;
    if args.subject.is_some() {
        show(&args.server, &answer, print_claim)
    } else {
        show(&args.server, &answer, print_grant)
    }
}

fn print_claim(claim: &ClaimExplanation) {
    let version = claim.terms.as_ref().map(|terms| &terms.version);
    let local = LocalTime::new(version.map_or("", |version| &version.time_zone));
    let ends = version.map(|version| [version.active_from, version.active_until]);
    let ends = ends.into_iter().flatten().flatten();
    let detail = local.show_within(&claim.detail, ends);
    println!("{} at {}: {detail}", claim.outcome, local.show(claim.at));
    if let Some(fits_at) = claim.fits_at {
        println!(
            "granted from {} on, if nothing else happens",
            local.show(fits_at)
        );
    }
    if let Some(terms) = &claim.terms {
        print_terms(terms, &local);
    }
    for limit in &claim.limits {
        print_limit(limit, &local);
    }
}

fn print_grant(explanation: &GrantExplanation) {
    let GrantExplanation { grant, terms, .. } = explanation;
    let local = LocalTime::new(&terms.version.time_zone);
    let took: Vec<String> = explanation.took.iter().map(describe_took).collect();
    let at = local.show(grant.granted_at);
    println!("granted at {at}: {}", took.join(", "));
    for note in &explanation.notes {
        println!("{}", local.show_within(note, grant.held_until));
    }
    let entry = &explanation.entry;
    print_entry(entry, entry.counted_at, &local);
    let since = &explanation.since;
    println!(
        "since then: {}",
        match (&*grant.state, since.is_empty()) {
            ("granted", true) => "no change",
            (state, _) => state,
        }
    );
    for entry in since {
        print_entry(entry, entry.at, &local);
    }
    print_terms(terms, &local);
    println!("the limits before the grant:");
    for limit in &explanation.limits {
        print_limit(limit, &local);
    }
}

/// Such as `2nd of 3 per day`.
fn describe_took(took: &TookBody) -> String {
    let [first, last] = [took.first, took.last].map(ordinal);
    let units = if first == last {
        first
    } else {
        format!("{first} to {last}")
    };
    format!("{units} of {} per {}", took.max, took.per)
}

fn ordinal(number: u64) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

fn print_terms(terms: &TermsBody, local: &LocalTime) {
    let because = |reason: &Option<String>| match reason {
        Some(reason) => format!(": {reason}"),
        None => String::new(),
    };
    let version = &terms.version;
    println!(
        "by version {} of the policy, in force from {}, made by {}{}",
        version.version,
        local.show(version.effective_at),
        version.changed_by,
        because(&version.reason),
    );
    if let Some(found) = &terms.exception {
        let until = found
            .until
            .map(|until| format!(" until {}", local.show(until)));
        println!(
            "by version {} of the override: {}{}, made at {} by {}{}",
            found.version,
            describe_maxes(&found.limits),
            until.unwrap_or_default(),
            local.show(found.changed_at),
            found.changed_by,
            because(&found.reason),
        );
    }
}

fn print_limit(limit: &LimitExplanation, local: &LocalTime) {
    let usage = &limit.usage;
    let end = |word: &str, instant: Option<DateTime<Utc>>| {
        instant.map_or_else(String::new, |at| format!("{word} {}", local.show(at)))
    };
    println!(
        "{}{}{}",
        describe_use(usage),
        end(", from", usage.window_start),
        end(" until", usage.resets_at),
    );
    for entry in &limit.entries {
        print_entry(entry, entry.counted_at, local);
    }
    if limit.entries_cut {
        println!("    … older entries exist: {} in all", limit.entry_count);
    }
}

/// Prints an entry with one of its instants.
fn print_entry(entry: &CountedEntryBody, instant: DateTime<Utc>, local: &LocalTime) {
    let position = entry
        .position
        .map(|position| format!("position {position}"));
    let position = position.unwrap_or_else(|| "position pending".to_owned());
    let name = entry.key.as_ref().map(|key| &key.name);
    let key = name.or(entry.by.as_ref());
    let id = entry.id.map_or("-".to_owned(), |id| id.to_string());
    println!(
        "    {:<32} {:<12} {:>6}  {id:<36} {position}{}{}",
        local.show(instant),
        entry.kind,
        entry.units,
        key.map_or_else(String::new, |key| format!(", {key}")),
        entry
            .reason
            .as_ref()
            .map_or_else(String::new, |reason| format!(": {reason}")),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals() {
        let told = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111].map(ordinal);
        let expected = [
            "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th",
        ];
        assert_eq!(told, expected);
    }
}
