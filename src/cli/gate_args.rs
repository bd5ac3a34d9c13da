//! The settings of the gate, where proxies ask before they let a request through.

use clap::Args;

use crate::setting::{WrongSetting, read_secret};
use http::GateOptions;

#[derive(Debug, Clone, Args)]
pub struct GateArgs {
    /// Address and port of the gate, where proxies ask before they let a request through, such as
    /// 127.0.0.1:8081
    #[arg(
        long,
        env = "PERDIEM_GATE_BIND",
        value_name = "ADDRESS",
        conflicts_with_all = ["read_only", "sandbox"]
    )]
    gate_bind: Option<String>,

    /// The key with which the gate claims: one of the role claim, best confined to the policies of the gate
    #[arg(
        long,
        env = "PERDIEM_GATE_KEY",
        hide_env_values = true,
        value_name = "KEY",
        conflicts_with = "gate_key_file"
    )]
    gate_key: Option<String>,

    /// File that contains the key with which the gate claims
    #[arg(long, env = "PERDIEM_GATE_KEY_FILE", value_name = "FILE", value_parser = read_secret)]
    gate_key_file: Option<String>,

    /// Let the gate listen on an address that others than proxies may reach: anyone who reaches it claims
    #[arg(long, env = "PERDIEM_GATE_PUBLIC")]
    gate_public: bool,
}

impl GateArgs {
    /// The options of the gate; `None` without a gate.
    ///
    /// # Errors
    /// A setting is missing.
    pub fn options(&self) -> Result<Option<GateOptions>, WrongSetting> {
        let missing = |setting, what| {
            let reason = format!("is missing: {what}, or leave out the other settings of the gate");
            WrongSetting::new(setting, reason)
        };
        let key = self.gate_key_file.as_ref().or(self.gate_key.as_ref());
        if key.is_some_and(|key| key.contains(char::is_whitespace)) {
            let reason =
                "has a blank or a second line: write only the secret, which begins with perdiem_";
            return Err(WrongSetting::new("PERDIEM_GATE_KEY", reason));
        }
        match (&self.gate_bind, key) {
            (None, None) if !self.gate_public => Ok(None),
            (None, _) => Err(missing(
                "PERDIEM_GATE_BIND",
                "write the address of the gate, such as 127.0.0.1:8081",
            )),
            (Some(_), None) => Err(missing(
                "PERDIEM_GATE_KEY",
                "write the key with which the gate claims",
            )),
            (Some(bind), Some(key)) => Ok(Some(GateOptions {
                bind: bind.clone(),
                is_public: self.gate_public,
                key: key.as_str().into(),
            })),
        }
    }
}
