//! `perdiem entries`: the entries of one account, or of all accounts.

use std::process::ExitCode;

use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::ServerArgs;
use super::client::{all_items, first_found, request, segment, show, show_all};
use super::local::LocalTime;
use api::entries::{EntryBody, HistoryItem};

/// Filters for entries. They combine.
#[derive(Debug, Args)]
pub struct EntryFilters {
    /// Only entries of this kind, such as grant or adjustment
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
    let has_more = page.next_cursor.is_some();
    let items = Value::Array(page.items);
    show(&args.server, &items, |items: &Vec<HistoryItem>| {
        for item in items {
            let policy = &item.policy;
            let subject = item.subject.as_deref().unwrap_or_default();
            print!("{:>8} {policy:<16} {subject:<20} ", item.position);
            print_entry(&item.entry);
        }
        if let Some(last) = items.last().filter(|_| has_more) {
            println!(
                "… more entries exist: continue with --after {}",
                last.position
            );
        }
    })
}

/// Shows an account's entries, newest first.
async fn statement(server: &ServerArgs, policy: &str, subject: &str) -> anyhow::Result<ExitCode> {
    let account = format!(
        "/v1/policies/{}/subjects/{}",
        segment(policy),
        segment(subject)
    );
    let entries = all_items(server, &format!("{account}/entries?limit=1000")).await?;
    show_all(server, entries, |entry: &EntryBody| {
        print!("{:>6} ", entry.number);
        print_entry(entry);
    })
}

/// Prints an entry, in the time zone that its policy had then.
fn print_entry(entry: &EntryBody) {
    let local = LocalTime::new(entry.time_zone.as_deref().unwrap_or_default());
    let limits = entry.limits.iter();
    let used: Vec<String> = limits
        .map(|limit| format!("{} of {} per {}", limit.used, limit.max, limit.per))
        .collect();
    let reason = entry.reason.as_ref();
    println!(
        "{:<32} {:<12} {:>6}  {:<36} {}{}",
        local.show(entry.at),
        entry.kind,
        entry.units,
        entry.id.to_string(),
        used.join(", "),
        reason.map_or_else(String::new, |reason| format!("  ({reason})")),
    );
}
