//! The URLs: how a request finds its URL, with its methods and its bounds, and what each method says of itself.

use std::rc::Rc;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::Method;
use actix_web::{FromRequest, Handler, HttpMessage, HttpRequest, HttpResponse, Responder};
use futures_util::future::LocalBoxFuture;
use percent_encoding::percent_decode_str;
use utoipa::openapi::path::ParameterIn;

use crate::answer::ApiError;
use crate::operation::{Argument, Description, Operation};

/// A handler, with the extraction of its arguments.
pub type Handling = Rc<dyn Fn(HttpRequest, Payload) -> LocalBoxFuture<'static, HttpResponse>>;

/// The largest body, in bytes, where a URL has no bound of its own.
const BODY_MAX_BYTES: usize = 64 * 1024;
/// The longest that a request may wait for something to happen, in addition to the time of its
/// answer.
pub const WAIT_MOST: Duration = Duration::from_secs(30);
/// The most names in a path.
const NAMES_MOST: usize = 3;

/// The bounds of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounded {
    /// A claim or correction. It has a place among those in progress, and a deadline
    /// (`claims/submit.rs`).
    Claim,
    /// The claims of a batch. Each one gets such a place in its turn. All have one deadline.
    Batch,
    /// A read or a change. It has a place, and its answer has a time limit. It keeps the place
    /// until the answer is written, so that slow readers cost little memory.
    Asked,
    /// A read that may wait first. The handler takes a place for each read, and none while it
    /// waits.
    Waits,
    /// An export or a backtest. These have places of their own (`claims/instance/callers.rs`), and more
    /// time until the answer begins.
    Long,
    /// A request that costs the ledger nothing.
    Open,
}

pub struct Route {
    /// The path; `{name}` matches any one segment.
    pattern: &'static str,
    /// The pattern up to the first name.
    start: &'static str,
    /// Each name, with the text that follows it in the pattern.
    names: Vec<(&'static str, &'static str)>,
    pub bounded: Bounded,
    body_max_bytes: usize,
    has_slashes: bool,
    methods: Vec<Served>,
}

/// A method of a URL.
struct Served {
    method: Method,
    handling: Handling,
    taken: Rc<Taken>,
    operation: Option<DescribedOperation>,
}

/// The names of the parameters that a method takes.
#[derive(Default)]
pub struct Taken {
    pub in_query: Vec<String>,
    /// Fields of the header.
    pub in_head: Vec<String>,
}

impl Taken {
    fn by(operation: &Operation) -> Self {
        Self {
            in_query: operation.names_in(ParameterIn::Query),
            in_head: operation.names_in(ParameterIn::Header),
        }
    }
}

/// Makes the operation when it is asked for: a server that nobody asks keeps no schemas.
type DescribedOperation = Box<dyn Fn() -> Operation>;

fn described<Args: Argument + 'static>(description: Description) -> DescribedOperation {
    Box::new(move || Operation::of::<Args>(&description))
}

/// Makes a function from a request to an answer of a handler.
pub fn handling<F, Args>(handler: F) -> Handling
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    Rc::new(move |request, mut payload| {
        let handler = handler.clone();
        Box::pin(async move {
            match Args::from_request(&request, &mut payload).await {
                Ok(args) => {
                    let answer = handler.call(args).await;
                    answer.respond_to(&request).map_into_boxed_body()
                }
                Err(error) => HttpResponse::from_error(error),
            }
        })
    })
}

macro_rules! methods {
    ($($name:ident: $method:ident;)+) => {$(
        pub fn $name<F, Args>(self, handler: F, description: Description) -> Self
        where
            F: Handler<Args>,
            Args: Argument + FromRequest + 'static,
            F::Output: Responder + 'static,
        {
            self.serve(Method::$method, handling(handler), Some(described::<Args>(description)))
        }
    )+};
}

impl Route {
    methods! {
        get: GET;
        post: POST;
        put: PUT;
        patch: PATCH;
        delete: DELETE;
    }

    /// Serves files that belong to no interface: the specification does not have them.
    pub fn files<F, Args>(self, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: Argument + FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        self.serve(Method::GET, handling(handler), None)
    }

    /// Serves pages with forms, which belong to no interface either.
    pub fn pages<F, Args>(self, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: Argument + FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        let handling = handling(handler);
        self.serve(Method::GET, handling.clone(), None)
            .serve(Method::POST, handling, None)
    }

