//! Claims, and a subject's usage.

use std::process::ExitCode;

use anyhow::{Context, bail};
use reqwest::Method;
use serde_json::{Value, json};

use super::client::{call, describe, request, segment, send, text};
use super::limits::print_limits;
use super::local::LocalTime;
use super::{ClaimArgs, UsageArgs};

/// The exit code of a denied claim.
const DENIED: u8 = 3;

pub async fn claim(args: ClaimArgs) -> anyhow::Result<ExitCode> {
    let mut body = json!({
        "subject": args.subject,
        "units": args.units,
        "hold_seconds": args.hold_seconds,
        "dry_run": args.dry_run,
    });
    if let Some(metadata) = &args.metadata {
        let metadata: Value = serde_json::from_str(metadata).context("--metadata is not JSON")?;
        body["metadata"] = metadata;
    }
    let path = format!("/v1/policies/{}/claims", segment(&args.policy));
    let mut request = request(&args.server, Method::POST, &path)?.json(&body);
    if let Some(key) = &args.idempotency_key {
        request = request.header("Idempotency-Key", key);
    }
    let (status, answer) = send(request).await?;
    let is_blocked = text(&answer["type"]).ends_with("#subject-blocked");
    let denied = is_blocked || answer["outcome"] == "denied";
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
                println!("denied: {}", local.show_within(detail, ends));
            }
            None if answer["would_deny"] == true => {
                println!("granted; in the mode enforce, the claim would be denied");
            }
            None => println!("{}", text(&answer["outcome"])),
        }
        print_limits(limits, &local);
    }
    Ok(match denied {
        true => ExitCode::from(DENIED),
        false => ExitCode::SUCCESS,
    })
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
