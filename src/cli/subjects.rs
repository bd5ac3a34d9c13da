//! Subjects: one under all policies, those that policies know, and those near a limit.

use std::process::ExitCode;

use clap::Args;
use reqwest::Method;

use super::ServerArgs;
use super::claims::print_usage;
use super::client::{all_found, call, first_found, read, request, segment, show_all};
use super::limits::describe_usages;
use super::local::LocalTime;
use super::scope::PolicyScope;
use api::claims::UsageBody;
use api::subjects::{NearItem, SubjectAnswer, SubjectItem};

#[derive(Debug, Args)]
pub struct SubjectCommandArgs {
    /// The subject
    subject: String,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn show(args: SubjectCommandArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/subjects/{}", segment(&args.subject));
    let mut found: Vec<UsageBody> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let after_last = after.as_ref().map(|after| ("after", after));
        let page = request(&args.server, Method::GET, &path)?.query(after_last.as_slice());
        let page: SubjectAnswer = read(&call(page).await?)?;
        found.extend(page.items);
        after = page.next_after;
        if after.is_none() {
            break;
        }
    }
    if args.server.json {
        println!("{:#}", serde_json::to_value(found)?);
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() {
        println!(
            "nothing is known about {} under the policies that this key may see, without archived ones",
            args.subject
        );
    }
    for usage in &found {
        println!("{}:", usage.policy);
        print_usage(&args.server, usage);
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
pub struct SubjectsArgs {
    #[command(flatten)]
    scope: PolicyScope,

    /// Only subjects that begin with this text
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    prefix: Option<String>,

    /// Number of subjects to show, at most 1000
    #[arg(long, default_value_t = 100)]
    limit: u32,

    #[command(flatten)]
    server: ServerArgs,
}

/// Lists subjects that policies know.
pub async fn list(args: SubjectsArgs) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    let filters = [
        ("policy", args.scope.policy()),
        ("prefix", args.prefix.as_ref()),
    ];
    let filters = filters.map(|(name, text)| text.map(|text| (name, text.clone())));
    let mut query: Vec<_> = filters.into_iter().flatten().collect();
    query.push(("limit", args.limit.to_string()));
    let list = || Ok(request(server, Method::GET, "/v1/subjects")?.query(&query));
    let page = first_found(list).await?;
    if page.items.is_empty() && !server.json {
        println!("no policy that this key may see knows such a subject, without archived ones");
    }
    let shown = show_all(server, page.items, |known: &SubjectItem| {
        println!("{:<30} {}", known.subject, known.policies.join(", "));
    });
    if page.next_cursor.is_some() && !server.json {
        println!(
            "… more subjects exist: write more of the name after --prefix, or a higher --limit"
        );
    }
    shown
}

#[derive(Debug, Args)]
pub struct NearArgs {
    /// The policy's name
    policy: String,

    /// How much of a limit is used at least, such as 80% or 0.8
    #[arg(long, value_name = "PART", default_value = "80%")]
    at_least: String,

    /// Only this limit of the policy, such as day [default: any of its limits]
    #[arg(long)]
    per: Option<String>,

    #[command(flatten)]
    server: ServerArgs,
}

/// Lists the subjects that are at or near a limit.
pub async fn near(args: NearArgs) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    let at_least = part(&args.at_least).unwrap_or_else(|| args.at_least.clone());
    let mut query = vec![("at_least", at_least)];
    query.extend(args.per.clone().map(|per| ("per", per)));
    let path = format!("/v1/policies/{}/near", segment(&args.policy));
    let list = || Ok(request(server, Method::GET, &path)?.query(&query));
    let found = all_found(list).await?;
    let local = LocalTime::of_policy(server, &args.policy).await?;
    if found.is_empty() && !server.json {
        println!(
            "no subject has used {} of a limit of {}",
            args.at_least, args.policy
        );
    }
    show_all(server, found, |near: &NearItem| {
        let limits = describe_usages(&near.limits, &local);
        println!("{:<30} {limits}", near.subject);
    })
}

/// A percentage as a part of 1: `80%` is `0.80`.
fn part(text: &str) -> Option<String> {
    let (whole, decimals) = match text.strip_suffix('%')?.split_once('.') {
        Some((whole, decimals)) => (whole, decimals),
        None => (text.strip_suffix('%')?, ""),
    };
    let whole: u32 = whole.parse().ok()?;
    Some(format!("{}.{:02}{decimals}", whole / 100, whole % 100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_parts() {
        let parts = ["80%", "99.5%", "100%", "8%", "120%"].map(part);
        let expected = ["0.80", "0.995", "1.00", "0.08", "1.20"].map(|part| Some(part.to_owned()));
        assert_eq!(parts, expected);
        assert_eq!(["80", "x%", "%", "-1%"].map(part), [const { None }; 4]);
    }
}
