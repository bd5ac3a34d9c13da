//! Commands that call a running server.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use super::local::LocalTime;
use super::{ClaimArgs, PolicyPutArgs, PolicyShowArgs, ServerArgs, UsageArgs};

/// What a denied claim exits with.
const DENIED: u8 = 3;

/// The longest that a server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// All but the unreserved characters (RFC 3986, section 2.3).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// `max` units `per` window.
#[derive(Debug, Clone, Serialize)]
pub struct LimitArg {
    max: u64,
    per: String,
}

/// Reads `3 per day`.
///
/// # Errors
/// What to write instead.
pub fn parse_limit(text: &str) -> Result<LimitArg, String> {
    let wrong = || "write it like \"3 per day\"".to_owned();
    let (max, per) = text.split_once(" per ").ok_or_else(wrong)?;
    Ok(LimitArg {
        max: max.trim().parse().map_err(|_| wrong())?,
        per: per.trim().to_owned(),
    })
}

/// Claims units for a subject.
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
    let denied = answer["outcome"] == "denied";
    if !status.is_success() && !denied {
        bail!(describe(&answer));
    }
    if args.server.json {
        println!("{answer:#}");
    } else {
        let local = LocalTime::of(&args.server, &args.policy, &args.subject).await;
        let limits = &answer["limits"];
        match answer["detail"].as_str() {
            Some(detail) => println!("denied: {}", local.show_within(detail, limits)),
            None if answer["would_deny"] == true => {
                println!("granted, and would be denied if the policy did not only observe");
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

/// Shows a subject's limits.
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
        if let Some(found) = answer.get("override") {
            match &found["until"] {
                Value::Null => println!("by an override"),
                until => println!("by an override, until {}", local.show(until)),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the policies.
pub async fn list_policies(args: ServerArgs) -> anyhow::Result<ExitCode> {
    let items = all_items(&args, "/v1/policies?limit=1000").await?;
    if args.json {
        println!("{:#}", Value::Array(items));
    } else {
        items.iter().for_each(print_policy);
    }
    Ok(ExitCode::SUCCESS)
}

/// Every item of a list, page by page.
pub async fn all_items(server: &ServerArgs, path: &str) -> anyhow::Result<Vec<Value>> {
    let mut items = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let mut request = request(server, Method::GET, path)?;
        if let Some(cursor) = cursor.as_str() {
            request = request.query(&[("cursor", cursor)]);
        }
        let mut page = call(request).await?;
        if let Value::Array(page) = page["items"].take() {
            items.extend(page);
        }
        cursor = page["next_cursor"].take();
        if cursor.is_null() {
            return Ok(items);
        }
    }
}

/// Shows a policy.
pub async fn show_policy(args: PolicyShowArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/policies/{}", segment(&args.policy));
    let policy = call(request(&args.server, Method::GET, &path)?).await?;
    show(&args.server, &policy);
    Ok(ExitCode::SUCCESS)
}

/// Creates or replaces a policy.
pub async fn put_policy(args: PolicyPutArgs) -> anyhow::Result<ExitCode> {
    let body = json!({
        "description": args.description,
        "time_zone": args.time_zone,
        "limits": args.limits,
        "day_starts_at": args.day_starts_at,
        "week_starts_on": args.week_starts_on,
        "active_from": args.active_from,
        "active_until": args.active_until,
        "paused": args.paused,
        "mode": args.mode,
        "effective": args.effective,
        "durability": args.durability,
        "on_ledger_outage": args.on_ledger_outage,
        "reason": args.reason,
    });
    let path = format!("/v1/policies/{}", segment(&args.policy));
    let mut request = request(&args.server, Method::PUT, &path)?.json(&body);
    if let Some(version) = args.if_version {
        request = request.header("If-Match", format!("\"{version}\""));
    }
    let policy = call(request).await?;
    show(&args.server, &policy);
    Ok(ExitCode::SUCCESS)
}

/// A text as a segment of a path.
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

pub fn request(server: &ServerArgs, method: Method, path: &str) -> anyhow::Result<RequestBuilder> {
    // Another part of the program may have chosen it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(TIMEOUT).build()?;
    let url = format!("{}{path}", server.url.trim_end_matches('/'));
    let key = server.key_file.as_ref().or(server.key.as_ref());
    let key = key.expect("one of the two is required");
    Ok(client.request(method, url).bearer_auth(key))
}

pub async fn send(request: RequestBuilder) -> anyhow::Result<(StatusCode, Value)> {
    let response = request
        .send()
        .await
        .context("the server does not answer; see that it runs, and name it in PERDIEM_URL")?;
    let status = response.status();
    let answer = response
        .json()
        .await
        .with_context(|| format!("the answer ({status}) is not perdiem's; see PERDIEM_URL"))?;
    Ok((status, answer))
}

pub async fn call(request: RequestBuilder) -> anyhow::Result<Value> {
    let (status, answer) = send(request).await?;
    if !status.is_success() {
        bail!(describe(&answer));
    }
    Ok(answer)
}

/// A problem document in words.
pub fn describe(problem: &Value) -> String {
    let mut words = text(&problem["detail"]).to_owned();
    for part in problem["errors"].as_array().into_iter().flatten() {
        let place = part["pointer"].as_str().or(part["parameter"].as_str());
        words.push_str("; ");
        words.push_str(place.unwrap_or_default());
        words.push_str(": ");
        words.push_str(text(&part["detail"]));
    }
    words
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn print_limits(limits: &Value, local: &LocalTime) {
    for limit in limits.as_array().into_iter().flatten() {
        println!(
            "{:<7} {} of {} used, {} left until {}",
            text(&limit["per"]),
            limit["used"],
            limit["max"],
            limit["remaining"],
            local.show(&limit["resets_at"]),
        );
    }
}

pub fn show(server: &ServerArgs, policy: &Value) {
    if server.json {
        println!("{policy:#}");
    } else {
        print_policy(policy);
    }
}

/// Limits in a line.
pub fn describe_limits(limits: &Value) -> String {
    let limits = limits.as_array().into_iter().flatten();
    let limits = limits.map(|limit| format!("{} per {}", limit["max"], text(&limit["per"])));
    limits.collect::<Vec<_>>().join(", ")
}

fn print_policy(policy: &Value) {
    let version = &policy["version"];
    let in_force = &policy["in_force_version"];
    let begins = match in_force.is_null() || in_force == version {
        true => String::new(),
        false => format!(
            "  (from {}; until then version {in_force})",
            LocalTime::new(&policy["time_zone"]).show(&policy["effective_at"])
        ),
    };
    println!(
        "{:<24} version {:<4} {:<24} {}{}{begins}",
        text(&policy["name"]),
        version.to_string(),
        text(&policy["time_zone"]),
        describe_limits(&policy["limits"]),
        if policy["paused"] == true {
            "  (paused)"
        } else {
            ""
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let limit = parse_limit("3 per day").unwrap();
        assert_eq!((limit.max, limit.per.as_str()), (3, "day"));
        for wrong in ["3", "per day", "three per day", "-1 per day", "3/day"] {
            assert!(parse_limit(wrong).is_err(), "{wrong}");
        }
    }
}