    fn serve(
        mut self,
        method: Method,
        handling: Handling,
        operation: Option<DescribedOperation>,
    ) -> Self {
        let taken = operation.as_ref().map(|operation| Taken::by(&operation()));
        let taken = Rc::new(taken.unwrap_or_default());
        let is_get = method == Method::GET;
        self.methods.push(Served {
            method,
            handling: handling.clone(),
            taken: taken.clone(),
            operation,
        });
        if is_get {
            // HEAD is GET without the body (RFC 9110, section 9.3.2).
            self.methods.push(Served {
                method: Method::HEAD,
                handling,
                taken,
                operation: None,
            });
        }
        self
    }

    pub fn at(pattern: &'static str, bounded: Bounded) -> Self {
        let mut parts = pattern.split('{');
        let start = parts.next().unwrap_or_default();
        let names: Vec<_> = parts.filter_map(|part| part.split_once('}')).collect();
        assert!(names.len() <= NAMES_MOST, "{pattern}");
        Self {
            pattern,
            start,
            names,
            bounded,
            body_max_bytes: BODY_MAX_BYTES,
            has_slashes: false,
            methods: Vec::new(),
        }
    }

    /// Lets the last name match the whole rest of the path, with slashes.
    pub fn with_slashes(self) -> Self {
        Self {
            has_slashes: true,
            ..self
        }
    }

    pub fn body_max_bytes(self, body_max_bytes: usize) -> Self {
        Self {
            body_max_bytes,
            ..self
        }
    }

    /// Passes a request to the handler of its method.
    pub async fn handle(&self, request: HttpRequest, payload: Payload) -> HttpResponse {
        match self.served(request.method()) {
            Some(served) => (served.handling)(request, payload).await,
            None => HttpResponse::from_error(ApiError::MethodNotAllowed(self.allowed())),
        }
    }

    fn served(&self, method: &Method) -> Option<&Served> {
        self.methods.iter().find(|served| served.method == method)
    }

    fn allowed(&self) -> String {
        let methods: Vec<&str> = self.methods.iter().map(|it| it.method.as_str()).collect();
        methods.join(", ")
    }

    /// The segment for each name, if the path matches this URL.
    fn segments<'p>(&self, path: &'p str) -> Option<[&'p str; NAMES_MOST]> {
        let mut segments = [""; NAMES_MOST];
        let mut rest = path.strip_prefix(self.start)?;
        for (index, (_, follows)) in self.names.iter().enumerate() {
            let takes_all = self.has_slashes && index + 1 == self.names.len();
            let end = rest.bytes().position(|byte| byte == b'/' && !takes_all);
            let (found, after) = rest.split_at(end.unwrap_or(rest.len()));
            if found.is_empty() {
                return None;
            }
            segments[index] = found;
            rest = after.strip_prefix(follows)?;
        }
        rest.is_empty().then_some(segments)
    }
}

/// All URLs, in the order in which they are tried.
pub struct Routes {
    routes: Vec<Rc<Route>>,
    /// Whether every answer says that it comes from a sandbox.
    pub is_sandbox: bool,
}

impl Routes {
    pub fn new(routes: Vec<Route>) -> Self {
        Self {
            routes: routes.into_iter().map(Rc::new).collect(),
            is_sandbox: false,
        }
    }

    /// These URLs, and others after them.
    pub fn and(mut self, others: Vec<Route>) -> Self {
        self.routes.extend(others.into_iter().map(Rc::new));
        self
    }

    /// The same URLs with other handlers: `change` gets each one with the bounds of its URL and its
    /// method.
    pub fn with_handlings(self, change: impl Fn(Bounded, &Method, Handling) -> Handling) -> Self {
        let changed = |route: Rc<Route>| {
            let mut route = Rc::into_inner(route).expect("no request is in progress yet");
            let methods = route.methods.into_iter().map(|served| Served {
                handling: change(route.bounded, &served.method, served.handling),
                ..served
            });
            route.methods = methods.collect();
            Rc::new(route)
        };
        Self {
            routes: self.routes.into_iter().map(changed).collect(),
            ..self
        }
    }

    /// Finds the URL of a request, and stores it in the request.
    pub fn find(&self, request: &HttpRequest) -> Option<Rc<Route>> {
        let path = request.match_info().as_str();
        let is_at = |route: &&Rc<Route>| route.segments(path).is_some();
        let found = self.routes.iter().find(is_at)?.clone();
        request.extensions_mut().insert(found.clone());
        Some(found)
    }
}

