//! The parameters of a URL of PostgreSQL.

use percent_encoding::percent_decode_str;

/// The parameters that sqlx knows. The value of any other one would be in its log.
const KNOWN: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];
/// Parameters of libpq without an effect here. They come with the URLs of managed servers.
const WITHOUT_EFFECT: [&str; 29] = [
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "fallback_application_name",
    "gssdelegation",
    "gssencmode",
    "gsslib",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "krbsrvname",
    "load_balance_hosts",
    "passfile",
    "replication",
    "require_auth",
    "requirepeer",
    "service",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcertmode",
    "sslcompression",
    "sslcrl",
    "sslcrldir",
    "sslnegotiation",
    "sslpassword",
    "sslsni",
    "target_session_attrs",
    "tcp_user_timeout",
];

/// The URL without the parameters that have no effect. A warning names each of them.
///
/// # Errors
/// The name of a parameter that nobody knows, without its value, which can be a secret: `?pasword=…`.
pub fn only_known(url: &str) -> Result<String, String> {
    let (url, fragment) = match url.split_once('#') {
        Some((url, fragment)) => (url, Some(fragment)),
        None => (url, None),
    };
    let Some((place, parameters)) = url.split_once('?') else {
        return Ok(url.to_owned());
    };
    let mut kept = Vec::new();
    for parameter in parameters.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let name = name.replace('+', " ");
        let name = percent_decode_str(&name).decode_utf8_lossy();
        let name = &*name;
        if KNOWN.contains(&name) || name.starts_with("options[") {
            kept.push(parameter);
        } else if name == "target_session_attrs"
            && !["any", "read-write", "primary"].contains(&value)
        {
            return Err(
                "target_session_attrs is any, read-write or primary: perdiem finds out by itself whether the \
                 server is a standby"
                    .to_owned(),
            );
        } else if WITHOUT_EFFECT.contains(&name) {
            tracing::warn!(
                parameter = name,
                "DATABASE_URL has a parameter that has no effect in perdiem"
            );
        } else if !name.is_empty() {
            return Err(format!(
                "the parameter {name:?} is unknown: correct its name, or leave it out"
            ));
        }
    }
    let fragment = fragment.map(|text| format!("#{text}")).unwrap_or_default();
    Ok(format!("{place}?{}{fragment}", kept.join("&")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_parameters_stay() {
        for (url, kept) in [
            ("postgres://u:p@h/d", "postgres://u:p@h/d"),
            (
                "postgres://h/d?sslmode=require&channel_binding=require",
                "postgres://h/d?sslmode=require",
            ),
            (
                "postgres://h/d?target_session_attrs=read-write&ssl%6Dode=require&",
                "postgres://h/d?ssl%6Dode=require",
            ),
            (
                "postgres://h/d?options[jit]=off&connect_timeout=3",
                "postgres://h/d?options[jit]=off",
            ),
            ("postgres://h/d?keepalives=1", "postgres://h/d?"),
            (
                "postgres://h/d?port=1&connect_timeout=2#f?y",
                "postgres://h/d?port=1#f?y",
            ),
        ] {
            assert_eq!(only_known(url).as_deref(), Ok(kept), "{url}");
        }
    }

    #[test]
    fn an_unknown_parameter_is_told_without_its_value() {
        for (url, says) in [
            (
                "postgres://h/d?sslmode=require&pasword=hunter2",
                "\"pasword\" is unknown",
            ),
            ("postgres://h/d?hunter%32=hunter2", "\"hunter2\" is unknown"),
            (
                "postgres://h/d?target_session_attrs=standby",
                "any, read-write or primary",
            ),
        ] {
            let told = only_known(url).expect_err("unknown");
            assert!(told.contains(says), "{told}");
        }
        let told = only_known("postgres://h/d?pasword=hunter2").expect_err("unknown");
        assert!(!told.contains("hunter2"), "{told}");
    }
}
