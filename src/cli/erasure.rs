//! `perdiem erase`: erases a subject.

use std::io::{IsTerminal, stderr, stdin};
use std::process::ExitCode;

use anyhow::{bail, ensure};
use clap::Args;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::ServerArgs;
use super::client::{describe, request, segment, send, text};

#[derive(Debug, Args)]
pub struct EraseArgs {
    /// Whom to erase, under all policies
    subject: String,

    /// Why, without the subject's name
    #[arg(long)]
    reason: String,

    /// Do not ask first
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// Erases a subject. It asks first on a terminal. Elsewhere `--yes` is required.
pub async fn erase(args: EraseArgs) -> anyhow::Result<ExitCode> {
    if !args.yes {
        ensure!(
            stdin().is_terminal() && stderr().is_terminal(),
            "an erasure cannot be taken back: add --yes where nobody can be asked"
        );
        if !confirm(&args.subject)? {
            bail!("nothing was erased");
        }
    }
    let path = format!("/v1/subjects/{}/erasure", segment(&args.subject));
    let body = json!({ "reason": args.reason });
    let (status, answer) = send(request(&args.server, Method::POST, &path)?.json(&body)).await?;
    if !status.is_success() {
        bail!(describe(&answer));
    }
    if args.server.json {
        println!("{answer:#}");
        return Ok(ExitCode::SUCCESS);
    }
    let accounts = answer["accounts"].as_u64().unwrap_or_default();
    println!(
        "erased at {} under {accounts} {}: change {}",
        text(&answer["erased_at"]),
        if accounts == 1 { "policy" } else { "policies" },
        answer["revision"],
    );
    if status == StatusCode::ACCEPTED {
        println!(
            "some texts are still there: the erasure goes on by itself; run the command again to see its end"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn confirm(subject: &str) -> anyhow::Result<bool> {
    eprint!("Erase {subject:?} under all policies? This cannot be taken back. [y/N] ");
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
