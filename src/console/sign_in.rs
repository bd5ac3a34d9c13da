//! The sign-in: the one page that needs no key.

use maud::{Markup, html};

use super::frame;
use super::visit::Settings;

/// The address of the sign-in.
pub const SIGN_IN: &str = "/console/sign-in";

/// The page that asks for a key. `to` is where the reader wanted to go.
pub fn sign_in_page(settings: &Settings, to: &str, fault: Option<&str>) -> String {
    frame::bare(settings, "Sign in", form(to, fault))
}

fn form(to: &str, fault: Option<&str>) -> Markup {
    html! {
        p.lead { "Sign in with an API key of the role support, audit or admin." }
        form method="post" action=(SIGN_IN) {
            input type="hidden" name="to" value=(to);
            div.field {
                label for="key" { "API key" }
                input id="key" name="key" type="password" autocomplete="current-password" required autofocus
                    aria-describedby=[fault.map(|_| "key-fault")] aria-invalid=[fault.map(|_| "true")];
                @if let Some(fault) = fault { p.fault id="key-fault" role="alert" { (fault) } }
            }
            button { "Sign in" }
        }
        p.muted {
            "The key stays between your browser and this server. You are signed out after 8 hours, or within a \
             second when the key is revoked."
        }
    }
}
