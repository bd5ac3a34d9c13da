//! The settings as the operator wrote them: a message names the flag or the variable that has the
//! wrong value.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Command, CommandFactory, Parser};
use strsim::damerau_levenshtein;

use super::Cli;
use crate::setting::WrongSetting;
use http::ServeError;
use ledger::{OpenError, ServiceRoleError};

const OURS: &str = "PERDIEM_";
const SEAL_KEY: &str = "PERDIEM_SEAL_KEY_FILE";
/// Kubernetes gives each container such variables for a service that is called `perdiem`.
const OF_KUBERNETES: [&str; 2] = ["PERDIEM_SERVICE_", "PERDIEM_PORT"];
const SIGN_OF_KUBERNETES: &str = "PERDIEM_SERVICE_HOST";

/// A setting, as a flag and as a variable.
struct Setting {
    flag: String,
    variable: String,
}

impl Setting {
    /// Whether the flag is on the command line.
    fn is_flag_given(&self) -> bool {
        let is_ours = |given: &str| given.split('=').next() == Some(&self.flag);
        env::args_os().any(|given| given.to_str().is_some_and(is_ours))
    }

    /// The value that was given, as a flag or as a variable.
    fn given(&self) -> Option<OsString> {
        let mut arguments = env::args_os();
        while let Some(argument) = arguments.next() {
            let text = argument.to_str().unwrap_or_default();
            if text == self.flag {
                return arguments.next();
            }
            let value = text.strip_prefix(&self.flag);
            if let Some(value) = value.and_then(|value| value.strip_prefix('=')) {
                return Some(value.into());
            }
        }
        env::var_os(&self.variable)
    }

    fn is_variable_given(&self) -> bool {
        env::var_os(&self.variable).is_some()
    }
}

/// Reads the command line and the variables. Wrong ones end the process with exit code 2.
pub fn read() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| named_as_written(error).exit())
}

/// The settings of all commands.
fn settings() -> Vec<Setting> {
    let mut found = Vec::new();
    let mut commands = vec![Cli::command()];
    while let Some(command) = commands.pop() {
        found.extend(command.get_arguments().filter_map(|argument| {
            Some(Setting {
                flag: format!("--{}", argument.get_long()?),
                variable: argument.get_env()?.to_str()?.to_owned(),
            })
        }));
        commands.extend(command.get_subcommands().cloned());
    }
    found.sort_by(|one, other| one.variable.cmp(&other.variable));
    found.dedup_by(|one, other| one.variable == other.variable);
    found
}

/// clap names only flags. The same error, with the variables that were given instead of flags.
fn named_as_written(mut error: Error) -> Error {
    let settings = settings();
    if error.kind() == ErrorKind::InvalidUtf8 {
        let is_broken = |setting: &&Setting| {
            env::var_os(&setting.variable).is_some_and(|value| value.to_str().is_none())
        };
        return match settings.iter().find(is_broken) {
            Some(setting) => {
                let reason = format!("the value of {} is not UTF-8", setting.variable);
                Command::error(&mut Cli::command(), ErrorKind::InvalidUtf8, reason)
            }
            None => error,
        };
    }
    for kind in [ContextKind::InvalidArg, ContextKind::PriorArg] {
        let named = match error.get(kind) {
            Some(ContextValue::String(shown)) => ContextValue::String(as_written(&settings, shown)),
            Some(ContextValue::Strings(shown)) => {
                let named = shown.iter().map(|shown| as_written(&settings, shown));
                ContextValue::Strings(named.collect())
            }
            _ => continue,
        };
        error.insert(kind, named);
    }
    error
}

/// What clap shows as `--flag <VALUE>`, as it was given. What was not given has both names.
fn as_written(settings: &[Setting], shown: &str) -> String {
    let flag = shown.split([' ', '=']).next();
    let found = settings.iter().find(|setting| Some(&*setting.flag) == flag);
    match found {
        Some(setting) if !setting.is_flag_given() => {
            if setting.is_variable_given() {
                setting.variable.clone()
            } else {
                format!("{shown} ({})", setting.variable)
            }
        }
        Some(_) | None => shown.to_owned(),
    }
}

