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

/// The URL without the parameters that have no effect. A warning names each of them, without its
/// value, which can be a secret: `?pasword=…`.
pub fn only_known(url: &str) -> String {
    let (url, fragment) = match url.split_once('#') {
        Some((url, fragment)) => (url, Some(fragment)),
        None => (url, None),
    };
    let Some((place, parameters)) = url.split_once('?') else {
        return url.to_owned();
    };
    let is_known = |parameter: &&str| {
        let name = parameter.split('=').next().unwrap_or_default();
        let name = name.replace('+', " ");
        let name = percent_decode_str(&name).decode_utf8_lossy();
        let is_known = KNOWN.contains(&&*name) || name.starts_with("options[");
        if !is_known && !name.is_empty() {
            tracing::warn!(
                parameter = &*name,
                "DATABASE_URL has a parameter that perdiem does not know, so it has no effect"
            );
        }
        is_known
    };
    let kept: Vec<&str> = parameters.split('&').filter(is_known).collect();
    let fragment = fragment.map(|text| format!("#{text}")).unwrap_or_default();
    format!("{place}?{}{fragment}", kept.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_parameters_stay() {
        for (url, kept) in [
            ("postgres://u:p@h/d", "postgres://u:p@h/d"),
            (
                "postgres://h/d?sslmode=require&pasword=x",
                "postgres://h/d?sslmode=require",
            ),
            (
                "postgres://h/d?a=b&ssl%6Dode=require&c",
                "postgres://h/d?ssl%6Dode=require",
            ),
            (
                "postgres://h/d?options[jit]=off&x",
                "postgres://h/d?options[jit]=off",
            ),
            ("postgres://h/d?x=1", "postgres://h/d?"),
            ("postgres://h/d?port=1&x=2#f?y", "postgres://h/d?port=1#f?y"),
        ] {
            assert_eq!(only_known(url), kept, "{url}");
        }
    }
}
