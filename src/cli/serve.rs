//! The commands that run the service: `serve`, and `migrate` before it.

use std::env;
use std::fs::File;
use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use tempfile::TempDir;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{seals, written};
use crate::config::{DatabaseArgs, MigrateArgs, ServeArgs};
use crate::telemetry;
use host::clock::Clock;
use http::{Application, FirstKey};
use ledger::{Ledger, LedgerOptions, ServiceRoleError};

pub async fn serve(args: ServeArgs) -> anyhow::Result<ExitCode> {
    telemetry::start(&args.log)?;
    let is_sandbox = args.sandbox;
    let server = StartedServer::start(args).await?;
    server.welcome();
    if is_sandbox {
        println!("sandbox: its ledger goes when it ends; move its clock with");
        println!("  perdiem sandbox clock +1d");
    }
    server.run(std::future::ready(Ok(()))).await
}

/// A server that listens, with what must stay until it ends.
pub struct StartedServer {
    application: Application,
    has_console: bool,
    terminate: Signal,
    interrupt: Signal,
    /// The end of the terminal: the folder of a sandbox goes then too.
    hangup: Option<Signal>,
    _lock: Option<File>,
    /// The folder of a sandbox, which goes when this ends.
    _folder: Option<TempDir>,
}

impl StartedServer {
    pub async fn start(mut args: ServeArgs) -> anyhow::Result<Self> {
        let folder = args.sandbox.then(tempfile::tempdir).transpose()?;
        if let Some(folder) = &folder {
            args.database = DatabaseArgs::in_folder(folder.path());
        }
        for unknown in written::unknown_variables() {
            tracing::warn!("{unknown}");
        }
        args.check_read_only()?;
        let lock = Ledger::lock(args.database.url())?;
        let url = args.database.url();
        let seal_key = seals::key_to_serve(&args)?;
        let had_key = seal_key.is_some();
        args.check(had_key || seals::key_file(url)?.is_some())?;
        // Before the long steps: a supervisor can stop the process during them.
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let hangup = args
            .sandbox
            .then(|| signal(SignalKind::hangup()))
            .transpose()?;
        let mut engine = args.engine_options(seal_key);
        engine.make_seal_key = Some(seals::make_key_beside);
        let key_folder = first_key_folder().filter(|_| !args.sandbox);
        let options = args.serve_options(key_folder)?;
        let has_console = options.console.is_some();
        let application = Application::build(options, engine).await?;
        if !args.read_only && !args.sandbox {
            seals::tell_of_seals(url, had_key)?;
        }
        Ok(Self {
            application,
            has_console,
            terminate,
            interrupt,
            hangup,
            _lock: lock,
            _folder: folder,
        })
    }

    pub fn url(&self) -> String {
        self.application.url()
    }

    /// The admin key of a new ledger, if it is shown.
    pub fn shown_key(&self) -> Option<&str> {
        match self.application.first_key() {
            Some(FirstKey::Shown(secret)) => Some(secret),
            Some(FirstKey::InFile(_)) | None => None,
        }
    }

    /// Serves until a signal comes, or the work beside it fails.
    pub async fn run(
        self,
        beside: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<ExitCode> {
        let mut terminate = self.terminate;
        let mut interrupt = self.interrupt;
        let hung_up = async {
            match self.hangup {
                Some(mut hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        let failed = async {
            match beside.await {
                Err(error) => error,
                Ok(()) => std::future::pending().await,
            }
        };
        let mut failure = None;
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hung_up => {}
                error = failed => failure = Some(error),
            }
            tracing::info!("stopping: finishing the requests in progress");
        };
        self.application.run(Box::pin(stop)).await?;
        tracing::info!("stopped");
        failure.map_or(Ok(ExitCode::SUCCESS), Err)
    }

    /// Where the server listens, and where people look.
    pub fn address_line(&self) -> String {
        let url = self.url();
        let mut pages = format!("documentation: {url}/docs");
        if self.has_console {
            pages += &format!(", console: {url}/console");
        }
        if let Some(gate) = self.application.gate_url() {
            pages += &format!(", gate: {gate}");
        }
        if let Some(address) = self.application.rate_limits() {
            pages += &format!(", rate limit service: {address}");
        }
        format!("perdiem listens on {url} ({pages})")
    }

    /// Prints where the server listens and what to try. A new key is shown here and nowhere else.
    fn welcome(&self) {
        println!("{}", self.address_line());
        let url = self.url();
        match self.application.first_key() {
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
                println!(
                    "try, where the file is, and keep the key elsewhere, and remove the file:"
                );
                println!("  export PERDIEM_KEY=$(cat '{}')", path.display());
                try_policy(&url);
            }
            None => {
                println!("try:");
                println!("  curl {url}/readyz");
            }
        }
    }
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
