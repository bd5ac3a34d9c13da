//! The sign-in: the one page that needs no key.

use maud::{Markup, html};

use super::asking::with;
use super::frame;
use super::visit::Settings;

/// The address of the sign-in.
pub const SIGN_IN: &str = "/console/sign-in";

/// The address that begins a sign-in with an account.
pub const SIGN_ON: &str = "/console/sign-on";

/// The page that asks who is there. `to` is where the reader wanted to go.
pub fn sign_in_page(settings: &Settings, to: &str, fault: Option<&str>) -> String {
    frame::bare(settings, "Sign in", None, form(settings, to, fault))
}

/// The page after a sign-in with an account: it leads on by itself. A browser takes the way from it for a way within
/// the console, and that from the provider for a way from elsewhere, on which it shows no cookie.
pub fn signed_on_page(settings: &Settings, to: &str) -> String {
    let content = html! { p.lead { "You are signed in." } p { a.button href=(to) { "Go on" } } };
    frame::bare(settings, "Signed in", Some(to), content)
}

fn form(settings: &Settings, to: &str, fault: Option<&str>) -> Markup {
    html! {
        @if settings.has_accounts {
            p.lead { "Sign in with the account of your company, or with an API key." }
            p { a.button href=(with(SIGN_ON, &[("to", to)])) { "Sign in with your account" } }
        } @else {
            p.lead { "Sign in with an API key of the role support, audit or admin." }
        }
        form method="post" action=(SIGN_IN) {
            input type="hidden" name="to" value=(to);
            div.field {
                label for="key" { "API key" }
                input id="key" name="key" type="password" autocomplete="current-password" required
                    autofocus[!settings.has_accounts]
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
