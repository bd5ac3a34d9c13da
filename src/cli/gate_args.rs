//! The settings of the gate, where proxies ask before they let a request through.

use std::net::{IpAddr, ToSocketAddrs};

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

    /// Address and port of Envoy's Rate Limit Service, where proxies ask over gRPC, such as 127.0.0.1:8082
    #[arg(
        long,
        env = "PERDIEM_GATE_GRPC_BIND",
        value_name = "ADDRESS",
        conflicts_with_all = ["read_only", "sandbox"]
    )]
    gate_grpc_bind: Option<String>,

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
        let binds = [
            ("PERDIEM_GATE_BIND", &self.gate_bind),
            ("PERDIEM_GATE_GRPC_BIND", &self.gate_grpc_bind),
        ];
        let mut set = binds
            .into_iter()
            .filter_map(|(setting, bind)| Some((setting, bind.as_ref()?)));
        let public = set.clone().find(|(_, bind)| names_public(bind));
        match (set.next(), key) {
            (None, None) if !self.gate_public => Ok(None),
            (None, _) => Err(missing(
                "PERDIEM_GATE_BIND",
                "write the address of the gate, such as 127.0.0.1:8081, or set PERDIEM_GATE_GRPC_BIND",
            )),
            (Some(_), None) => Err(missing(
                "PERDIEM_GATE_KEY",
                "write the key with which the gate claims",
            )),
            (Some(_), Some(key)) => match public.filter(|_| !self.gate_public) {
                Some((setting, _)) => {
                    let reason = "names an address that others than proxies may reach, and anyone who reaches the \
                                  gate claims with its key: write a private address, such as 127.0.0.1:8081, or \
                                  set PERDIEM_GATE_PUBLIC=true if only your proxies reach this one";
                    Err(WrongSetting::new(setting, reason))
                }
                None => Ok(Some(GateOptions {
                    bind: self.gate_bind.clone(),
                    grpc_bind: self.gate_grpc_bind.clone(),
                    key: key.as_str().into(),
                })),
            },
        }
    }
}

/// Whether one of the addresses can be reached from outside. What is no address is told by who listens.
fn names_public(bind: &str) -> bool {
    let addresses = bind.to_socket_addrs();
    addresses.is_ok_and(|mut all| all.any(|address| is_public(address.ip())))
}

/// Whether an address can be reached from outside, as far as the address tells.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            !(address.is_loopback() || address.is_private() || address.is_link_local())
        }
        IpAddr::V6(address) => {
            !(address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_private_networks_are_not_public() {
        for bind in [
            "127.0.0.1:1",
            "localhost:1",
            "10.1.2.3:1",
            "172.16.0.1:1",
            "192.168.0.1:1",
            "169.254.0.1:1",
            "[::1]:1",
            "[fd00::1]:1",
            "[fe80::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(!names_public(bind), "{bind}");
        }
        for bind in [
            "0.0.0.0:1",
            "[::]:1",
            "192.0.2.1:1",
            "[2001:db8::1]:1",
            "[::ffff:192.0.2.1]:1",
        ] {
            assert!(names_public(bind), "{bind}");
        }
    }
}
