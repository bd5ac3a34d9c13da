//! PostgreSQL: the server, its settings, and the user that an instance connects as.

use super::findings::{Condition, Diagnosis};
use engine::{ClockTrouble, EngineOptions};
use host::chain::Chain;
use ledger::{ClientLimits, OpenError, RoleFacts, ServerFacts, StandbyFacts, VacuumFacts};

/// The oldest major version that PostgreSQL's developers still repair, when this version of perdiem was made.
const OLDEST_REPAIRED: i32 = 15;
/// The most of the missing rights that are named.
const RIGHTS_SHOWN: usize = 5;

/// Looks at the server. Returns whether it has a ledger that can be opened.
pub fn look_at_server(found: &mut Diagnosis, facts: &ServerFacts, options: &EngineOptions) -> bool {
    look_at_version(found, facts);
    look_at_schema(found, facts);
    look_at_clock(found, facts, options);
    look_at_role(found, &facts.role, facts);
    if !facts.is_standby {
        look_at_standbys(found, &facts.standbys);
        look_at_vacuum(found, &facts.vacuum);
    }
    for setting in &facts.advice {
        let condition = if setting.loses_commits() {
            Condition::Wrong
        } else {
            Condition::Look
        };
        let text = format!("{} is {}: {}", setting.name, setting.value, setting.advice);
        found.note(condition, "PostgreSQL's settings", text);
    }
    if facts.advice.is_empty() {
        found.ok(
            "PostgreSQL's settings",
            "commits are durable, and buffers and WAL are large enough",
        );
    }
    look_at_connections(found, &facts.limits);
    found.ok(
        "disk",
        "PostgreSQL does not tell how much is free: look on its machine",
    );
    facts.refusals.is_empty() && facts.role.missing.is_empty()
}

fn look_at_version(found: &mut Diagnosis, facts: &ServerFacts) {
    let ServerFacts { version, place, .. } = facts;
    let role = if facts.is_standby { ", a standby" } else { "" };
    let text = format!("PostgreSQL {version} at {place}{role}");
    if facts.version_number / 10_000 < OLDEST_REPAIRED {
        let text = format!("{text}: nobody repairs this version any more; plan an upgrade");
        found.look("database", text);
    } else {
        found.ok("database", text);
    }
}

fn look_at_schema(found: &mut Diagnosis, facts: &ServerFacts) {
    const ABOUT: &str = "schema";
    if facts.refusals.is_empty() {
        found.ok(ABOUT, "up to date");
    }
    for refusal in &facts.refusals {
        match refusal {
            OpenError::Missing(_) if facts.role.may_create => {
                let text =
                    "there are no tables yet: run perdiem migrate as the user who will own them";
                found.look(ABOUT, text);
            }
            OpenError::Missing(_) => {
                let name = &facts.role.name;
                let text = format!(
                    "there are no tables yet, and {name} may not make them: run perdiem migrate as \
                     the owner of the database"
                );
                found.wrong(ABOUT, text);
            }
            OpenError::Behind {
                found: at, known, ..
            } if facts.role.is_owner => {
                let text = format!(
                    "at version {at} of {known}: run perdiem migrate, or the next start does it"
                );
                found.look(ABOUT, text);
            }
            // The cause says the same.
            OpenError::NoRight { .. } => found.wrong(ABOUT, refusal),
            error => found.wrong(ABOUT, Chain(error)),
        }
    }
}

fn look_at_clock(found: &mut Diagnosis, facts: &ServerFacts, options: &EngineOptions) {
    let offset = facts.clock_offset;
    match options.clock_tolerance {
        Some(tolerance) if offset.abs() > tolerance => {
            found.wrong("clock of PostgreSQL", ClockTrouble::Off(offset));
        }
        _ => found.ok(
            "clock of PostgreSQL",
            format!("this machine's is off by {:.1} s", offset.as_seconds_f64()),
        ),
    }
}

