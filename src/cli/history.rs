//! `perdiem entries`: the entries of one account, or of all accounts.

use std::process::ExitCode;

use chrono::{DateTime, Utc};
use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::ServerArgs;
use super::client::{account_path, all_items, first_found, request, show, show_all};
use super::local::{LocalTime, present};
use super::scope::ScopeArgs;
use super::times::{GivenDay, GivenPlace, GivenTime};
use api::calendars::CalendarAnswer;
use api::entries::{EntryBody, HistoryItem};
use api::limits::in_percent;

/// Filters for entries. They combine.
#[derive(Debug, Args)]
pub struct EntryFilters {
    #[command(flatten)]
    pub scope: ScopeArgs,

    /// Only entries of this kind, such as grant or adjustment
    #[arg(long)]
    kind: Option<String>,

    /// Only entries that brought a limit to this level of use, in percent, such as 80
    #[arg(long, value_name = "PERCENT")]
    crossed: Option<u8>,

    /// Only entries that count on this local day of the policy
    #[arg(long, value_name = "DAY")]
    on: Option<GivenDay>,

    /// Only entries that count at this time or later
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<GivenTime>,

    /// Only entries that count before this time
    #[arg(long, alias = "to", value_name = "TIME", allow_hyphen_values = true)]
    until: Option<GivenTime>,

    /// Only entries that this key claimed or corrected: the key's id, or PERDIEM_ADMIN_KEY
    #[arg(long, value_name = "KEY")]
    by: Option<String>,

    /// Only entries that were recorded at this time or later
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    recorded_from: Option<GivenTime>,

    /// Only entries that were recorded before this time
    #[arg(
        long,
        alias = "recorded-to",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    recorded_until: Option<GivenTime>,

    /// Only grants with this member in their metadata, such as order=A-17; requires a policy and a
    /// span of at most 92 days
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_member)]
    metadata: Option<(String, String)>,

    /// The entries as they were known at this position or time
    #[arg(long, value_name = "POSITION|TIME", allow_hyphen_values = true)]
    as_of: Option<GivenPlace>,
}

/// A member of metadata, such as `order=A-17`, as a filter.
pub fn parse_member(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((format!("metadata.{name}"), value.to_owned()))
}

impl EntryFilters {
    /// The parameters of the request. Times are read as they were meant at an instant.
    pub async fn parameters(
        &self,
        server: &ServerArgs,
        now: DateTime<Utc>,
    ) -> anyhow::Result<Vec<(String, String)>> {
        let policy = self.scope.policy();
        let as_of = self.as_of.and_then(GivenPlace::time);
        let on = self.on.map(GivenTime::Day);
        let [from, until] = [self.from, self.until];
        let [recorded_from, recorded_until] = [self.recorded_from, self.recorded_until];
        let times = [on, from, until, recorded_from, recorded_until, as_of];
        let local = LocalTime::to_read(server, policy, &times).await?.at(now);
        let bound = |time| local.bound(time, policy.is_some());
        let on = self.on.map(|day| local.date(day)).transpose()?;
        let filters = [
            ("policy", policy.cloned()),
            ("subject", self.scope.subject().cloned()),
            ("kind", self.kind.clone()),
            ("crossed", self.crossed.map(|level| level.to_string())),
            ("on", on.map(|date| date.to_string())),
            ("from", bound(from)?),
            ("to", bound(until)?),
            ("by", self.by.clone()),
            ("recorded_from", bound(recorded_from)?),
            ("recorded_to", bound(recorded_until)?),
            ("as_of", local.place(self.as_of)?),
        ];
        let filters = filters.into_iter();
        let filters = filters.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Ok(filters.chain(self.metadata.clone()).collect())
    }
}

#[derive(Debug, Args)]
pub struct EntriesArgs {
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
    let server = &args.server;
    let mut parameters = args.filters.parameters(server, present()).await?;
    let after = args.after.map(|after| ("after", after.to_string()));
    let limit = args.limit.map(|limit| ("limit", limit.to_string()));
    let page = [after, limit].into_iter().flatten();
    parameters.extend(page.map(|(name, value)| (name.to_owned(), value)));
    let scope = &args.filters.scope;
    if let (Some(policy), Some(subject), 2) = (scope.policy(), scope.subject(), parameters.len()) {
        return statement(server, policy, subject).await;
    }
    let list = || Ok(request(server, Method::GET, "/v1/entries")?.query(&parameters));
    let page = first_found(list).await?;
    let has_more = page.next_cursor.is_some();
    let items = Value::Array(page.items);
    show(server, &items, |items: &Vec<HistoryItem>| {
        for item in items {
            let policy = &item.policy;
            let subject = item.subject.as_deref().unwrap_or_default();
            print!("{:>8} {policy:<16} {subject:<20} ", item.position);
            print_entry(server, &item.entry);
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
    let account = account_path(policy, subject);
    let entries = all_items(server, &format!("{account}/entries?limit=1000")).await?;
    show_all(server, entries, |entry: &EntryBody| {
        print!("{:>6} ", entry.number);
        print_entry(server, entry);
    })
}

/// The kind of an entry, with the limit that a reset names: `reset day`.
pub fn kind_of(kind: &str, per: Option<&String>) -> String {
    per.map_or_else(|| kind.to_owned(), |per| format!("{kind} {per}"))
}

/// Prints an entry, in the time zone that its policy had then.
fn print_entry(server: &ServerArgs, entry: &EntryBody) {
    let local = LocalTime::new(server, entry.time_zone.as_deref().unwrap_or_default());
    let limits = entry.limits.iter();
    let used: Vec<String> = limits
        .map(|limit| format!("{} of {} per {}", limit.used, limit.max, limit.per))
        .collect();
    let reason = entry.reason.as_ref();
    let kind = kind_of(entry.told_kind(), entry.per.as_ref());
    let crossed = in_percent(&entry.crossed);
    let moved = entry.calendar.as_ref().filter(|_| kind == "calendar");
    let moved = moved.and_then(CalendarAnswer::in_words);
    let top_up = entry.top_up.as_ref().map(|top_up| match top_up.until {
        Some(until) => format!("{} until {}", top_up.units, local.show(until)),
        None => format!("{} of {}", top_up.units, top_up.id),
    });
    let topped_up = Some(entry.topped_up_units).filter(|units| *units > 0);
    let topped_up = topped_up.map(|units| format!("{units} of top-ups"));
    println!(
        "{:<32} {:<12} {:>6}  {:<36} {}{}{}{}{}",
        local.show(entry.at),
        kind,
        entry.units,
        entry.id.to_string(),
        used.join(", "),
        crossed.map_or_else(String::new, |levels| format!("  (reached {levels})")),
        moved.map_or_else(String::new, |calendar| format!("  ({calendar})")),
        top_up
            .or(topped_up)
            .map_or_else(String::new, |top_up| format!("  ({top_up})")),
        reason.map_or_else(String::new, |reason| format!("  ({reason})")),
    );
}
