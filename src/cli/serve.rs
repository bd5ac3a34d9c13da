//! The commands that run the service: `serve`, and `migrate` before it.

use std::env;
use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use super::{seals, written};
use crate::config::{DatabaseArgs, MigrateArgs, ServeArgs};
use crate::telemetry;
use host::clock::Clock;
use http::{Application, FirstKey};
use ledger::{Ledger, LedgerOptions, ServiceRoleError};

pub async fn serve(mut args: ServeArgs) -> anyhow::Result<ExitCode> {
    telemetry::start(&args.log)?;
    // The folder of a sandbox goes when this ends.
    let folder = args.sandbox.then(tempfile::tempdir).transpose()?;
    if let Some(folder) = &folder {
        args.database = DatabaseArgs::in_folder(folder.path());
    }
    for unknown in written::unknown_variables() {
        tracing::warn!("{unknown}");
    }
    args.check_read_only()?;
    let _lock = Ledger::lock(args.database.url())?;
    let url = args.database.url();
    let seal_key = seals::key_to_serve(&args)?;
    let had_key = seal_key.is_some();
    args.check(had_key || seals::key_file(url)?.is_some())?;
    // Before the long steps: a supervisor can stop the process during them.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut engine = args.engine_options(seal_key);
    engine.make_seal_key = Some(seals::make_key_beside);
    let key_folder = first_key_folder().filter(|_| !args.sandbox);
    let application = Application::build(args.serve_options(key_folder)?, engine).await?;
    if !args.read_only && !args.sandbox {
        seals::tell_of_seals(url, had_key)?;
    }
    welcome(&application);
    if args.sandbox {
        println!("sandbox: its ledger goes when it ends; move its clock with");
        println!("  perdiem sandbox clock +1d");
    }
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: finishing the requests in progress");
    };
    application.run(stop).await?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Where to write the first key: nowhere if a person reads the standard output at a terminal. A log
/// must not have the key: many people can read logs, and logs are kept.
fn first_key_folder() -> Option<PathBuf> {
    if stdout().is_terminal() {
        None
    } else {
        Some(env::current_dir().unwrap_or_default())
    }
}

/// Prints where the server listens and what to try. A new key is shown here and nowhere else.
fn welcome(application: &Application) {
    let url = application.url();
    println!("perdiem listens on {url} (documentation: {url}/docs)");
    match application.first_key() {
        Some(FirstKey::Shown(secret)) => {
            println!("admin key, shown this once: {secret}");
            println!(
                "try, in another terminal, and paste the key when the first line waits for it:"
            );
            // The shell's history does not keep what `read` reads.
            println!("  read -rs PERDIEM_KEY && export PERDIEM_KEY");
            try_policy(&url);
        }
        Some(FirstKey::InFile(path)) => {
            println!(
                "admin key, in a file that only its owner can read: {}",
                path.display()
            );
            println!("try, where the file is, and keep the key elsewhere, and remove the file:");
            println!("  export PERDIEM_KEY=$(cat '{}')", path.display());
            try_policy(&url);
        }
        None => {
            println!("try:");
            println!("  curl {url}/readyz");
        }
    }
}

fn try_policy(url: &str) {
    println!(
        "  curl -X PUT {url}/v1/policies/benefit -H \"Authorization: Bearer $PERDIEM_KEY\" \
         -d '{{\"time_zone\": \"GMT+8\", \"limits\": [{{\"max\": 3, \"per\": \"day\"}}]}}'"
    );
}

pub async fn migrate(args: MigrateArgs) -> anyhow::Result<ExitCode> {
    let options = LedgerOptions {
        url: args.database.url().to_owned(),
        claim_timeout: std::time::Duration::from_secs(30),
        query_timeout: std::time::Duration::from_secs(30),
    };
    let _lock = Ledger::lock(&options.url)?;
    let ledger = Ledger::open(&options, Clock::system().now()).await?;
    println!("the ledger on {} is up to date", ledger.store_name());
    let set_up = ledger.set_up_role(&args.service_role).await;
    ledger.close().await;
    match set_up {
        Ok(Some(role)) => println!("the role {role} has the rights that the service needs"),
        Ok(None) => {}
        // Without the role, the owner of the tables can still run the service.
        Err(missing @ ServiceRoleError::Missing { .. }) => eprintln!("perdiem: {missing}"),
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}
