//! Claims, and a subject's usage.

use std::process::ExitCode;

use anyhow::{Context, bail};
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::{call, describe, request, segment, send, text};
use super::limits::print_limits;
use super::local::LocalTime;
use super::{ClaimArgs, UsageArgs};

/// The exit code of a denied claim.
const DENIED: u8 = 3;

/// The body of a claim. The metadata keeps the numbers as they were written.
#[derive(Serialize)]
struct SentClaim<'a> {
    subject: &'a str,
    units: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_seconds: Option<u64>,
    dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

pub async fn claim(args: ClaimArgs) -> anyhow::Result<ExitCode> {
    let metadata = args.metadata.as_deref().map(serde_json::from_str);
    let body = SentClaim {
        subject: &args.subject,
        units: args.units,
        hold_seconds: args.hold_seconds,
        dry_run: args.dry_run,
        metadata: metadata.transpose().context("--metadata is not JSON")?,
    };
    let path = format!("/v1/policies/{}/claims", segment(&args.policy));
    let mut request = request(&args.server, Method::POST, &path)?.json(&body);
    if let Some(key) = &args.idempotency_key {
        request = request.header("Idempotency-Key", key);
    }
    let (status, answer) = send(request).await?;
    // A retry of a grant that was reversed or lapsed is not granted either.
    let ended =
        matches!(status, StatusCode::CONFLICT | StatusCode::GONE) && is_about_the_grant(&answer);
    let is_blocked = text(&answer["type"]).ends_with("#subject-blocked");
    let denied = answer["outcome"] == "denied" || ended || is_blocked;
    if !status.is_success() && !denied {
        bail!(describe(&answer));
    }
    if args.server.json {
        println!("{answer:#}");
    } else {
        let local = LocalTime::of(&args.server, &args.policy, &args.subject).await;
        let limits = &answer["limits"];
        match answer["detail"].as_str() {
            Some(detail) => {
                let ends = limits.as_array().into_iter().flatten();
                let ends = ends.flat_map(|limit| [&limit["resets_at"], &limit["more_at"]]);
                let ends = ends.chain([&answer["fits_at"]]);
                println!("denied: {}", local.show_within(detail, ends));
            }
            None if answer["would_deny"] == true => {
                println!("granted; in the mode enforce, the claim would be denied");
            }
            None if answer["fits_at"].is_string() => {
                println!(
                    "denied; there is room at {}",
                    local.show(&answer["fits_at"])
                );
            }
            None => println!("{}", text(&answer["outcome"])),
        }
        print_limits(limits, &local);
    }
    Ok(if denied {
        ExitCode::from(DENIED)
    } else {
        ExitCode::SUCCESS
    })
}

/// Whether a problem says that the grant of the claim's key has ended.
fn is_about_the_grant(problem: &Value) -> bool {
    let kind = text(&problem["type"]);
    kind.ends_with("#grant-reversed") || kind.ends_with("#hold-lapsed")
}

pub async fn usage(args: UsageArgs) -> anyhow::Result<ExitCode> {
    let path = format!(
        "/v1/policies/{}/subjects/{}",
        segment(&args.policy),
        segment(&args.subject)
    );
    let answer = call(request(&args.server, Method::GET, &path)?).await?;
    if args.server.json {
        println!("{answer:#}");
    } else {
        let local = LocalTime::new(&answer["time_zone"]);
        print_limits(&answer["limits"], &local);
        if let Some(found) = answer.get("block") {
            match &found["until"] {
                Value::Null => println!("blocked"),
                until => println!("blocked until {}", local.show(until)),
            }
        }
        if let Some(found) = answer.get("override") {
            match &found["until"] {
                Value::Null => println!("limits of an override"),
                until => println!("limits of an override, until {}", local.show(until)),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
