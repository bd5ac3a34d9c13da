//! The settings of sign-ins.

use domain::key::{Role, SupportBounds};

use super::BACK;

/// What the members of a group may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleOfGroup {
    pub group: String,
    pub role: Role,
    /// Of the role support.
    pub bounds: Option<SupportBounds>,
}

#[derive(Debug, Clone)]
pub struct SignOnSettings {
    /// The URL of the provider, as the provider itself writes it.
    pub issuer: String,
    pub client_id: String,
    pub client_secret: String,
    /// Where people find perdiem, without a slash at the end.
    pub url: String,
    pub scopes: String,
    /// The claim that has the groups: its name, or a JSON pointer to it.
    pub groups_claim: String,
    /// The first of them whose group a person has decides.
    pub roles: Vec<RoleOfGroup>,
}

impl SignOnSettings {
    /// Where the provider sends a browser back.
    pub fn redirect_uri(&self) -> String {
        format!("{}{BACK}", self.url)
    }
}

/// Reads which roles groups have: `admins=admin,auditors=audit,helpdesk=support:10:30`.
///
/// # Errors
/// What is wrong, and what to write.
pub fn read_roles(text: &str) -> Result<Vec<RoleOfGroup>, String> {
    text.split(',').map(|part| read_role(part.trim())).collect()
}

fn read_role(part: &str) -> Result<RoleOfGroup, String> {
    let (group, rest) = part
        .rsplit_once('=')
        .filter(|(group, _)| !group.is_empty())
        .ok_or_else(|| {
            format!("{part:?} names no group and role: write one such as admins=admin")
        })?;
    let mut words = rest.split(':');
    let role = words.next().unwrap_or_default().parse::<Role>();
    let role = role.map_err(|error| format!("{part:?}: {error}"))?;
    let bounds: Vec<&str> = words.collect();
    let bounds = match (role, &bounds[..]) {
        (Role::Claim, _) => {
            return Err(format!(
                "{part:?}: the role claim is for backends; write support, audit or admin"
            ));
        }
        (Role::Support, [max, days]) => Some(
            read_bounds(max, days)
                .ok_or_else(|| format!("{part:?}: write numbers, such as support:10:30"))?,
        ),
        (Role::Support, _) => {
            return Err(format!(
                "{part:?}: support needs bounds: the largest max of an override, and for how many \
                 days it may last, such as support:10:30"
            ));
        }
        (Role::Audit | Role::Admin, []) => None,
        (Role::Audit | Role::Admin, _) => return Err(format!("{part:?}: only support has bounds")),
    };
    Ok(RoleOfGroup {
        group: group.to_owned(),
        role,
        bounds,
    })
}

fn read_bounds(max: &str, days: &str) -> Option<SupportBounds> {
    SupportBounds::new(max.parse().ok()?, days.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_of_groups_are_read() {
        let roles = read_roles("/team/ops=admin, a=b=audit,help desk=support:10:30").unwrap();
        let role = |group: &str, role, bounds| RoleOfGroup {
            group: group.to_owned(),
            role,
            bounds,
        };
        let expected = [
            role("/team/ops", Role::Admin, None),
            role("a=b", Role::Audit, None),
            role("help desk", Role::Support, SupportBounds::new(10, 30)),
        ];
        assert_eq!(roles, expected);
    }

    #[test]
    fn what_is_no_role_is_refused() {
        for text in [
            "",
            "admins",
            "=admin",
            "admins=root",
            "backends=claim",
            "admins=admin:1:2",
            "help=support",
            "help=support:10",
            "help=support:ten:30",
            "help=support:0:30",
            "help=support:10:401",
            "admins=admin,",
        ] {
            assert!(read_roles(text).is_err(), "{text}");
        }
    }
}
