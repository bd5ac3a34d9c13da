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
        let secret = secret.or(self.oidc_client_secret.as_ref());
        let roles = self.oidc_roles.as_deref();
        let needed = [
            (ISSUER, self.oidc_issuer.is_some()),
            ("PERDIEM_OIDC_CLIENT_ID", self.oidc_client_id.is_some()),
            ("PERDIEM_OIDC_CLIENT_SECRET", secret.is_some()),
            (ROLES, roles.is_some()),
            (URL, self.console_url.is_some()),
        ];
        let (Some(issuer), Some(client_id), Some(client_secret), Some(roles), Some(url)) = (
            &self.oidc_issuer,
            &self.oidc_client_id,
            secret,
            roles,
            &self.console_url,
        ) else {
            let missing = needed.iter().find(|(_, is_given)| !is_given);
            let is_any_given = needed.iter().any(|(_, is_given)| *is_given);
            return match missing.filter(|_| is_any_given) {
                Some((setting, _)) => wrong(
                    setting,
                    "is missing: people cannot sign in with an account without it",
                ),
                None => Ok(None),
            };
        };
        let roles = read_roles(roles)
            .or_else(|reason| wrong(ROLES, &format!("cannot be used: {reason}")))?;
        if !self.oidc_scopes.split(' ').any(|scope| scope == "openid") {
            return wrong("PERDIEM_OIDC_SCOPES", "needs the scope openid");
        }
        let url = url.trim_end_matches('/');
        for (setting, address) in [(ISSUER, issuer.as_str()), (URL, url)] {
            if !is_safe_address(address) {
                let reason = "cannot be used: write an address with https (http on this machine only), without a \
                              query, such as https://perdiem.example";
                return wrong(setting, reason);
            }
        }
        Ok(Some(SignOnSettings {
            issuer: issuer.clone(),
            client_id: client_id.clone(),
            client_secret: client_secret.clone(),
            url: url.to_owned(),
            scopes: self.oidc_scopes.clone(),
            groups_claim: self.oidc_groups_claim.clone(),
            roles,
        }))
    }
}

fn wrong<T>(setting: &'static str, reason: &str) -> Result<T, WrongSetting> {
    Err(WrongSetting {
        setting,
        reason: reason.to_owned(),
    })
}
