//! The console, as a browser without JavaScript meets it.

mod approvals;
mod forms;
mod pages;
mod safety;
mod signing_in;

use percent_encoding::percent_decode_str;
use reqwest::header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Client, Method, RequestBuilder, StatusCode};

use crate::support::app::{App, client_builder};

/// A browser at the console of an application.
struct Browser {
    url: String,
    client: Client,
    cookie: Option<String>,
}

/// What a browser got.
#[derive(Debug)]
struct Got {
    status: StatusCode,
    /// Where it leads.
    location: String,
    /// The cookie that it sets.
    cookie: Option<String>,
    headers: reqwest::header::HeaderMap,
    html: String,
}

/// A form of a page: where it goes, and its hidden fields.
#[derive(Debug, Clone)]
struct Form {
    action: String,
    fields: Vec<(String, String)>,
}

impl Form {
    /// Fills a field, or replaces what it has.
    fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.retain(|(known, _)| known != name);
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl Browser {
    fn of(app: &App) -> Self {
        let client = client_builder().redirect(reqwest::redirect::Policy::none());
        Self {
            url: app.url.clone(),
            client: client.build().expect("a client"),
            cookie: None,
        }
    }

    /// A browser that signed in with a key.
    async fn signed_in(app: &App, secret: &str) -> Self {
        let mut browser = Self::of(app);
        let got = browser.sign_in(secret, "").await;
        assert_eq!(got.status, 303, "{got:?}");
        browser
    }

    async fn sign_in(&mut self, secret: &str, to: &str) -> Got {
        let form = Form {
            action: "/console/sign-in".to_owned(),
            fields: vec![
                ("key".to_owned(), secret.to_owned()),
                ("to".to_owned(), to.to_owned()),
            ],
        };
        let got = self.send(&form).await;
        if let Some(cookie) = &got.cookie {
            self.cookie = cookie.split(';').next().map(str::to_owned);
        }
        got
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        match &self.cookie {
            Some(cookie) => request.header(COOKIE, cookie),
            None => request,
        }
    }

    async fn open(&self, path: &str) -> Got {
        Got::of(self.request(Method::GET, path)).await
    }

    /// Opens a page that must be there.
    async fn page(&self, path: &str) -> Got {
        let got = self.open(path).await;
        assert_eq!(got.status, 200, "{path}: {got:?}");
        got
    }

    async fn send(&self, form: &Form) -> Got {
        let request = self.request(Method::POST, &form.action);
        Got::of(encoded(request, &form.fields).header("Sec-Fetch-Site", "same-origin")).await
    }

    /// Sends a form, and follows where it leads.
    async fn act(&self, form: &Form) -> Got {
        let got = self.send(form).await;
        assert_eq!(got.status, 303, "{form:?}: {got:?}");
        self.page(&got.location).await
    }
}

impl Got {
    async fn of(request: RequestBuilder) -> Self {
        let answer = request.send().await.expect("an answer");
        let text = |name| {
            let field = answer.headers().get(name);
            field.map(|field| field.to_str().expect("a text").to_owned())
        };
        Self {
            status: answer.status(),
            location: text(LOCATION).unwrap_or_default(),
            cookie: text(SET_COOKIE),
            headers: answer.headers().clone(),
            html: answer.text().await.expect("a text"),
        }
    }

    /// The form whose address ends so.
    fn form(&self, ends: &str) -> Form {
        let forms = self.html.split("<form method=\"post\" action=\"").skip(1);
        let found = forms.filter_map(|form| form.split_once('"'));
        let mut found = found.filter(|(action, _)| action.ends_with(ends));
        let (action, rest) = found
            .next()
            .unwrap_or_else(|| panic!("no form {ends}: {}", self.html));
        let inside = rest.split("</form>").next().unwrap_or_default();
        let hidden = inside.split("<input type=\"hidden\" name=\"").skip(1);
        let fields = hidden.filter_map(|field| {
            let (name, rest) = field.split_once("\" value=\"")?;
            let (value, _) = rest.split_once('"')?;
            Some((name.to_owned(), unescaped(value)))
        });
        Form {
            action: unescaped(action),
            fields: fields.collect(),
        }
    }

    /// What a person reads.
    fn text(&self) -> String {
        let mut text = String::new();
        let mut is_inside = false;
        for character in self.html.chars() {
            match character {
                '<' => is_inside = true,
                '>' => {
                    is_inside = false;
                    text.push(' ');
                }
                character if !is_inside => text.push(character),
                _ => {}
            }
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        unescaped(&words.join(" "))
    }

    /// Checks that a person reads this.
    fn says(&self, wanted: &str) -> &Self {
        let text = self.text();
        assert!(text.contains(wanted), "{wanted:?} is not in {text}");
        self
    }

    fn is_silent_about(&self, unwanted: &str) -> &Self {
        assert!(
            !self.html.contains(unwanted),
            "{unwanted:?} is in {}",
            self.html
        );
        self
    }

    /// The ids after a part of an address, such as those of grants after `/console/grants/`.
    fn ids(&self, after: &str) -> Vec<String> {
        let before = format!("href=\"{after}");
        let found = self.html.split(&before).skip(1);
        let ids = found.map(|rest| rest.split(['"', '/']).next().unwrap_or_default());
        let mut ids: Vec<String> = ids
            .map(|id| percent_decode_str(id).decode_utf8_lossy().into_owned())
            .collect();
        ids.dedup();
        ids
    }
}

/// A request with the fields of a form, as a browser sends them.
fn encoded<N: AsRef<str>, V: AsRef<str>>(
    request: RequestBuilder,
    fields: &[(N, V)],
) -> RequestBuilder {
    let mut body = form_urlencoded::Serializer::new(String::new());
    body.extend_pairs(fields);
    let body = body.finish();
    request
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(body)
}

fn unescaped(html: &str) -> String {
    html.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&amp;", "&")
}
