//! `perdiem export`: writes entries to a file, with a manifest beside it. An interrupted export
//! continues after its last whole row.

use std::collections::BTreeMap;
use std::fs;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use chrono::{DateTime, Utc};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Method, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::signal::ctrl_c;
use tokio::time::{Instant, sleep, timeout};

use verify::export::WORKBOOK_SHA256;
use verify::files::sha256_of;
use verify::rows::{Row, RowCutter};

use super::client::{self, TryAgain, call, request, stream};
use super::history::EntryFilters;
use super::local::present;
use super::rows::PartFile;
use super::{ServerArgs, xlsx};
use api::exports::Manifest;

const EXPORT: &str = "/v1/entries/export";
/// How long an instance that only reads may take to learn of a recorded export, and how often to ask.
const FOLLOW_TIME: Duration = Duration::from_secs(30);
const FOLLOW_LOOK: Duration = Duration::from_millis(200);
/// The longest time for an export.
const TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest wait for the next bytes.
const SILENCE: Duration = Duration::from_secs(60);
/// Without a terminal, progress is reported once for this many rows.
const SHOWN_EVERY: u64 = 100_000;

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The file to write; its manifest is FILE.manifest.json
    file: PathBuf,

    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    filters: EntryFilters,

    /// URL of the instance that records the export, where PERDIEM_URL names one that only reads
    #[arg(long, value_name = "URL")]
    record_at: Option<String>,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct FormatArgs {
    /// CSV (RFC 4180), for programs
    #[arg(long)]
    csv: bool,

    /// One JSON object on each line
    #[arg(long)]
    ndjson: bool,

    /// Excel workbook, for people; ids and subjects are text
    #[arg(long)]
    xlsx: bool,
}

/// The request of an export in progress, and the place of its manifest.
#[derive(Debug, Serialize, Deserialize)]
struct ExportState {
    url: String,
    parameters: BTreeMap<String, String>,
    as_of: u64,
    manifest: String,
    /// When the export was begun: `today` stays this day, also if the export is continued tomorrow.
    begun_at: Option<DateTime<Utc>>,
}

/// The last line of NDJSON, with the manifest as it came.
#[derive(Deserialize)]
struct LastLine {
    manifest: Value,
}

/// The files of an export.
struct ExportFiles {
    file: PathBuf,
    /// The rows, until the export is complete and checked.
    part: PathBuf,
    state: PathBuf,
    manifest: PathBuf,
}

impl ExportFiles {
    fn of(file: &Path) -> Self {
        let beside = |end: &str| {
            let mut path = file.as_os_str().to_owned();
            path.push(end);
            PathBuf::from(path)
        };
        Self {
            file: file.to_owned(),
            part: beside(".part"),
            state: beside(".part.json"),
            manifest: beside(".manifest.json"),
        }
    }

    /// The state of an export that was interrupted.
    fn interrupted(&self) -> anyhow::Result<Option<ExportState>> {
        if !self.state.exists() {
            ensure!(
                !self.file.exists(),
                "{} exists already: name another file, or delete it",
                self.file.display()
            );
            return Ok(None);
        }
        let state = serde_json::from_slice(&fs::read(&self.state)?);
        state.with_context(|| format!("{} is damaged: delete it", self.state.display()))
    }
}