/// The variable of the setting that is to blame for an error; `None` if trying again can help.
pub fn wrong_setting(error: &anyhow::Error) -> Option<&'static str> {
    if let Some(wrong) = error.downcast_ref::<WrongSetting>() {
        return Some(wrong.setting);
    }
    if let Some(error) = error.downcast_ref::<ServeError>() {
        return error.setting();
    }
    if let Some(error) = error.downcast_ref::<ServiceRoleError>() {
        return error.setting();
    }
    error.downcast_ref::<OpenError>()?.setting()
}

/// The files with secrets that were given, each with the variable of its setting.
pub fn secret_files() -> Vec<(String, PathBuf)> {
    let settings = settings();
    let is_setting = |name: &str| settings.iter().any(|setting| setting.variable == name);
    // A secret can be in a variable, or in a file that another one names. The key of seals is always in a file.
    let is_secret =
        |name: &str| name == SEAL_KEY || name.strip_suffix("_FILE").is_some_and(is_setting);
    let secrets = settings
        .iter()
        .filter(|setting| is_secret(&setting.variable));
    let given = secrets
        .filter_map(|setting| Some((setting.variable.clone(), PathBuf::from(setting.given()?))));
    given.collect()
}

/// Where the value of a variable's setting is, if it is not in the variable.
pub fn whence(variable: &str) -> Option<String> {
    let settings = settings();
    let named = |name: &str| settings.iter().find(|setting| setting.variable == name);
    let setting = named(variable)?;
    let file = named(&format!("{variable}_FILE"));
    match file {
        _ if setting.is_flag_given() => Some(format!(" (the value is that of {})", setting.flag)),
        Some(file) if file.is_flag_given() => Some(in_file(&file.flag)),
        Some(file) if file.is_variable_given() => Some(in_file(&file.variable)),
        Some(_) | None => None,
    }
}

fn in_file(name: &str) -> String {
    format!(" (the value is in the file that {name} names)")
}

/// A line for each variable that looks like a setting and is none.
pub fn unknown_variables() -> Vec<String> {
    let is_on_kubernetes = env::var_os(SIGN_OF_KUBERNETES).is_some();
    let is_theirs = |name: &str| {
        is_on_kubernetes && OF_KUBERNETES.iter().any(|theirs| name.starts_with(theirs))
    };
    let settings = settings();
    let mut lines: Vec<String> = env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with(OURS) && !is_theirs(name))
        .filter(|name| settings.iter().all(|setting| setting.variable != *name))
        .filter_map(|name| {
            let nearest = nearest(&settings, &name)?;
            Some(format!(
                "no setting is called {name}, so it has no effect: the nearest is {nearest}"
            ))
        })
        .collect();
    lines.sort();
    lines
}

/// The variable whose name is most like this one. `PERDIEM_DATABASE_URL` means `DATABASE_URL`.
fn nearest<'a>(settings: &'a [Setting], name: &str) -> Option<&'a str> {
    let without = name.strip_prefix(OURS);
    let distance = |variable: &str| {
        if Some(variable) == without {
            0
        } else {
            damerau_levenshtein(variable, name)
        }
    };
    let variables = settings.iter().map(|setting| setting.variable.as_str());
    variables.min_by_key(|variable| distance(variable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_variable_has_a_nearest_one() {
        let settings = settings();
        for (name, meant) in [
            ("PERDIEM_BNID", "PERDIEM_BIND"),
            ("PERDIEM_CLAIM_DEADLINE", "PERDIEM_CLAIM_DEADLINE_MS"),
            ("PERDIEM_DATABASE_URL", "DATABASE_URL"),
            ("PERDIEM_REDIS_URL_FILE", "REDIS_URL_FILE"),
            ("PERDIEM_SERVICE_ROL", "PERDIEM_SERVICE_ROLE"),
        ] {
            assert_eq!(nearest(&settings, name), Some(meant), "{name}");
        }
    }
}
