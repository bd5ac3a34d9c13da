//! `perdiem entries`: the entries of one account, or of all accounts.

use std::process::ExitCode;

use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::ServerArgs;
use super::client::{all_items, first_found, request, segment, text};
use super::local::LocalTime;

/// Filters for entries. They combine.
#[derive(Debug, Args)]
pub struct EntryFilters {
    /// Only entries of this kind: grant, confirmation, reversal, partial_reversal, lapse or adjustment
    #[arg(long)]
    kind: Option<String>,

    /// Only entries that count on this local day of the policy, such as 2026-11-03
    #[arg(long, value_name = "DATE")]
    on: Option<String>,

    /// Only entries that count at this local day or instant, or later
    #[arg(long)]
    from: Option<String>,

    /// Only entries that count before this local day or instant
    #[arg(long)]
    to: Option<String>,

    /// Only entries that this key claimed or corrected: the key's id, or PERDIEM_ADMIN_KEY
    #[arg(long, value_name = "KEY")]
    by: Option<String>,

    /// Only entries that were recorded at this instant or later
    #[arg(long)]
    recorded_from: Option<String>,

    /// Only entries that were recorded before this instant
    #[arg(long)]
    recorded_to: Option<String>,

    /// Only grants with this member in their metadata, such as order=A-17; requires a policy and a
    /// span of at most 92 days
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_member)]
    metadata: Option<(String, String)>,

    /// The entries as they were known at this position or instant
    #[arg(long)]
    as_of: Option<String>,
}

fn parse_member(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((format!("metadata.{name}"), value.to_owned()))
}

impl EntryFilters {
    pub fn parameters(
        &self,
        policy: Option<&String>,
        subject: Option<&String>,
    ) -> Vec<(String, String)> {
        let filters = [
            ("policy", policy),
            ("subject", subject),
            ("kind", self.kind.as_ref()),
            ("on", self.on.as_ref()),
            ("from", self.from.as_ref()),
            ("to", self.to.as_ref()),
            ("by", self.by.as_ref()),
            ("recorded_from", self.recorded_from.as_ref()),
            ("recorded_to", self.recorded_to.as_ref()),
            ("as_of", self.as_of.as_ref()),
        ];
        let filters = filters.into_iter();
        let filters = filters.filter_map(|(name, value)| Some((name.to_owned(), value?.clone())));
        filters.chain(self.metadata.clone()).collect()
    }
}

#[derive(Debug, Args)]
pub struct EntriesArgs {
    /// The policy's name [default: all policies]
    policy: Option<String>,

    /// The subject; without filters, all its entries are shown, newest first
    subject: Option<String>,

    /// Only entries of this subject, under all policies
    #[arg(long = "subject", value_name = "SUBJECT", conflicts_with = "policy")]
    of_subject: Option<String>,

    #[command(flatten)]
    filters: EntryFilters,

    /// Only entries above this position
    #[arg(long)]
    after: Option<u64>,

    /// Number of entries to show, at most 1000
    #[arg(long)]
    limit: Option<u32>,

    #[command(flatten)]
    server: ServerArgs,
}

/// Shows the entries of one account, or a list.
pub async fn entries(args: EntriesArgs) -> anyhow::Result<ExitCode> {
    let subject = args.subject.as_ref().or(args.of_subject.as_ref());
    let mut parameters = args.filters.parameters(args.policy.as_ref(), subject);
    let after = args.after.map(|after| ("after", after.to_string()));
    let limit = args.limit.map(|limit| ("limit", limit.to_string()));
    let page = [after, limit].into_iter().flatten();
    parameters.extend(page.map(|(name, value)| (name.to_owned(), value)));
    if let (Some(policy), Some(subject), 2) = (&args.policy, &args.subject, parameters.len()) {
        return statement(&args.server, policy, subject).await;
    }
    let list = || Ok(request(&args.server, Method::GET, "/v1/entries")?.query(&parameters));
    let page = first_found(list).await?;
    if args.server.json {
        println!("{:#}", page["items"]);
        return Ok(ExitCode::SUCCESS);
    }
    let items = page["items"].as_array().map_or(&[][..], Vec::as_slice);
    for item in items {
        let policy = text(&item["policy"]);
        let subject = text(&item["subject"]);
        let position = item["position"].to_string();
        print!("{position:>8} {policy:<16} {subject:<20} ");
        print_entry(item);
    }
    if let Some(last) = items.last().filter(|_| !page["next_cursor"].is_null()) {
        println!(
            "… more entries exist: continue with --after {}",
            last["position"]
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows an account's entries, newest first.
async fn statement(server: &ServerArgs, policy: &str, subject: &str) -> anyhow::Result<ExitCode> {
    let account = format!(
        "/v1/policies/{}/subjects/{}",
        segment(policy),
        segment(subject)
    );
    let entries = all_items(server, &format!("{account}/entries?limit=1000")).await?;
    if server.json {
        println!("{:#}", Value::Array(entries));
        return Ok(ExitCode::SUCCESS);
    }
    for entry in &entries {
        print!("{:>6} ", entry["number"].to_string());
        print_entry(entry);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints an entry, in the time zone that its policy had then.
fn print_entry(entry: &Value) {
    let local = LocalTime::new(&entry["time_zone"]);
    let limits = entry["limits"].as_array().into_iter().flatten();
    let used: Vec<String> = limits
        .map(|limit| {
            let used = &limit["used"];
            let max = &limit["max"];
            let per = text(&limit["per"]);
            format!("{used} of {max} per {per}")
        })
        .collect();
    println!(
        "{:<32} {:<12} {:>6}  {:<36} {}{}",
        local.show(&entry["at"]),
        text(&entry["kind"]),
        entry["units"].to_string(),
        text(&entry["id"]),
        used.join(", "),
        match entry["reason"].as_str() {
            Some(reason) => format!("  ({reason})"),
            None => String::new(),
        },
    );
}
