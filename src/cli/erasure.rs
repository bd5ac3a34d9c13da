//! `perdiem erase`: erases a subject.

use std::io::{IsTerminal, stderr, stdin};
use std::process::ExitCode;

use anyhow::{bail, ensure};
use clap::Args;
use reqwest::{Method, StatusCode};

use super::ServerArgs;
use super::client::{request, segment, send, show};
use api::erasures::{ErasureAnswer, ErasureRequest};
use api::instant::written;

#[derive(Debug, Args)]
pub struct EraseArgs {
    /// The subject to erase, under all policies
    subject: String,

    /// Reason of the erasure, without the subject's name
    #[arg(long)]
    reason: String,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// Erases a subject. On a terminal the command asks for confirmation. Elsewhere `--yes` is
/// required.
pub async fn erase(args: EraseArgs) -> anyhow::Result<ExitCode> {
    if !args.yes {
        ensure!(
            stdin().is_terminal() && stderr().is_terminal(),
            "an erasure cannot be undone: add --yes to erase without a terminal"
        );
        if !confirm(&args.subject)? {
            bail!("nothing was erased");
        }
    }
    let path = format!("/v1/subjects/{}/erasure", segment(&args.subject));
    let body = ErasureRequest {
        reason: args.reason,
    };
    let (status, answer) = send(request(&args.server, Method::POST, &path)?.json(&body)).await?;
    show(&args.server, &answer, |erasure: &ErasureAnswer| {
        let accounts = erasure.act.accounts;
        println!(
            "erased at {} under {accounts} {}: change {}",
            written(erasure.erased_at),
            if accounts == 1 { "policy" } else { "policies" },
            erasure.revision,
        );
        if status == StatusCode::ACCEPTED {
            println!(
                "some texts are not deleted yet: the erasure continues by itself; run the command again later to see that it is done"
            );
        }
    })
}

fn confirm(subject: &str) -> anyhow::Result<bool> {
    eprint!("Erase {subject:?} under all policies? This cannot be undone. [y/N] ");
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
