//! Claims, and a subject's usage.

use std::process::ExitCode;

use anyhow::{Context, bail};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::client::{call, describe, read, request, segment, send, show};
use super::limits::print_limits;
use super::local::LocalTime;
use super::{ClaimArgs, UsageArgs};
use api::claims::{ClaimBody, DenialBody, UsageBody};
use api::grants::ClaimAnswer;
use api::problem::Problem;
use api::strict::WholeNumber;

/// The exit code of a denied claim.
const DENIED: u8 = 3;

/// The part of the answer that decides the exit code, also where the answer is shown as it came.
#[derive(Serialize, Deserialize)]
struct AnyOutcome {
    outcome: String,
}

pub async fn claim(args: ClaimArgs) -> anyhow::Result<ExitCode> {
    let metadata = args.metadata.as_deref().map(serde_json::from_str);
    let body = ClaimBody {
        subject: args.subject.clone(),
        units: Some(WholeNumber(args.units.into())),
        hold_seconds: args.hold_seconds.map(|seconds| WholeNumber(seconds.into())),
        dry_run: args.dry_run,
        metadata: metadata
            .transpose()
            .context("--metadata is not a JSON object")?,
    };
    let path = format!("/v1/policies/{}/claims", segment(&args.policy));
    let mut request = request(&args.server, Method::POST, &path)?.json(&body);
    if let Some(key) = &args.idempotency_key {
        request = request.header("Idempotency-Key", key);
    }
    let (status, answer) = send(request).await?;
    let denied = if status.is_success() {
        read::<AnyOutcome>(&answer)?.outcome != "granted"
    } else {
        is_denial(&read(&answer)?)
    };
    if !status.is_success() && !denied {
        bail!(describe(&answer));
    }
    if args.server.json {
        println!("{answer:#}");
    } else {
        let local = LocalTime::of(&args.server, &args.policy, &args.subject).await;
        if status.is_success() {
            print_claim(&read(&answer)?, &local);
        } else {
            print_denial(&answer, &local)?;
        }
    }
    Ok(if denied {
        ExitCode::from(DENIED)
    } else {
        ExitCode::SUCCESS
    })
}

/// Whether a problem denies the claim. A retry of a grant that was reversed or lapsed is not granted either.
fn is_denial(problem: &Problem) -> bool {
    let denials = [
        "quota-exceeded",
        "subject-blocked",
        "grant-reversed",
        "hold-lapsed",
    ];
    denials.contains(&&*problem.code)
}

fn print_claim(claim: &ClaimAnswer, local: &LocalTime) {
    match claim.fits_at {
        _ if claim.would_deny => {
            println!("granted; in the mode enforce, the claim would be denied");
        }
        Some(fits_at) => println!("denied; there is room at {}", local.show(fits_at)),
        None => println!("{}", claim.outcome),
    }
    print_limits(&claim.limits, local);
}

/// Prints a denial, or another problem that denies the claim.
fn print_denial(answer: &Value, local: &LocalTime) -> anyhow::Result<()> {
    let problem: Problem = read(answer)?;
    if problem.code != "quota-exceeded" {
        println!("denied: {}", problem.detail);
        return Ok(());
    }
    let denial: DenialBody = read(answer)?;
    let limits = denial.limits.iter();
    let ends = limits.flat_map(|limit| [limit.resets_at, limit.more_at]);
    let ends = ends.chain([denial.fits_at]).flatten();
    println!("denied: {}", local.show_within(&denial.detail, ends));
    print_limits(&denial.limits, local);
    Ok(())
}

pub async fn usage(args: UsageArgs) -> anyhow::Result<ExitCode> {
    let path = format!(
        "/v1/policies/{}/subjects/{}",
        segment(&args.policy),
        segment(&args.subject)
    );
    let answer = call(request(&args.server, Method::GET, &path)?).await?;
    show(&args.server, &answer, print_usage)
}

/// Prints a subject's limits under a policy, its block and its override.
pub fn print_usage(usage: &UsageBody) {
    let local = LocalTime::new(&usage.time_zone);
    print_limits(&usage.limits, &local);
    match usage.block.as_ref().map(|block| block.until) {
        None => {}
        Some(None) => println!("blocked"),
        Some(Some(until)) => println!("blocked until {}", local.show(until)),
    }
    match usage.override_note.as_ref().map(|note| note.until) {
        None => {}
        Some(None) => println!("limits of an override"),
        Some(Some(until)) => println!("limits of an override, until {}", local.show(until)),
    }
    if !usage.has_entries {
        println!("{} was never seen under {}", usage.subject, usage.policy);
    }
}
