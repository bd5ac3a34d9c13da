//! `perdiem demo`: a sandbox with two weeks of claims, to look around in.

mod cast;
mod changes;
mod crowd;
mod dice;
mod scene;
mod telling;

use std::process::ExitCode;

use anyhow::Context;
use chrono::{DateTime, Datelike, Days, NaiveTime, Utc};
use clap::Args;
use tokio::time::Instant;

use super::local::{LocalTime, present};
use super::serve::StartedServer;
use super::times::GivenTime;
use crate::config::ServeArgs;
use crate::setting::WrongSetting;
use crate::telemetry;
use api::instant::written;
use cast::Actor;
use telling::{Teller, Told};

/// How many whole days the story has before the day on which it ends.
const DAYS: u64 = 14;
/// The years in which a story can end.
const YEARS: std::ops::RangeInclusive<i32> = 2000..=2099;

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Address and port to listen on; port 0 takes a free port
    #[arg(long, env = "PERDIEM_BIND", default_value = "127.0.0.1:8080")]
    bind: String,

    /// Where the clock is when the story has been told; a date is one of UTC
    #[arg(
        long,
        value_name = "TIME",
        default_value = "now",
        allow_hyphen_values = true
    )]
    until: GivenTime,

    /// The same number tells the same story: who claims what and when. Ids and secrets differ
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

impl DemoArgs {
    /// When the story ends.
    fn until(&self) -> anyhow::Result<DateTime<Utc>> {
        let until = LocalTime::utc().at(present()).instant(self.until)?;
        if YEARS.contains(&until.year()) {
            return Ok(until);
        }
        let reason = format!(
            "is {}: the story can end in the years {} to {}",
            written(until),
            YEARS.start(),
            YEARS.end()
        );
        Err(WrongSetting::new("--until", reason).into())
    }
}

pub async fn demo(args: DemoArgs) -> anyhow::Result<ExitCode> {
    let until = args.until()?;
    let begins_at = (until.date_naive() - Days::new(DAYS)).and_time(NaiveTime::MIN);
    let begins_at = begins_at.and_utc();
    let mut scenes = crowd::claims(args.seed, begins_at, until)?;
    scenes.extend(changes::changes(begins_at, until));
    // Nothing but the story writes, so that the same seed gives the same ledger: no reconciliation of its own.
    let mut serve = ServeArgs::of_flags(&[
        "--sandbox",
        "--bind",
        &args.bind,
        "--console-name",
        "demo",
        "--reconcile-every-seconds",
        "0",
        // An erasure makes the service forget what it knows of the ledger, with a warning.
        "--log",
        "error",
    ])?;
    serve.sandbox_begins_at = Some(begins_at);
    telemetry::start(&serve.log)?;
    let server = StartedServer::start(serve).await?;
    let admin_key = server.shown_key().context("the sandbox has no key")?;
    let mut teller = Teller::new(server.url(), admin_key.to_owned());
    let address = server.address_line();
    let url = server.url();
    println!("telling the claims of two weeks until {}", written(until));
    let story = async move {
        let began = Instant::now();
        let told = teller.tell(scenes, until).await?;
        println!("{address}");
        println!(
            "told in {:.1} s: {}",
            began.elapsed().as_secs_f64(),
            sum(told)
        );
        println!("open {url}/console and sign in with one of these keys:");
        for (role, actor) in [
            ("admin", Actor::Mei),
            ("support", Actor::Helpdesk),
            ("audit", Actor::Auditor),
            ("claim", Actor::Shop),
        ] {
            println!("  {role:<8} {}", teller.secret(actor));
        }
        println!("try, in another terminal:");
        println!(
            "  export PERDIEM_URL={url} PERDIEM_KEY={}",
            teller.secret(Actor::Mei)
        );
        println!("  perdiem subject member-42");
        println!("  perdiem claim coupon member-7");
        println!("  perdiem sandbox clock +1d");
        println!("a demo: its ledger goes when it ends (Ctrl-C)");
        Ok(())
    };
    server.run(story).await
}

fn sum(told: Told) -> String {
    let Told {
        granted,
        denied,
        given_back,
    } = told;
    format!("{granted} claims granted, {denied} denied, {given_back} given back")
}
