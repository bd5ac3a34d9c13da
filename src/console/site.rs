//! The addresses of the console, with their pages and their rights, and what every visit goes through.

use futures_util::future::LocalBoxFuture;
use maud::html;
use percent_encoding::percent_decode_str;

use super::asking::{Asker, PageFailure, Server};
use super::frame;
use super::pages::{
    approvals, blocks, bundle, changes, denials, entries, erasure, exports, find, grant, keys,
    overrides, policies, policy, policy_edit, reconciliations, refused, seals, subject, subjects,
    tiers, today, usage, versions,
};
use super::visit::{FormFields, Method, PageReply, Replied, Settings, Visit};
use api::keys::OwnKeyAnswer;

/// Who may open a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Everybody who may sign in.
    Reader,
    /// Who helps subjects.
    Helper,
    /// Who changes policies and keys.
    Administrator,
}

impl Rights {
    /// The roles that have these rights.
    pub fn roles(self) -> &'static [&'static str] {
        match self {
            Self::Reader => &["audit", "support", "admin"],
            Self::Helper => &["support", "admin"],
            Self::Administrator => &["admin"],
        }
    }
}

type Handler = for<'a> fn(&'a Visit<'a>) -> LocalBoxFuture<'a, Replied>;

/// A page: its method, its address, who may open it, and what makes it.
pub struct PlacedPage {
    pub method: Method,
    /// `{}` stands for any one part of the path.
    pub pattern: &'static str,
    pub rights: Rights,
    handler: Handler,
}

macro_rules! pages {
    ($($method:ident $pattern:literal $rights:ident $handler:path;)+) => {
        &[$(PlacedPage {
            method: Method::$method,
            pattern: $pattern,
            rights: Rights::$rights,
            handler: |visit| Box::pin($handler(visit)),
        }),+]
    };
}

/// Every page, and every form.
const PAGES: &[PlacedPage] = pages! {
    Get "/console" Reader today::show;
    Get "/console/find" Reader find::show;
    Get "/console/policies" Reader policies::show;
    Get "/console/new-policy" Administrator policy_edit::new;
    Post "/console/new-policy" Administrator policy_edit::preview;
    Get "/console/policies/{}" Reader policy::show;
    Get "/console/policies/{}/edit" Administrator policy_edit::edit;
    Post "/console/policies/{}/edit" Administrator policy_edit::preview;
    Post "/console/policies/{}/apply" Administrator policy_edit::apply;
    Get "/console/policies/{}/pause" Administrator policy_edit::ask_pause;
    Post "/console/policies/{}/pause" Administrator policy_edit::pause;
    Get "/console/policies/{}/archive" Administrator policy_edit::ask_archive;
    Post "/console/policies/{}/archive" Administrator policy_edit::archive;
    Get "/console/approve" Administrator approvals::show;
    Post "/console/approve" Administrator approvals::approve;
    Get "/console/policies/{}/versions" Reader versions::show;
    Get "/console/policies/{}/overrides" Reader overrides::list;
    Get "/console/policies/{}/overrides/{}" Reader overrides::show;
    Post "/console/policies/{}/overrides/{}" Helper overrides::put;
    Post "/console/policies/{}/overrides/{}/end" Helper overrides::end;
    Get "/console/policies/{}/tiers" Reader tiers::list;
    Get "/console/policies/{}/tiers/{}" Reader tiers::show;
    Post "/console/policies/{}/tiers/{}" Helper tiers::put;
    Post "/console/policies/{}/tiers/{}/end" Helper tiers::end;
    Get "/console/policies/{}/blocks" Reader blocks::list;
    Get "/console/policies/{}/blocks/{}" Reader blocks::show;
    Post "/console/policies/{}/blocks/{}" Helper blocks::put;
    Post "/console/policies/{}/blocks/{}/end" Helper blocks::end;
    Get "/console/subjects" Reader subjects::show;
    Get "/console/subjects/{}" Reader subject::show;
    Get "/console/subjects/{}/adjust" Administrator usage::ask_adjust;
    Post "/console/subjects/{}/adjust" Administrator usage::adjust;
    Get "/console/subjects/{}/reset" Administrator usage::ask_reset;
    Post "/console/subjects/{}/reset" Administrator usage::reset;
    Get "/console/subjects/{}/calendar" Administrator usage::ask_move;
    Post "/console/subjects/{}/calendar" Administrator usage::move_calendar;
    Get "/console/subjects/{}/top-up" Administrator usage::ask_top_up;
    Post "/console/subjects/{}/top-up" Administrator usage::top_up;
    Post "/console/subjects/{}/top-up/{}" Administrator usage::end_top_up;
    Get "/console/subjects/{}/erase" Administrator erasure::ask;
    Post "/console/subjects/{}/erase" Administrator erasure::erase;
    Get "/console/grants/{}" Reader grant::show;
    Get "/console/grants/{}/proof" Reader grant::proof;
    Get "/console/grants/{}/give-back" Helper grant::ask_give_back;
    Post "/console/grants/{}/give-back" Helper grant::give_back;
    Post "/console/grants/{}/confirm" Helper grant::confirm;
    Get "/console/bundles/{}" Reader bundle::show;
    Post "/console/bundles/{}/give-back" Helper bundle::give_back;
    Post "/console/bundles/{}/confirm" Helper bundle::confirm;
    Get "/console/entries" Reader entries::show;
    Get "/console/entries/export" Reader entries::export;
    Get "/console/denials" Reader denials::show;
    Get "/console/changes" Reader changes::show;
    Get "/console/keys" Reader keys::list;
    Get "/console/keys/new" Administrator keys::new;
    Post "/console/keys/new" Administrator keys::create;
    Get "/console/keys/{}" Reader keys::show;
    Post "/console/keys/{}/replace" Administrator keys::replace;
    Post "/console/keys/{}/end" Administrator keys::end;
    Post "/console/keys/{}/revoke" Administrator keys::revoke;
    Get "/console/reconciliations" Reader reconciliations::list;
    Post "/console/reconciliations" Reader reconciliations::run;
    Get "/console/reconciliations/{}" Reader reconciliations::show;
    Get "/console/seals" Reader seals::show;
    Get "/console/exports" Reader exports::list;
    Get "/console/exports/{}" Reader exports::show;
};

