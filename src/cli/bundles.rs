//! The commands about bundles: the grants of an atomic batch.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::ServerArgs;
use super::client::{call, request, segment, send, show};
use super::corrections::already;
use super::local::LocalTime;
use api::bundles::{BundleBody, BundleReversalRequest};
use api::grants::GrantBody;

#[derive(Debug, Subcommand)]
pub enum BundleCommand {
    /// Show the grants of a bundle
    Show(BundleArgs),
    /// Reverse all grants of a bundle: give their units back
    Reverse(BundleReversalArgs),
    /// Confirm all holds of a bundle before one of them lapses
    Confirm(BundleArgs),
}

#[derive(Debug, Args)]
pub struct BundleArgs {
    /// The bundle's id
    bundle: String,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct BundleReversalArgs {
    #[command(flatten)]
    of: BundleArgs,

    /// Reason of the reversal
    #[arg(long)]
    reason: String,
}

pub async fn run(command: BundleCommand) -> anyhow::Result<ExitCode> {
    match command {
        BundleCommand::Show(BundleArgs { bundle, server }) => {
            let path = format!("/v1/bundles/{}", segment(&bundle));
            let answer = call(request(&server, Method::GET, &path)?).await?;
            show(&server, &answer, |bundle: &BundleBody| {
                print_grants(&server, bundle)
            })
        }
        BundleCommand::Reverse(BundleReversalArgs { of, reason }) => {
            let BundleArgs { bundle, server } = of;
            let path = format!("/v1/bundles/{}/reversal", segment(&bundle));
            let body = BundleReversalRequest { reason };
            let request = request(&server, Method::POST, &path)?.json(&body);
            show_corrected(&server, &send(request).await?, "reversed")
        }
        BundleCommand::Confirm(BundleArgs { bundle, server }) => {
            let path = format!("/v1/bundles/{}/confirmation", segment(&bundle));
            let request = request(&server, Method::POST, &path)?;
            show_corrected(&server, &send(request).await?, "confirmed")
        }
    }
}

fn show_corrected(
    server: &ServerArgs,
    (status, answer): &(StatusCode, Value),
    done: &str,
) -> anyhow::Result<ExitCode> {
    show(server, answer, |bundle: &BundleBody| {
        println!("{}{done} {}", already(*status), bundle.id);
        print_grants(server, bundle);
    })
}

/// The grants may be of several policies, so their times are in UTC.
fn print_grants(server: &ServerArgs, bundle: &BundleBody) {
    let local = LocalTime::new(server, "UTC");
    for grant in &bundle.grants {
        let GrantBody {
            id,
            policy,
            subject,
            units,
            state,
            granted_at,
            ..
        } = grant;
        let at = local.show(*granted_at);
        let subject = subject.as_deref().unwrap_or_default();
        println!("{at:<32} {policy:<16} {subject:<20} {units:>6} {state:<9} {id}");
    }
}
