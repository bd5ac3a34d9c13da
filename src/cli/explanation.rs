//! The command that explains a grant, or a claim at an instant.

use std::process::ExitCode;

use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::ServerArgs;
use super::client::{call, request, segment, text};
use super::limits::{describe_limits, describe_use};
use super::local::LocalTime;

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
    if args.server.json {
        println!("{answer:#}");
        return Ok(ExitCode::SUCCESS);
    }
    let version = &answer["terms"]["version"];
    let local = LocalTime::new(&version["time_zone"]);
    match answer.get("grant") {
        Some(grant) => print_grant(grant, &answer, &local),
        None => {
            let ends = [&version["active_from"], &version["active_until"]];
            let detail = local.show_within(text(&answer["detail"]), ends);
            let outcome = text(&answer["outcome"]);
            let at = local.show(&answer["at"]);
            println!("{outcome} at {at}: {detail}");
            if let fits_at @ Value::String(_) = &answer["fits_at"] {
                println!(
                    "granted from {} on, if nothing else happens",
                    local.show(fits_at)
                );
            }
        }
    }
    print_terms(&answer["terms"], &local);
    if args.subject.is_none() {
        println!("the limits before the grant:");
    }
    items(&answer["limits"]).for_each(|limit| print_limit(limit, &local));
    Ok(ExitCode::SUCCESS)
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn print_grant(grant: &Value, answer: &Value, local: &LocalTime) {
    let took: Vec<String> = items(&answer["took"]).map(describe_took).collect();
    let at = local.show(&grant["granted_at"]);
    println!("granted at {at}: {}", took.join(", "));
    for note in items(&answer["notes"]) {
        println!("{}", local.show_within(text(note), [&grant["held_until"]]));
    }
    print_entry(&answer["entry"], "counted_at", local);
    let since = items(&answer["since"]).collect::<Vec<_>>();
    println!(
        "since then: {}",
        match (text(&grant["state"]), since.is_empty()) {
            ("granted", true) => "no change",
            (state, _) => state,
        }
    );
    since
        .into_iter()
        .for_each(|entry| print_entry(entry, "at", local));
}

/// Such as `2nd of 3 per day`.
fn describe_took(took: &Value) -> String {
    let [first, last] = ["first", "last"].map(|end| ordinal(took[end].as_u64().unwrap_or(0)));
    let units = if first == last {
        first
    } else {
        format!("{first} to {last}")
    };
    format!("{units} of {} per {}", took["max"], text(&took["per"]))
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

fn print_terms(terms: &Value, local: &LocalTime) {
    let because = |version: &Value| match version["reason"].as_str() {
        Some(reason) => format!(": {reason}"),
        None => String::new(),
    };
    let version = &terms["version"];
    if !version.is_null() {
        println!(
            "by version {} of the policy, in force from {}, made by {}{}",
            version["version"],
            local.show(&version["effective_at"]),
            text(&version["changed_by"]),
            because(version),
        );
    }
    let found = &terms["override"];
    if !found.is_null() {
        let until = match &found["until"] {
            Value::Null => String::new(),
            until => format!(" until {}", local.show(until)),
        };
        println!(
            "by version {} of the override: {}{until}, made at {} by {}{}",
            found["version"],
            describe_limits(&found["limits"]),
            local.show(&found["changed_at"]),
            text(&found["changed_by"]),
            because(found),
        );
    }
}

fn print_limit(limit: &Value, local: &LocalTime) {
    let end = |word: &str, field: &str| match &limit[field] {
        Value::Null => String::new(),
        instant => format!("{word} {}", local.show(instant)),
    };
    println!(
        "{}{}{}",
        describe_use(limit),
        end(", from", "window_start"),
        end(" until", "resets_at"),
    );
    items(&limit["entries"]).for_each(|entry| print_entry(entry, "counted_at", local));
    if limit["entries_cut"] == true {
        println!("    … older entries exist: {} in all", limit["entry_count"]);
    }
}

/// Prints an entry with the instant in one of its fields.
fn print_entry(entry: &Value, instant: &str, local: &LocalTime) {
    let position = match &entry["position"] {
        Value::Null => "position pending".to_owned(),
        position => format!("position {position}"),
    };
    let key = [&entry["key"]["name"], &entry["by"]];
    let key = key.into_iter().find_map(Value::as_str);
    let reason = entry["reason"].as_str();
    println!(
        "    {:<32} {:<12} {:>6}  {:<36} {position}{}{}",
        local.show(&entry[instant]),
        text(&entry["kind"]),
        entry["units"].to_string(),
        entry["id"].as_str().unwrap_or("-"),
        key.map_or_else(String::new, |key| format!(", {key}")),
        reason.map_or_else(String::new, |reason| format!(": {reason}")),
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
