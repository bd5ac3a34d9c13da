//! `perdiem doctor`: whether perdiem can start with these settings and keep its promises. It changes nothing.

mod database;
mod findings;
mod ledger_state;
mod machine;
mod redis;
mod server;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::seals;
use crate::config::ServeArgs;
use crate::setting::WrongSetting;
use database::look_at_database;
use engine::{AdminKey, EngineOptions};
use findings::Diagnosis;
use ledger_state::look_at_ledger;
use machine::{look_at_backup, look_at_secrets, look_at_zone_rules};
use redis::look_at_redis;

/// The settings of `serve`, and what the doctor alone is told.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    serve: ServeArgs,

    /// The newest backup of the ledger: a file that is older than --backup-hours is reported
    #[arg(long, value_name = "FILE")]
    backup: Option<PathBuf>,

    /// Oldest age of the backup, in hours
    #[arg(long, value_name = "HOURS", default_value_t = 26, requires = "backup")]
    backup_hours: u32,

    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

/// Looks at everything. The exit code is 0 if all is well, 1 if somebody has to look, and 2 if perdiem does not
/// start, decides nothing or can lose grants.
pub async fn doctor(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut found = Diagnosis::new();
    let serve = &args.serve;
    if serve.sandbox {
        let reason = "makes a ledger that goes with its server: leave it out";
        return Err(WrongSetting::new("PERDIEM_SANDBOX", reason).into());
    }
    // 1. The settings alone.
    let options = look_at_settings(&mut found, serve);
    look_at_secrets(&mut found);
    // 2. The database, and what a ledger in it says.
    let may_open = look_at_database(&mut found, serve, &options).await;
    let counts = if may_open {
        look_at_ledger(&mut found, serve, &options).await
    } else {
        None
    };
    // 3. Redis. Whether it must keep what it has depends on the policies.
    match &options.redis_url {
        None => found.ok("Redis", "not used: the ledger decides alone"),
        Some(url) => look_at_redis(&mut found, url, &options, counts).await,
    }
    // 4. The machine.
    look_at_zone_rules(&mut found, &options.clock);
    let now = options.clock.now();
    look_at_backup(&mut found, args.backup.as_deref(), args.backup_hours, now);
    found.tell(args.json)
}

/// Checks the settings that need each other, and the key for seals.
fn look_at_settings(found: &mut Diagnosis, serve: &ServeArgs) -> EngineOptions {
    let mut wrong = Vec::new();
    wrong.extend(serve.check_read_only().err().map(|it| it.to_string()));
    match serve.serve_options(None) {
        Ok(options) => {
            let tls = options.tls.and_then(|files| files.check().err());
            wrong.extend(tls.map(|it| it.to_string()));
        }
        Err(error) => wrong.push(error.to_string()),
    }
    let seal_key = match seals::key_to_serve(serve) {
        Ok(key) => key,
        Err(error) => {
            wrong.push(format!("{error:#}"));
            None
        }
    };
    let makes_key = matches!(seals::key_file(serve.database.url()), Ok(Some(_)));
    let checked = serve.check(seal_key.is_some() || makes_key);
    wrong.extend(checked.err().map(|it| it.to_string()));
    let options = serve.engine_options(seal_key);
    let admin_key = options.admin_key.as_deref().map(AdminKey::new);
    let admin_key = admin_key.and_then(Result::err);
    wrong.extend(admin_key.map(|it| it.to_string()));
    if wrong.is_empty() {
        found.ok("settings", "they fit together");
    }
    for text in wrong {
        found.wrong("settings", text);
    }
    options
}
