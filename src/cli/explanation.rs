//! The command that explains a grant, or a claim at an instant.

use std::process::ExitCode;

use chrono::{DateTime, Utc};
use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::ServerArgs;
use super::client::{account_path, call, read, request, segment, show};
use super::history::kind_of;
use super::key_names::KeyNames;
use super::limits::describe_use;
use super::local::{LocalTime, present};
use super::refusal::Refused;
use super::times::{GivenPlace, GivenTime};
use api::claims::UsageBody;
use api::explanation::{
    ClaimExplanation, CountedEntryBody, GrantExplanation, LimitExplanation, TermsBody, TookBody,
};
use api::limits::maxima;

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The grant's id, or the policy's name together with a subject
    #[arg(value_name = "GRANT|POLICY")]
    about: String,

    /// The subject of the claim
    subject: Option<String>,

    /// Time of the claim [default: now]
    #[arg(
        long,
        requires = "subject",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    at: Option<GivenTime>,

    /// Use the record only up to this position or time [default: the whole record]
    #[arg(
        long,
        alias = "known-at",
        value_name = "POSITION|TIME",
        allow_hyphen_values = true
    )]
    as_of: Option<GivenPlace>,

    /// Units of the claim
    #[arg(long, default_value_t = 1, requires = "subject")]
    units: u64,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn explain(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    let about = segment(&args.about);
    // The server's own now is not in its future.
    let at = args.at.filter(|at| *at != GivenTime::NOW);
    let local = match &args.subject {
        Some(_) => LocalTime::of_policy(server, &args.about).await?,
        None => LocalTime::utc(),
    };
    let now = local.at(present());
    let as_of = now.place(args.as_of)?;
    let mut query = Vec::from_iter(as_of.map(|as_of| ("known_at", as_of)));
    let path = match &args.subject {
        Some(subject) => {
            query.extend(now.instant_text(at)?.map(|at| ("at", at)));
            query.push(("units", args.units.to_string()));
            account_path(&args.about, subject)
        }
        None => format!("/v1/grants/{about}/explanation"),
    };
    let answer = call(request(server, Method::GET, &path)?.query(&query)).await?;
    if server.json {
        return show(server, &answer, |_: &Value| ());
    }
    let Some(subject) = &args.subject else {
        let grant: GrantExplanation = read(&answer)?;
        let names = names_of(server, [&grant.terms]).await?;
        print_grant(server, &grant, &names);
        return Ok(ExitCode::SUCCESS);
    };
    let claim: ClaimExplanation = read(&answer)?;
    let uses_nothing = claim.limits.iter().all(|limit| limit.entry_count == 0);
    if uses_nothing && is_unseen(server, &args.about, subject).await? {
        println!("{subject} was never seen under {}", args.about);
    }
    let names = names_of(server, &claim.terms).await?;
    print_claim(server, &claim, local, &names);
    Ok(ExitCode::SUCCESS)
}

/// The names of those who made the terms.
async fn names_of<'t>(
    server: &ServerArgs,
    terms: impl IntoIterator<Item = &'t TermsBody>,
) -> anyhow::Result<KeyNames> {
    let makers = terms.into_iter().flat_map(|terms| {
        let exception = terms.exception.iter().map(|it| &*it.changed_by);
        let tier = terms.tier.iter().map(|it| &*it.changed_by);
        exception.chain(tier).chain([&*terms.version.changed_by])
    });
    KeyNames::of(server, makers).await
}

/// Whether a subject has no entries under a policy. Nobody knows that of an archived policy.
async fn is_unseen(server: &ServerArgs, policy: &str, subject: &str) -> anyhow::Result<bool> {
    let path = account_path(policy, subject);
    match call(request(server, Method::GET, &path)?).await {
        Ok(usage) => Ok(!read::<UsageBody>(&usage)?.has_entries),
        Err(error) if error.is::<Refused>() => Ok(false),
        Err(error) => Err(error),
    }
}

fn print_claim(
    server: &ServerArgs,
    claim: &ClaimExplanation,
    of_policy: LocalTime,
    names: &KeyNames,
) {
    let version = claim.terms.as_ref().map(|terms| &terms.version);
    let zone_then = version.map(|version| LocalTime::new(server, &version.time_zone));
    let local = zone_then.unwrap_or(of_policy);
    let detail = local.show_within(&claim.detail);
    println!("{} at {}: {detail}", claim.outcome, local.show(claim.at));
    if let Some(fits_at) = claim.fits_at {
        println!(
            "granted from {} on, if nothing else happens",
            local.show(fits_at)
        );
    }
    if let Some(terms) = &claim.terms {
        print_terms(terms, &local, names);
    }
    for limit in &claim.limits {
        print_limit(limit, &local);
    }
}

fn print_grant(server: &ServerArgs, explanation: &GrantExplanation, names: &KeyNames) {
    let GrantExplanation { grant, terms, .. } = explanation;
    let local = LocalTime::new(server, &terms.version.time_zone);
    let took: Vec<String> = explanation.took.iter().map(describe_took).collect();
    let at = local.show(grant.granted_at);
    println!("granted at {at}: {}", took.join(", "));
    for note in &explanation.notes {
        println!("{}", local.show_within(note));
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
    print_terms(terms, &local, names);
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

fn print_terms(terms: &TermsBody, local: &LocalTime, names: &KeyNames) {
    let because = |reason: &Option<String>| match reason {
        Some(reason) => format!(": {reason}"),
        None => String::new(),
    };
    let version = &terms.version;
    println!(
        "by version {} of the policy, in force from {}, made by {}{}",
        version.version,
        local.show(version.effective_at),
        names.show(&version.changed_by),
        because(&version.reason),
    );
    let until = |until: Option<DateTime<Utc>>| {
        until.map_or_else(String::new, |until| format!(" until {}", local.show(until)))
    };
    if let Some(found) = &terms.tier {
        println!(
            "by version {} of the subject's tier: {}{}, made at {} by {}{}",
            found.version,
            found.tier.as_deref().unwrap_or_default(),
            until(found.until),
            local.show(found.changed_at),
            names.show(&found.changed_by),
            because(&found.reason),
        );
    }
    if let Some(found) = &terms.exception {
        println!(
            "by version {} of the override: {}{}, made at {} by {}{}",
            found.version,
            maxima(&found.limits),
            until(found.until),
            local.show(found.changed_at),
            names.show(&found.changed_by),
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
    let kind = kind_of(&entry.kind, entry.per.as_ref());
    let id = entry.id.map_or("-".to_owned(), |id| id.to_string());
    println!(
        "    {:<32} {:<12} {:>6}  {id:<36} {position}{}{}",
        local.show(instant),
        kind,
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
