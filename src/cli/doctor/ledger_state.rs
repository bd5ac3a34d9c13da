//! What the ledger says: its clock, its seals, its reconciliations, and whether a policy lets Redis decide.

use std::time::Duration;

use chrono::TimeDelta;
use tokio::time::timeout;
use uuid::Uuid;

use super::findings::Diagnosis;
use crate::age::describe_age;
use crate::config::ServeArgs;
use engine::{ClockTrouble, EngineOptions, SealTarget};
use host::chain::Chain;
use ledger::{Ledger, LedgerError, LedgerOptions};

/// The longest time to open the ledger, and for each read of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// A ledger whose positions are not sealed for so long has a problem.
const SEALED_WITHIN: TimeDelta = TimeDelta::minutes(10);
/// So many periods without a reconciliation are too many.
const PERIODS_MOST: i32 = 3;
/// The reconciliations that are looked at, newest first: some may still run, or never have ended.
const REPORTS: u32 = 10;
/// The most policies that are read at once.
const POLICIES: u32 = 1000;

/// Looks at the ledger. Returns whether a policy lets Redis decide, if that is known.
pub async fn look_at_ledger(
    found: &mut Diagnosis,
    serve: &ServeArgs,
    options: &EngineOptions,
) -> Option<bool> {
    const ABOUT: &str = "ledger";
    let ledger_options = LedgerOptions {
        url: serve.database.url().to_owned(),
        claim_timeout: PATIENCE,
        query_timeout: PATIENCE,
    };
    let opening = Ledger::open_to_read(&ledger_options, options.clock.now());
    let ledger = match timeout(PATIENCE, opening).await {
        Ok(Ok(ledger)) => ledger,
        Ok(Err(error)) => {
            found.wrong(ABOUT, Chain(&error));
            return None;
        }
        Err(_) => {
            found.look(
                ABOUT,
                "it does not open in time: see who holds a lock on it",
            );
            return None;
        }
    };
    let looked = look(found, &ledger, serve, options).await;
    ledger.close().await;
    match looked {
        Ok(counts) => Some(counts),
        Err(error) => {
            found.look(ABOUT, format!("it cannot be read: {}", Chain(&error)));
            None
        }
    }
}

async fn look(
    found: &mut Diagnosis,
    ledger: &Ledger,
    serve: &ServeArgs,
    options: &EngineOptions,
) -> Result<bool, LedgerError> {
    if !ledger.has_clock() {
        look_at_newest(found, ledger, options).await?;
    }
    look_at_seals(found, ledger, serve, options).await?;
    look_at_reconciliations(found, ledger, options).await?;
    let mut after = String::new();
    loop {
        let policies = ledger
            .admin()
            .policies(None, false, &after, POLICIES)
            .await?;
        if policies.iter().any(|policy| policy.rule.may_be_counted()) {
            return Ok(true);
        }
        match policies.last() {
            Some(last) => after = last.name.as_str().to_owned(),
            None => return Ok(false),
        }
    }
}

/// SQLite has no clock: the newest entries and changes show the time.
async fn look_at_newest(
    found: &mut Diagnosis,
    ledger: &Ledger,
    options: &EngineOptions,
) -> Result<(), LedgerError> {
    const ABOUT: &str = "clock";
    let now = options.clock.now();
    let reading = ledger.read_clock(now).await?;
    let Some(tolerance) = options.clock_tolerance else {
        found.ok(ABOUT, "not compared: PERDIEM_CLOCK_TOLERANCE_SECONDS is 0");
        return Ok(());
    };
    match reading.outlier.filter(|at| *at - now > tolerance) {
        _ if reading.offset.abs() > tolerance => {
            found.wrong(ABOUT, ClockTrouble::BehindNewest(reading.offset));
        }
        Some(at) => found.look(ABOUT, ClockTrouble::FutureEntry(at)),
        None => found.ok(ABOUT, "not behind the newest entries"),
    }
    Ok(())
}

async fn look_at_seals(
    found: &mut Diagnosis,
    ledger: &Ledger,
    serve: &ServeArgs,
    options: &EngineOptions,
) -> Result<(), LedgerError> {
    const ABOUT: &str = "seals";
    if let Some(SealTarget::Folder(folder)) = &serve.seal_to
        && !folder.is_dir()
    {
        let text = format!(
            "PERDIEM_SEAL_TO names the folder {}, which does not exist: mount the disk, or make the folder",
            folder.display()
        );
        found.look(ABOUT, text);
    }
    let positions = ledger.record().last_mark().await?.position;
    let log = ledger.audit().sealed_log().await?;
    let last = log.and_then(|log| log.last);
    match (last, &options.seal_key) {
        (None, None) => found.ok(ABOUT, "nothing is sealed: there is no key"),
        (None, Some(_)) if positions == 0 => found.ok(ABOUT, "nothing to seal yet"),
        (None, Some(_)) => found.look(
            ABOUT,
            "there is a key, and nothing is sealed: start an instance, and see its /readyz",
        ),
        (Some(seal), key) => {
            let age = options.clock.now() - seal.sealed_at;
            let unsealed = positions.saturating_sub(seal.size);
            let text = format!(
                "the newest is {} old; {unsealed} of {positions} positions have none",
                describe_age(age)
            );
            if key.is_none() {
                let text = format!("{text}: no key is set now; set PERDIEM_SEAL_KEY_FILE");
                found.look(ABOUT, text);
            } else if seal.size > positions || (unsealed > 0 && age > SEALED_WITHIN) {
                let text = format!(
                    "{text}: see that an instance runs, and what its /readyz says of seals"
                );
                found.look(ABOUT, text);
            } else {
                found.ok(ABOUT, text);
            }
        }
    }
    Ok(())
}

async fn look_at_reconciliations(
    found: &mut Diagnosis,
    ledger: &Ledger,
    options: &EngineOptions,
) -> Result<(), LedgerError> {
    const ABOUT: &str = "reconciliation";
    let now = options.clock.now();
    if let Some((id, count @ 1..)) = ledger.audit().alarms(now).await? {
        let text = format!(
            "the ledger contradicts itself in {count} places: copy the database as it is, and read \
             GET /v1/reconciliations/{id}"
        );
        found.wrong(ABOUT, text);
    }
    let reports = ledger.audit().reconciliations(Uuid::max(), REPORTS).await?;
    let Some(finished) = reports.iter().find_map(|report| report.finished.as_ref()) else {
        found.ok(ABOUT, "none has ended yet");
        return Ok(());
    };
    let age = now - finished.finished_at;
    let text = format!("the last one ended {} ago", describe_age(age));
    let tally = &finished.tally;
    let every = options
        .reconcile_every
        .and_then(|every| TimeDelta::from_std(every).ok());
    if tally.differences > tally.healed + tally.alarms {
        let text = format!(
            "{text}, and found {} differences, of which {} are healed: run perdiem reconcile --apply",
            tally.differences, tally.healed
        );
        found.look(ABOUT, text);
    } else if every.is_some_and(|every| age > every * PERIODS_MOST) {
        let text = format!(
            "{text}, longer than PERDIEM_RECONCILE_EVERY_SECONDS says: see that an instance runs"
        );
        found.look(ABOUT, text);
    } else {
        found.ok(ABOUT, text);
    }
    Ok(())
}