/// A request for a page, by somebody who is signed in.
pub struct Request<'r> {
    pub method: Method,
    /// The path as it came, with its escapes.
    pub path: &'r str,
    pub query: &'r str,
    pub form: &'r [u8],
}

/// The answer to a request.
pub enum PageAnswer {
    Page {
        status: u16,
        html: String,
    },
    Redirect(String),
    File {
        target: String,
    },
    /// The key is not valid any more.
    SignIn,
}

/// All addresses with their methods and the roles that may open them.
pub fn routes() -> impl Iterator<Item = (Method, &'static str, &'static [&'static str])> {
    PAGES
        .iter()
        .map(|page| (page.method, page.pattern, page.rights.roles()))
}

/// Answers a request.
pub async fn answer(server: &dyn Server, settings: &Settings, request: Request<'_>) -> PageAnswer {
    let now = server.now();
    let asker = Asker::new(server);
    // 1. Who reads? A key that is not valid any more leads to the sign-in.
    let reader: OwnKeyAnswer = match asker.get("/v1/keys/me".to_owned()).await {
        Ok(reader) => reader,
        Err(refusal) if refusal.status() == 401 => return PageAnswer::SignIn,
        Err(refusal) => return without_reader(settings, &refusal),
    };
    let found = find_page(request.method, request.path);
    let visit = Visit {
        server,
        asker: Asker::new(server),
        settings,
        reader,
        path: request.path.to_owned(),
        names: found
            .as_ref()
            .map_or(Vec::new(), |(_, names)| names.clone()),
        query: FormFields::read(request.query.as_bytes()),
        form: FormFields::read(request.form),
        now,
    };
    // 2. The page decides, if the reader may open it.
    let replied = match found {
        None => Err(PageFailure::NotFound(
            "There is nothing at this address.".to_owned(),
        )),
        Some((page, _)) => match may_open(&visit, page) {
            Some(why_not) => Ok(refused::forbidden(&visit, &why_not).into()),
            None => (page.handler)(&visit).await,
        },
    };
    // 3. What was refused has a page too.
    match replied.unwrap_or_else(|refusal| refused::page(&visit, &refusal).into()) {
        PageReply::Page(shown) => PageAnswer::Page {
            status: shown.status,
            html: frame::page(&visit, &shown),
        },
        PageReply::Redirect(target) => PageAnswer::Redirect(target),
        PageReply::File { target } => PageAnswer::File { target },
    }
}

/// Why the reader may not open a page; `None` if it may.
fn may_open(visit: &Visit<'_>, page: &PlacedPage) -> Option<String> {
    let role = &*visit.reader.role;
    let roles = page.rights.roles();
    if !roles.contains(&role) {
        let roles = roles.join(" or ");
        return Some(format!(
            "Your key has the role {role}. This needs the role {roles}."
        ));
    }
    if page.method == Method::Get {
        return None;
    }
    if visit.settings.is_read_only {
        return Some("This console only shows. Use the command line or the API.".to_owned());
    }
    let is_own = visit.form.get("form") == visit.server.form_token(&visit.path);
    (!is_own).then(|| {
        "This form is older than your sign-in, or comes from another page. Open the page again, and send its form."
            .to_owned()
    })
}

fn without_reader(settings: &Settings, refusal: &PageFailure) -> PageAnswer {
    let content = html! {
        p.lead { (refusal.to_string()) }
        p { a.button href="/console" { "Try again" } }
    };
    PageAnswer::Page {
        status: refusal.status(),
        html: frame::bare(settings, "This page is not available now", None, content),
    }
}

fn find_page(method: Method, path: &str) -> Option<(&'static PlacedPage, Vec<String>)> {
    // A path has two names at most; an address of its own comes before one with a name.
    let of_method = PAGES.iter().filter(|page| page.method == method);
    of_method.into_iter().find_map(|page| {
        let names = names_in(page.pattern, path)?;
        Some((page, names))
    })
}

/// The parts of a path for the names of a pattern, if the path matches it.
fn names_in(pattern: &str, path: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut parts = path.split('/');
    for wanted in pattern.split('/') {
        match (wanted, parts.next()?) {
            ("{}", "") => return None,
            ("{}", part) => names.push(percent_decode_str(part).decode_utf8().ok()?.into_owned()),
            (wanted, part) if wanted == part => {}
            _ => return None,
        }
    }
    parts.next().is_none().then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_finds_its_own_page() {
        for page in PAGES {
            let path = page.pattern.replace("{}", "a");
            let (found, _) = find_page(page.method, &path).unwrap();
            assert_eq!(found.pattern, page.pattern);
        }
        for path in [
            "",
            "/",
            "/console/",
            "/console/policies/",
            "/console/policies//edit",
            "/consolex",
        ] {
            assert!(find_page(Method::Get, path).is_none(), "{path}");
        }
    }

    #[test]
    fn names_are_decoded() {
        let names = names_in("/console/subjects/{}", "/console/subjects/a%2Fb%20%C3%BC");
        assert_eq!(names, Some(vec!["a/b ü".to_owned()]));
        assert_eq!(
            names_in("/console/subjects/{}", "/console/subjects/%FF"),
            None
        );
    }
}