fn look_at_role(found: &mut Diagnosis, role: &RoleFacts, facts: &ServerFacts) {
    const ABOUT: &str = "database user";
    let RoleFacts { name, missing, .. } = role;
    if role.is_superuser {
        let text = format!(
            "{name} is a superuser, so a stolen DATABASE_URL can change entries: serve as a member of \
             the service's role"
        );
        found.look(ABOUT, text);
    } else if role.is_owner {
        let text = format!(
            "{name} owns the tables, so a stolen DATABASE_URL can change entries: serve as a member of \
             the service's role"
        );
        found.look(ABOUT, text);
    } else if !missing.is_empty() {
        let shown = missing[..missing.len().min(RIGHTS_SHOWN)].join(", ");
        let more = missing.len().saturating_sub(RIGHTS_SHOWN);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let text = format!(
            "{name} lacks rights that perdiem needs ({shown}{more}): run perdiem migrate as the owner, \
             and make {name} a member of the service's role"
        );
        found.wrong(ABOUT, text);
    } else if facts.refusals.is_empty() {
        let text = format!("{name} has the rights of the service, and does not own the tables");
        found.ok(ABOUT, text);
    }
}

fn look_at_standbys(found: &mut Diagnosis, standbys: &StandbyFacts) {
    const ABOUT: &str = "standbys";
    let StandbyFacts {
        names,
        connected,
        synchronous,
        visible,
    } = standbys;
    // Without the right to see the state of standbys, only their number is known.
    let is_visible = visible == connected;
    if names.is_empty() && *connected == 0 {
        let text = "none: if this server is lost, so is what was granted after the last backup";
        found.ok(ABOUT, text);
    } else if names.is_empty() {
        let text = format!(
            "{connected}, none of them synchronous: a fail-over loses grants that were answered; set \
             synchronous_standby_names"
        );
        found.look(ABOUT, text);
    } else if *connected == 0 || (is_visible && *synchronous == 0) {
        let text = format!(
            "synchronous_standby_names is {names}, and no synchronous standby is connected: commits \
             wait, and claims get 503; start a standby"
        );
        found.wrong(ABOUT, text);
    } else if is_visible {
        found.ok(
            ABOUT,
            format!("{synchronous} synchronous of {connected} ({names})"),
        );
    } else {
        let text = format!("{connected} ({names}); this user may not see which are synchronous");
        found.ok(ABOUT, text);
    }
}

fn look_at_vacuum(found: &mut Diagnosis, vacuum: &VacuumFacts) {
    const ABOUT: &str = "autovacuum";
    if !vacuum.is_on {
        let text = "it is off, so reads become slow and PostgreSQL stops at last: set autovacuum = on and \
                    track_counts = on, and reload PostgreSQL";
        found.look(ABOUT, text);
    } else if !vacuum.counts_inserts {
        let text = "it passes over tables that only grow, as entries: set \
                    autovacuum_vacuum_insert_threshold = 1000, its default, and reload PostgreSQL";
        found.look(ABOUT, text);
    } else if !vacuum.without.is_empty() {
        let tables = vacuum.without.join(", ");
        let text = format!("it is off for {tables}: run ALTER TABLE … RESET (autovacuum_enabled)");
        found.look(ABOUT, text);
    } else {
        found.ok(ABOUT, "on, also for tables that only grow");
    }
}

fn look_at_connections(found: &mut Diagnosis, limits: &ClientLimits) {
    const ABOUT: &str = "connections";
    let least = limits.least();
    let needed = ClientLimits::OF_INSTANCE;
    let text = format!("at most {least}, and each instance opens up to {needed}");
    if least < needed {
        let text = format!(
            "{text}: raise max_connections, or the CONNECTION LIMIT of the user or the database"
        );
        found.look(ABOUT, text);
    } else {
        found.ok(
            ABOUT,
            format!("{text}; instances that fit: {}", least / needed),
        );
    }
}