pub async fn export(args: ExportArgs) -> anyhow::Result<ExitCode> {
    // 1. Look for an interrupted export of the same request beside the file.
    let files = ExportFiles::of(&args.file);
    let interrupted = files.interrupted()?;
    let begun_at = interrupted.as_ref().and_then(|state| state.begun_at);
    let begun_at = begun_at.unwrap_or_else(present);
    let parameters = args.filters.parameters(&args.server, begun_at).await?;
    let format = if args.format.csv { "csv" } else { "ndjson" };
    let format = ("format".to_owned(), format.to_owned());
    let wanted = ExportState {
        url: args.server.url.clone(),
        parameters: parameters.into_iter().chain([format]).collect(),
        as_of: 0,
        manifest: String::new(),
        begun_at: Some(begun_at),
    };
    if let Some(state) = &interrupted {
        ensure!(
            state.url == wanted.url && state.parameters == wanted.parameters,
            "{} belongs to another export: run that export again, or delete the file",
            files.state.display()
        );
    }
    // 2. Continue after the last whole row of the interrupted export, or begin a new file.
    let open = || {
        let part = PartFile::open(&files.part, args.format.csv);
        part.with_context(|| format!("{} cannot be written", files.part.display()))
    };
    let begun = match &interrupted {
        Some(_) => Some(open()?),
        None => None,
    };
    let last = begun.as_ref().and_then(|part| part.last);
    let mut download = Download::begin(&args, &files, wanted, interrupted, last).await?;
    let mut part = match begun {
        Some(part) => part,
        None => {
            let _ = fs::remove_file(&files.part);
            open()?
        }
    };
    // 3. Read all rows. After an interruption, save the rows that have arrived.
    let read = tokio::select! {
        // Ctrl-C is polled first: from its first poll on, Ctrl-C no longer ends the process by
        // itself.
        biased;
        interrupted = ctrl_c() => match interrupted {
            Ok(()) => Err(again("interrupted")),
            Err(error) => Err(error.into()),
        },
        read = download.read(&args.format, &mut part) => read,
    };
    part.save()?;
    // 4. Take the manifest that followed the rows, or ask for it.
    let document = match read? {
        Some(document) => document,
        None => {
            let manifest = request(&args.server, Method::GET, &download.state.manifest)?;
            call(manifest.timeout(TIMEOUT)).await?
        }
    };
    let manifest: Manifest = client::read(&document)?;
    // 5. Invariant: the file gets its name only when its bytes match the manifest.
    ensure!(
        manifest.sha256 == part.sha256(),
        "{} does not match its manifest: delete it and {}, and run the command again",
        files.part.display(),
        files.state.display()
    );
    finish(&args, &files, document)?;
    println!(
        "{} entries up to position {}, SHA-256 {} as in the manifest",
        part.count,
        manifest.act.as_of,
        part.sha256()
    );
    Ok(ExitCode::SUCCESS)
}

/// Gives the files their names, after all checks.
fn finish(args: &ExportArgs, files: &ExportFiles, mut document: Value) -> anyhow::Result<()> {
    if args.format.xlsx {
        let written = xlsx::write(&files.part, &files.file)
            .and_then(|()| Ok(sha256_of(&files.file)?))
            .with_context(|| format!("{} cannot be written", files.file.display()))?;
        if let Value::Object(fields) = &mut document {
            fields.insert(WORKBOOK_SHA256.to_owned(), written.into());
        }
        fs::remove_file(&files.part)?;
    } else {
        fs::rename(&files.part, &files.file)?;
    }
    fs::write(&files.manifest, format!("{document:#}\n"))?;
    fs::remove_file(&files.state)?;
    Ok(())
}

/// The error of an export that did not end. The next run continues it.
fn again(why: &str) -> anyhow::Error {
    let text = format!("{why}: run the same command again to continue the export");
    TryAgain(text).into()
}

/// Records an export at another instance, without its rows. Returns the path of its manifest.
async fn record(
    server: &ServerArgs,
    url: &str,
    parameters: &BTreeMap<String, String>,
) -> anyhow::Result<String> {
    let recorder = ServerArgs {
        url: url.to_owned(),
        key: server.key.clone(),
        key_file: server.key_file.clone(),
        json: false,
        utc: false,
    };
    // Not HEAD: an error has a body that says what to do.
    let recording = request(&recorder, Method::GET, EXPORT)?.query(parameters);
    let (_, manifest) = begun(&stream(recording).await?)?;
    Ok(manifest)
}

/// Asks for rows. An instance that only reads may learn of the recorded export a moment later.
async fn rows(
    args: &ExportArgs,
    parameters: &BTreeMap<String, String>,
) -> anyhow::Result<Response> {
    let until = Instant::now() + FOLLOW_TIME;
    loop {
        let rows = request(&args.server, Method::GET, EXPORT)?;
        match stream(rows.query(parameters).timeout(TIMEOUT)).await {
            Err(error) if args.record_at.is_some() && client::can_try_again(&error) => {
                if Instant::now() >= until {
                    return Err(error);
                }
                sleep(FOLLOW_LOOK).await;
            }
            asked => return asked,
        }
    }
}

