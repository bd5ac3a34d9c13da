//! The flags of every change: on which condition it is made, and whether it is only tried.

use clap::Args;
use reqwest::RequestBuilder;
use reqwest::header::IF_MATCH;

use super::ServerArgs;

#[derive(Debug, Args)]
pub struct ConditionArgs {
    /// Change it only if this is its newest version
    #[arg(long)]
    pub if_version: Option<u32>,

    /// Only show what would change
    #[arg(long)]
    pub dry_run: bool,
}

impl ConditionArgs {
    /// The request of the change, on these conditions.
    pub fn on(&self, request: RequestBuilder) -> RequestBuilder {
        let request = match self.if_version {
            Some(version) => request.header(IF_MATCH, format!("\"{version}\"")),
            None => request,
        };
        if self.dry_run {
            request.query(&[("dry_run", "true")])
        } else {
            request
        }
    }

    /// Says after the result of a dry run what became of it.
    pub fn tell(&self, server: &ServerArgs) {
        if self.dry_run && !server.json {
            println!("dry run: nothing was changed");
        }
    }
}
