//! What a list is about: all policies, one policy, or one subject.

use clap::Args;

/// A policy, if one is named.
#[derive(Debug, Args)]
pub struct PolicyScope {
    /// The policy's name [default: all policies]
    policy: Option<String>,

    /// As POLICY: scripts use it
    #[arg(
        long = "policy",
        value_name = "POLICY",
        hide = true,
        conflicts_with = "policy"
    )]
    named: Option<String>,
}

impl PolicyScope {
    pub fn policy(&self) -> Option<&String> {
        self.policy.as_ref().or(self.named.as_ref())
    }
}

/// A policy and a subject, if they are named.
#[derive(Debug, Args)]
pub struct ScopeArgs {
    #[command(flatten)]
    of_policy: PolicyScope,

    /// The subject [default: all subjects]
    subject: Option<String>,

    /// The subject, under all policies
    #[arg(long = "subject", value_name = "SUBJECT", conflicts_with = "subject")]
    of_subject: Option<String>,
}

impl ScopeArgs {
    pub fn policy(&self) -> Option<&String> {
        self.of_policy.policy()
    }

    pub fn subject(&self) -> Option<&String> {
        self.subject.as_ref().or(self.of_subject.as_ref())
    }
}
