//! The settings of signing in to the console with the account of a company.

use clap::Args;

use crate::setting::{WrongSetting, read_secret};
use sign_on::{SignOnSettings, is_safe_address, read_roles};

const ISSUER: &str = "PERDIEM_OIDC_ISSUER";
const ROLES: &str = "PERDIEM_OIDC_ROLES";
const URL: &str = "PERDIEM_CONSOLE_URL";

#[derive(Debug, Clone, Args)]
pub struct SignOnArgs {
    /// URL of the provider of accounts (OpenID Connect), with which people sign in to the console
    #[arg(
        long,
        env = "PERDIEM_OIDC_ISSUER",
        value_name = "URL",
        conflicts_with = "read_only"
    )]
    oidc_issuer: Option<String>,

    /// What the provider calls perdiem
    #[arg(long, env = "PERDIEM_OIDC_CLIENT_ID", value_name = "ID")]
    oidc_client_id: Option<String>,

    /// The secret that the provider gave to perdiem
    #[arg(
        long,
        env = "PERDIEM_OIDC_CLIENT_SECRET",
        hide_env_values = true,
        value_name = "SECRET",
        conflicts_with = "oidc_client_secret_file"
    )]
    oidc_client_secret: Option<String>,

    /// File that contains the secret that the provider gave to perdiem
    #[arg(long, env = "PERDIEM_OIDC_CLIENT_SECRET_FILE", value_name = "FILE", value_parser = read_secret)]
    oidc_client_secret_file: Option<String>,

    /// The roles of groups, such as admins=admin,auditors=audit,helpdesk=support:10:30. The first group
    /// that a person has decides
    #[arg(long, env = "PERDIEM_OIDC_ROLES", value_name = "GROUP=ROLE,…")]
    oidc_roles: Option<String>,

    /// The claim that has a person's groups: its name, or a JSON pointer to it
    #[arg(
        long,
        env = "PERDIEM_OIDC_GROUPS_CLAIM",
        value_name = "CLAIM",
        default_value = "groups"
    )]
    oidc_groups_claim: String,

    /// The scopes to ask for
    #[arg(
        long,
        env = "PERDIEM_OIDC_SCOPES",
        value_name = "SCOPES",
        default_value = "openid profile email"
    )]
    oidc_scopes: String,

    /// Address at which people find perdiem: the provider sends them back there
    #[arg(long, env = "PERDIEM_CONSOLE_URL", value_name = "URL")]
    console_url: Option<String>,
}

impl SignOnArgs {
    /// The settings of sign-ins; `None` without a provider.
    ///
    /// # Errors
    /// A setting is missing, or cannot be used.
    pub fn settings(&self) -> Result<Option<SignOnSettings>, WrongSetting> {
        let secret = self.oidc_client_secret_file.as_ref();
        let given = [
            (ISSUER, self.oidc_issuer.as_ref()),
            ("PERDIEM_OIDC_CLIENT_ID", self.oidc_client_id.as_ref()),
            (
                "PERDIEM_OIDC_CLIENT_SECRET",
                secret.or(self.oidc_client_secret.as_ref()),
            ),
            (ROLES, self.oidc_roles.as_ref()),
            (URL, self.console_url.as_ref()),
        ];
        if given.iter().all(|(_, value)| value.is_none()) {
            return Ok(None);
        }
        let [issuer, client_id, client_secret, roles, url] = given.map(|(setting, value)| {
            let reason = "is missing: people cannot sign in with an account without it";
            value.cloned().ok_or(WrongSetting::new(setting, reason))
        });
        let settings = SignOnSettings {
            issuer: issuer?,
            client_id: client_id?,
            client_secret: client_secret?,
            url: url?.trim_end_matches('/').to_owned(),
            scopes: self.oidc_scopes.clone(),
            groups_claim: self.oidc_groups_claim.clone(),
            roles: read_roles(&roles?)
                .map_err(|reason| WrongSetting::new(ROLES, format!("cannot be used: {reason}")))?,
        };
        let mut scopes = settings.scopes.split(' ');
        if !scopes.any(|scope| scope == "openid") {
            return Err(WrongSetting::new(
                "PERDIEM_OIDC_SCOPES",
                "needs the scope openid",
            ));
        }
        for (setting, address) in [(ISSUER, &settings.issuer), (URL, &settings.url)] {
            if !is_safe_address(address) {
                let reason = "cannot be used: write an address with https (http on this machine only), without a \
                              query, such as https://perdiem.example";
                return Err(WrongSetting::new(setting, reason));
            }
        }
        Ok(Some(settings))
    }
}