/// An operation with its place and its bounds.
pub struct PlacedOperation {
    pub pattern: &'static str,
    pub method: Method,
    pub bounded: Bounded,
    pub operation: Operation,
}

impl Routes {
    /// What each method of each URL says of itself.
    pub fn operations(&self) -> Vec<PlacedOperation> {
        let of_route = |route: &Rc<Route>| {
            let described = route.methods.iter().filter_map(|served| {
                Some(PlacedOperation {
                    pattern: route.pattern,
                    method: served.method.clone(),
                    bounded: route.bounded,
                    operation: served.operation.as_ref()?(),
                })
            });
            described.collect::<Vec<_>>()
        };
        self.routes.iter().flat_map(of_route).collect()
    }
}

pub fn pattern(request: &HttpRequest) -> Option<&'static str> {
    let extensions = request.extensions();
    extensions.get::<Rc<Route>>().map(|route| route.pattern)
}

/// The parameters that this request may have.
pub fn taken(request: &HttpRequest) -> Rc<Taken> {
    let extensions = request.extensions();
    let route = extensions.get::<Rc<Route>>();
    let served = route.and_then(|route| route.served(request.method()));
    served.map_or_else(Rc::default, |served| served.taken.clone())
}

/// The largest body of this request, in bytes.
pub fn body_max_bytes(request: &HttpRequest) -> usize {
    let extensions = request.extensions();
    let route = extensions.get::<Rc<Route>>();
    route.map_or(BODY_MAX_BYTES, |route| route.body_max_bytes)
}

/// The segment of a request's path for a name in its URL. The escapes that actix leaves (`%2F`,
/// `%25`, `%2B`) are decoded.
pub fn segment(request: &HttpRequest, name: &str) -> Option<String> {
    let extensions = request.extensions();
    let route = extensions.get::<Rc<Route>>()?;
    let index = route.names.iter().position(|(known, _)| *known == name)?;
    let segment = route.segments(request.match_info().as_str())?[index];
    let decoded = percent_decode_str(segment).decode_utf8_lossy();
    Some(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_name_matches_slashes() {
        let route = Route::at("/gate/{policy}/{settings}", Bounded::Open).with_slashes();
        let found = route.segments("/gate/benefit/by=x-user/../a//");
        assert_eq!(found, Some(["benefit", "by=x-user/../a//", ""]));
        for path in ["/gate/benefit", "/gate/benefit/", "/gate//by=x-user"] {
            assert_eq!(route.segments(path), None, "{path}");
        }
    }

    #[test]
    fn paths_are_found_by_their_segments() {
        let claims = Route::at("/v1/policies/{policy}/claims", Bounded::Claim);
        let usage = Route::at("/v1/policies/{policy}/subjects/{subject}", Bounded::Asked);
        let livez = Route::at("/livez", Bounded::Open);
        for (route, path, segments) in [
            (&claims, "/v1/policies/benefit/claims", ["benefit", "", ""]),
            (&claims, "/v1/policies/a%2Fb/claims", ["a%2Fb", "", ""]),
            (&usage, "/v1/policies/a/subjects/b", ["a", "b", ""]),
            (
                &usage,
                "/v1/policies/subjects/subjects/ü",
                ["subjects", "ü", ""],
            ),
            (&livez, "/livez", ["", "", ""]),
        ] {
            assert_eq!(route.segments(path), Some(segments), "{path}");
        }
        for path in [
            "",
            "/",
            "*",
            "/livez/",
            "//livez",
            "/LIVEZ",
            "/v1/policies//claims",
            "/v1/policies/benefit/claims/",
            "/v1/policies/benefit/claim",
            "/v1/policies/benefit/claims1",
            "/v1/policies/benefit/claims/1",
            "/v1/policies/a/b/claims",
            "//v1/policies/benefit/claims",
            "/v1/policies/benefit%2Fclaims",
            "/v1/policies/a/subjects/",
            "/v1/policies/a/subjects/b/c",
        ] {
            let routes = [&claims, &usage, &livez];
            let is_at = |route: &&Route| route.segments(path).is_some();
            assert!(!routes.iter().any(is_at), "{path}");
        }
    }
}