/// The last position of an export that began, and the path of its manifest.
fn begun(response: &Response) -> anyhow::Result<(u64, String)> {
    let header = |name: &str| response.headers().get(name)?.to_str().ok();
    let as_of = header("perdiem-as-of").and_then(|as_of| as_of.parse().ok());
    let link = header("link").and_then(|link| link.split(['<', '>']).nth(1));
    match (as_of, link) {
        (Some(as_of), Some(manifest)) => Ok((as_of, manifest.to_owned())),
        _ => bail!("the answer is not from perdiem: check PERDIEM_URL"),
    }
}

/// Rows that come from the server.
struct Download {
    response: Response,
    state: ExportState,
    is_resumed: bool,
    bar: ProgressBar,
    /// The number of rows at the last report of progress, without a terminal.
    shown: u64,
}

impl Download {
    /// Asks for all rows, or for the rows that an interrupted export lacks.
    async fn begin(
        args: &ExportArgs,
        files: &ExportFiles,
        wanted: ExportState,
        interrupted: Option<ExportState>,
        last: Option<u64>,
    ) -> anyhow::Result<Self> {
        let server = &args.server;
        let mut parameters = wanted.parameters.clone();
        if let Some(state) = &interrupted {
            parameters.insert("as_of".to_owned(), state.as_of.to_string());
        }
        if let Some(last) = last {
            parameters.insert("after".to_owned(), last.to_string());
        }
        if let Some(url) = &args.record_at {
            let manifest = match &interrupted {
                Some(state) => state.manifest.clone(),
                None => record(server, url, &parameters).await?,
            };
            let revision = manifest.rsplit('/').next().unwrap_or_default();
            parameters.insert("export".to_owned(), revision.to_owned());
        }
        let response = rows(args, &parameters).await?;
        let (as_of, manifest) = begun(&response)?;
        let is_resumed = interrupted.is_some();
        let state = interrupted.unwrap_or(ExportState {
            as_of,
            manifest,
            ..wanted
        });
        fs::write(&files.state, serde_json::to_vec(&state)?)?;
        let bar = ProgressBar::new(state.as_of);
        bar.set_style(ProgressStyle::with_template(
            "{bar:40} {percent:>3} %, {msg} rows",
        )?);
        Ok(Self {
            response,
            state,
            is_resumed,
            bar,
            shown: 0,
        })
    }

    /// Takes all rows. Returns the manifest that follows the rows, unless the export was resumed:
    /// then the manifest describes only the rows of this answer.
    async fn read(
        &mut self,
        format: &FormatArgs,
        part: &mut PartFile,
    ) -> anyhow::Result<Option<Value>> {
        let mut cutter = RowCutter::new(format.csv);
        let mut manifest = None;
        loop {
            let bytes = match timeout(SILENCE, self.response.chunk()).await {
                Ok(Ok(Some(bytes))) => bytes,
                Ok(Ok(None)) => break,
                Ok(Err(_)) | Err(_) => return Err(again("the connection was lost")),
            };
            cutter.cut(&bytes, |row, bytes| {
                match row {
                    Row::Manifest => manifest = serde_json::from_slice::<LastLine>(bytes).ok(),
                    Row::Header | Row::Entry(_) => part.add(&row, bytes)?,
                }
                Ok(())
            })?;
            ensure!(
                !format.xlsx || part.count <= xlsx::ENTRIES_MOST,
                "a worksheet has at most {} entries: use narrower filters, or --csv",
                xlsx::ENTRIES_MOST
            );
            self.tell(part);
        }
        self.bar.finish_and_clear();
        if !format.csv && manifest.is_none() {
            return Err(again("the export is incomplete"));
        }
        let manifest = manifest.filter(|_| !self.is_resumed);
        Ok(manifest.map(|line| line.manifest))
    }

    fn tell(&mut self, part: &PartFile) {
        self.bar.set_position(part.last.unwrap_or_default());
        self.bar.set_message(part.count.to_string());
        if !stderr().is_terminal() && part.count - self.shown >= SHOWN_EVERY {
            self.shown = part.count;
            eprintln!("{} rows", part.count);
        }
    }
}
