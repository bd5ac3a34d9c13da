//! A subject under all policies.

use std::process::ExitCode;

use clap::Args;
use reqwest::Method;

use super::ServerArgs;
use super::claims::print_usage;
use super::client::{call, read, request, segment};
use api::claims::UsageBody;
use api::subjects::SubjectAnswer;

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
