//! Claims, and a subject's usage.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::client::{account_path, call, once, read, request, segment, send, show};
use super::limits::print_limits;
use super::local::LocalTime;
use super::places::{CLAIM, in_words};
use super::refusal::Refused;
use super::{DENIED, ServerArgs};
use api::calendars::{CalendarAnswer, CalendarBody};
use api::claims::{ClaimBody, DenialBody, UsageBody};
use api::grants::ClaimAnswer;
use api::limits::in_percent;
use api::problem::Problem;
use api::strict::{Object, WholeNumber};

#[derive(Debug, Args)]
pub struct ClaimArgs {
    /// The policy's name
    policy: String,

    /// The subject to count
    subject: String,

    /// Number of units
    #[arg(long, default_value_t = 1)]
    units: u64,

    /// Make the grant a hold: it lapses after this many seconds unless it is confirmed
    #[arg(long)]
    hold_seconds: Option<u64>,

    /// A key that makes a retry safe: the same claim with the same key is granted once
    #[arg(long)]
    idempotency_key: Option<String>,

    /// A JSON object to store with the grant
    #[arg(long)]
    metadata: Option<String>,

    /// The subject's own time zone from here on, if the policy takes the calendars of subjects
    #[arg(long)]
    time_zone: Option<String>,

    /// The day from which the subject's weeks, months and years are counted from here on
    #[arg(long, value_name = "YYYY-MM-DD")]
    anchor: Option<String>,

    /// Only show what would happen; nothing is counted
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct UsageArgs {
    /// The policy's name
    policy: String,

    /// The subject
    subject: String,

    #[command(flatten)]
    server: ServerArgs,
}

/// What a policy that only observes says of a claim.
const WOULD_DENY: &str = "in the mode enforce, the claim would be denied";

/// The part of the answer that decides the exit code, also where the answer is shown as it came.
#[derive(Serialize, Deserialize)]
struct AnyOutcome {
    outcome: String,
}

pub async fn claim(args: ClaimArgs) -> anyhow::Result<ExitCode> {
    let metadata = args.metadata.as_deref().map(serde_json::from_str);
    let has_calendar = args.time_zone.is_some() || args.anchor.is_some();
    let calendar = has_calendar.then(|| CalendarBody {
        time_zone: args.time_zone.clone(),
        anchor: args.anchor.clone(),
    });
    let body = ClaimBody {
        subject: args.subject.clone(),
        units: Some(WholeNumber(args.units.into())),
        hold_seconds: args.hold_seconds.map(|seconds| WholeNumber(seconds.into())),
        calendar: calendar.map(Object),
        dry_run: args.dry_run,
        metadata: metadata
            .transpose()
            .context("--metadata is not a JSON object")?,
    };
    let server = &args.server;
    let path = format!("/v1/policies/{}/claims", segment(&args.policy));
    let request = request(server, Method::POST, &path)?.json(&body);
    let (status, answer) = match send(once(request, args.idempotency_key.as_ref())).await {
        Ok((status, answer)) => (Some(status), answer),
        Err(error) => match error.downcast::<Refused>() {
            Ok(refused) if refused.is_no() => (None, refused.answer),
            Ok(refused) => return Err(refused.into()),
            Err(error) => return Err(error),
        },
    };
    let is_granted = match status {
        Some(_) => read::<AnyOutcome>(&answer)?.outcome == "granted",
        None => false,
    };
    if server.json {
        println!("{answer:#}");
    } else {
        let local = LocalTime::of_subject(server, &args.policy, &args.subject).await;
        match status {
            Some(_) if args.dry_run => print_rehearsal(&read(&answer)?, &local),
            Some(status) => print_grant(&read(&answer)?, status == StatusCode::OK, &local),
            None => print_denial(&answer, &local)?,
        }
    }
    Ok(if is_granted {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(DENIED)
    })
}

/// Prints a claim that was granted now, or before under the same key.
fn print_grant(claim: &ClaimAnswer, is_repeat: bool, local: &LocalTime) {
    let grant = claim.grant.as_ref();
    let id = grant.map_or_else(String::new, |grant| format!(" {}", grant.id));
    let held = grant.and_then(|grant| grant.held_until);
    let held = held.map(|until| format!("held until {}", local.show(until)));
    let notes = [
        is_repeat.then(|| "same grant as before".to_owned()),
        held,
        grant
            .and_then(|grant| in_percent(&grant.crossed))
            .map(|levels| format!("reached {levels}")),
        claim.would_deny.then(|| WOULD_DENY.to_owned()),
        grant
            .map(|grant| grant.topped_up_units)
            .filter(|units| *units > 0)
            .map(|units| format!("{units} from top-ups")),
    ];
    let notes = notes
        .into_iter()
        .flatten()
        .map(|note| format!("  ({note})"));
    println!("granted{id}{}", notes.collect::<String>());
    print_limits(&claim.limits, local);
}

/// Prints what a claim would get.
fn print_rehearsal(claim: &ClaimAnswer, local: &LocalTime) {
    let fits_at = claim.fits_at.map(|at| local.show(at));
    let fits_at = fits_at.map(|at| format!("; there is room at {at}"));
    let would_deny = claim.would_deny.then(|| format!("; {WOULD_DENY}"));
    let notes = fits_at.or(would_deny).unwrap_or_default();
    println!(
        "would be {} (dry run, nothing counted){notes}",
        claim.outcome
    );
    print_limits(&claim.limits, local);
}

/// Prints a denial, or another problem that denies the claim.
fn print_denial(answer: &Value, local: &LocalTime) -> anyhow::Result<()> {
    let problem: Problem = read(answer)?;
    let detail = local.show_within(&in_words(CLAIM, &problem.detail));
    let is_blocked = problem.code == "subject-blocked";
    let end = match problem.blocked_until {
        None if is_blocked => ", without an end",
        _ => "",
    };
    println!("denied: {detail}{end}");
    if problem.code == "quota-exceeded" {
        let denial: DenialBody = read(answer)?;
        print_limits(&denial.limits, local);
    }
    Ok(())
}

pub async fn usage(args: UsageArgs) -> anyhow::Result<ExitCode> {
    let path = account_path(&args.policy, &args.subject);
    let answer = call(request(&args.server, Method::GET, &path)?).await?;
    let server = &args.server;
    show(server, &answer, |usage| print_usage(server, usage))
}

/// Prints a subject's limits under a policy, its block, its tier and its override.
pub fn print_usage(server: &ServerArgs, usage: &UsageBody) {
    let local = LocalTime::new(server, &usage.time_zone);
    print_limits(&usage.limits, &local);
    match usage.block.as_ref().map(|block| block.until) {
        None => {}
        Some(None) => println!("blocked"),
        Some(Some(until)) => println!("blocked until {}", local.show(until)),
    }
    if let Some(tier) = &usage.tier {
        match tier.until {
            None => println!("in the tier {}", tier.name),
            Some(until) => println!("in the tier {}, until {}", tier.name, local.show(until)),
        }
    }
    match usage.override_note.as_ref().map(|note| note.until) {
        None => {}
        Some(None) => println!("limits of an override"),
        Some(Some(until)) => println!("limits of an override, until {}", local.show(until)),
    }
    for top_up in &usage.top_ups {
        let until = local.show(top_up.until);
        println!(
            "{} more until {until}, by the top-up {}",
            top_up.units_left, top_up.id
        );
    }
    if let Some(calendar) = usage.calendar.as_ref().and_then(CalendarAnswer::in_words) {
        println!("its calendar: {calendar}");
    }
    if !usage.has_entries {
        println!("{} was never seen under {}", usage.subject, usage.policy);
    }
}
