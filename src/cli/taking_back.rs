//! `perdiem reverse --policy`: takes back all grants that filters name, such as those of a campaign.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use indicatif::ProgressBar;
use reqwest::Method;
use serde::Serialize;
use serde_json::Value;

use super::ServerArgs;
use super::client::{all_found, call, read, request};
use super::history::parse_member;
use super::local::{LocalTime, present};
use super::refusal::Refused;
use super::times::{GivenDay, GivenTime};
use api::grants::{CorrectionAnswer, GrantBody, ReversalRequest};

/// Which grants to reverse, where no grant is named.
#[derive(Debug, Args)]
pub struct GrantFilters {
    /// Reverse all grants of this policy that the other filters let through
    #[arg(long)]
    policy: Option<String>,

    /// Only grants of this subject
    #[arg(long, requires = "policy")]
    subject: Option<String>,

    /// Only grants that count on this local day of the policy, such as today or 2026-12-01
    #[arg(
        long,
        requires = "policy",
        value_name = "DAY",
        allow_hyphen_values = true
    )]
    on: Option<GivenDay>,

    /// Only grants that count at this time or later
    #[arg(
        long,
        requires = "policy",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    from: Option<GivenTime>,

    /// Only grants that count before this time
    #[arg(
        long,
        requires = "policy",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    until: Option<GivenTime>,

    /// Only grants with this member of their metadata, such as campaign=winter; requires a day, or a span of at
    /// most 92 days
    #[arg(long, requires = "policy", value_name = "NAME=VALUE", value_parser = parse_member)]
    metadata: Option<(String, String)>,

    /// Only show how many grants and units would be given back
    #[arg(long, conflicts_with = "grant")]
    pub dry_run: bool,
}

/// What was given back.
#[derive(Debug, Default, Serialize)]
struct TakenBack {
    /// The grants that were to be reversed, and their units.
    grants: u64,
    units: u64,
    reversed_grants: u64,
    reversed_units: u64,
}

impl GrantFilters {
    pub fn policy(&self) -> Option<&String> {
        self.policy.as_ref()
    }

    /// The query of the list of grants.
    async fn query(
        &self,
        server: &ServerArgs,
        policy: &str,
    ) -> anyhow::Result<Vec<(String, String)>> {
        let local = LocalTime::of_policy(server, policy).await?;
        let now = local.at(present());
        let day = self.on.map(|day| now.date(day)).transpose()?;
        let fields = [
            ("policy", Some(policy.to_owned())),
            ("subject", self.subject.clone()),
            ("on", day.map(|day| day.to_string())),
            ("from", now.bound(self.from, true)?),
            ("to", now.bound(self.until, true)?),
            ("limit", Some("1000".to_owned())),
        ];
        let fields = fields.into_iter();
        let given = fields.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Ok(given.chain(self.metadata.clone()).collect())
    }
}

/// Reverses the grants that the filters name. Another run goes on where this one stopped, because a grant
/// is reversed once.
pub async fn reverse_all(
    server: &ServerArgs,
    filters: &GrantFilters,
    policy: &str,
    reason: &str,
) -> anyhow::Result<ExitCode> {
    // 1. Find the grants of which units are left.
    let query = filters.query(server, policy).await?;
    let list = || Ok(request(server, Method::GET, "/v1/grants")?.query(&query));
    let found = all_found(list).await?;
    let found = found
        .iter()
        .map(read)
        .collect::<anyhow::Result<Vec<GrantBody>>>()?;
    let grants: Vec<GrantBody> = found.into_iter().filter(GrantBody::is_left).collect();
    let mut taken = TakenBack {
        grants: grants.len() as u64,
        units: grants.iter().map(units_left).sum(),
        ..TakenBack::default()
    };
    // 2. Say what is about to happen.
    if !server.json {
        println!(
            "{} grants of {policy}, with {} units",
            taken.grants, taken.units
        );
    }
    // 3. Reverse them one after the other. One that has ended meanwhile is left.
    if !filters.dry_run {
        let bar = ProgressBar::new(taken.grants);
        for grant in &grants {
            if let Some(units) = reverse(server, grant, reason).await.with_context(|| {
                let done = taken.reversed_grants;
                format!("stopped after {done} grants: run the command again, and it goes on")
            })? {
                taken.reversed_grants += 1;
                taken.reversed_units += units;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
    }
    // 4. Say what happened.
    match (server.json, filters.dry_run) {
        (true, _) => println!("{:#}", serde_json::to_value(&taken)?),
        (false, true) => println!("dry run: nothing was changed"),
        (false, false) => {
            let TakenBack {
                reversed_grants,
                reversed_units,
                ..
            } = taken;
            println!("reversed {reversed_grants} grants, and gave back {reversed_units} units");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The units that a reversal would give back, if any are left.
pub fn units_left(grant: &GrantBody) -> u64 {
    grant.units - grant.returned_units
}

/// Whether a grant was not reversed because none of its units was left.
pub fn had_ended(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<Refused>();
    refused.is_some_and(|refused| ["grant-reversed", "hold-lapsed"].contains(&refused.code()))
}

/// Reverses what is left of a grant. Returns its units, or `None` if it had ended.
async fn reverse(
    server: &ServerArgs,
    grant: &GrantBody,
    reason: &str,
) -> anyhow::Result<Option<u64>> {
    let path = format!("/v1/grants/{}/reversal", grant.id);
    let body = ReversalRequest {
        reason: reason.to_owned(),
        units: None,
    };
    let answer: anyhow::Result<Value> =
        call(request(server, Method::POST, &path)?.json(&body)).await;
    match answer {
        Ok(answer) => {
            let CorrectionAnswer { grant: after, .. } = read(&answer)?;
            Ok(Some(after.units - grant.returned_units))
        }
        Err(error) if had_ended(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
