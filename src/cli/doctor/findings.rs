//! What `perdiem doctor` found: one line for each thing that it looked at.

use std::process::ExitCode;

use serde::Serialize;

use crate::{FAILED, WRONG_SETTING};

/// How a thing was found, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    Ok,
    /// perdiem works, but somebody has to look.
    Look,
    /// perdiem does not start, decides nothing, or can lose grants.
    Wrong,
}

impl Condition {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Look => "look",
            Self::Wrong => "wrong",
        }
    }
}

/// A thing that was looked at.
#[derive(Debug, Serialize)]
struct DoctorLine {
    condition: Condition,
    about: &'static str,
    /// What was found, and what to do about it.
    text: String,
}

/// Everything that was found.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    condition: Condition,
    lines: Vec<DoctorLine>,
}

impl Diagnosis {
    pub fn new() -> Self {
        Self {
            condition: Condition::Ok,
            lines: Vec::new(),
        }
    }

    pub fn note(&mut self, condition: Condition, about: &'static str, text: impl ToString) {
        self.condition = self.condition.max(condition);
        self.lines.push(DoctorLine {
            condition,
            about,
            text: text.to_string(),
        });
    }

    pub fn ok(&mut self, about: &'static str, text: impl ToString) {
        self.note(Condition::Ok, about, text);
    }

    pub fn look(&mut self, about: &'static str, text: impl ToString) {
        self.note(Condition::Look, about, text);
    }

    pub fn wrong(&mut self, about: &'static str, text: impl ToString) {
        self.note(Condition::Wrong, about, text);
    }

    /// Prints the lines. Returns the exit code.
    pub fn tell(&self, as_json: bool) -> anyhow::Result<ExitCode> {
        if as_json {
            println!("{:#}", serde_json::to_value(self)?);
        } else {
            for DoctorLine {
                condition,
                about,
                text,
            } in &self.lines
            {
                println!("{:<5}  {about:<21}  {text}", condition.name());
            }
        }
        Ok(match self.condition {
            Condition::Ok => ExitCode::SUCCESS,
            Condition::Look => ExitCode::from(FAILED),
            Condition::Wrong => ExitCode::from(WRONG_SETTING),
        })
    }
}
