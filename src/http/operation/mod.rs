//! An operation describes itself. The arguments of its handler say who may call it and what it takes, and a
//! [`Description`] beside the handler says the rest. The specification, the table of rights and the check of
//! queries are made from both, so none of them can disagree with the code.

mod answers;
mod description;

use std::collections::BTreeSet;

use actix_web::HttpRequest;
use actix_web::web::Data;
use utoipa::openapi::path::{self, Parameter, ParameterIn};
use utoipa::openapi::request_body::RequestBody;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{Content, Ref, RefOr, Required, Schema};
use utoipa::{IntoParams, IntoResponses, ToSchema};

use crate::answer::problem::MEDIA_TYPE;
use api::problem::Problem;
use description::Values;
pub(crate) use description::describe;
pub use description::{
    ACCOUNT, BUNDLE, Description, GRANT, ID, POLICY, POLICY_OF_SUBJECT, SUBJECT, TOP_UP,
};
use domain::key::Role;

/// An argument of a handler.
pub trait Argument {
    /// Adds what the argument means for the operation.
    fn describe(operation: &mut Operation);
}

/// What is known about an operation.
pub struct Operation {
    pub id: &'static str,
    /// The operation as the specification shows it.
    pub shown: path::Operation,
    /// The schemas to which it refers, by their names.
    pub schemas: Vec<(String, RefOr<Schema>)>,
    /// The answers that lead to it.
    pub sources: Vec<Source>,
    /// The roles that may call it; `None` if no key is needed.
    pub roles: Option<&'static [Role]>,
    pub reach: Reach,
    /// Whether the answer can be about one named subject, so that it is a read of this subject.
    pub is_about_subject: bool,
    /// The statuses whose problem is that of every operation, and no other one.
    pub common: BTreeSet<String>,
    /// The status of the last answer, to which header fields are added.
    last: String,
}

/// How an operation keeps a key that is confined to policies to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It is not about policies, and takes every key.
    Everything,
    /// The path names the policy. Without a policy in the path such a key is refused.
    InPath,
    /// The query names the policy.
    InQuery,
    /// The handler finds out which policies the answer is about.
    ByHandler,
}

/// The problem of every request for something that may not exist.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
enum Named {
    /// `unknown-policy`: there is no such policy, or it is archived; `not-found`: nothing has this
    /// id.
    #[response(status = 404)]
    NotFound,
}

/// The problem of every request with a condition.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
enum Conditional {
    /// `precondition-failed`: the policy, override, block or key has another version.
    #[response(status = 412)]
    PreconditionFailed,
}

/// The problems of every request with a body.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
enum WithBody {
    /// `slow-request`: the body did not arrive in time.
    #[response(status = 408)]
    SlowRequest,
    /// `too-large`: the body is over 64 KiB; of a batch, over 8 MiB.
    #[response(status = 413)]
    TooLarge,
    /// `encoded-body`: the body has a `Content-Encoding`.
    #[response(status = 415)]
    EncodedBody,
}

/// An answer that names what another operation takes.
#[derive(Debug)]
pub struct Source {
    pub operation: &'static str,
    pub status: String,
    pub values: Values,
}

impl Operation {
    /// The operation with this description, whose handler has these arguments.
    pub fn of<A: Argument>(description: &Description) -> Self {
        let mut operation = Self {
            id: description.id,
            shown: description.begin(),
            schemas: Vec::new(),
            sources: Vec::new(),
            roles: None,
            reach: Reach::Everything,
            is_about_subject: true,
            common: BTreeSet::new(),
            last: String::new(),
        };
        A::describe(&mut operation);
        // What the description says about an answer replaces what an argument says.
        (description.answers)(&mut operation);
        operation.finish();
        operation
    }

    /// Says that the request is open to everybody.
    pub fn is_open(&mut self) {
        self.shown.security = Some(vec![SecurityRequirement::default()]);
    }

    /// Says that the request needs a key with one of these roles.
    pub fn needs_key(&mut self, roles: &'static [Role], reach: Reach) {
        self.roles = Some(roles);
        self.reach = reach;
    }

    /// Says that the request has these parameters. What they name may not exist.
    pub fn takes<P: IntoParams>(&mut self) {
        for parameter in P::into_params(|| None) {
            match parameter.name.as_str() {
                "policy" | "id" | "revision" => self.has_common::<Named>(),
                "If-Match" => self.has_common::<Conditional>(),
                _ => continue,
            };
        }
        self.takes_new::<P>();
    }

    /// Says that the request has these parameters, and creates what they name.
    pub fn takes_new<P: IntoParams>(&mut self) {
        let parameters = P::into_params(|| None).into_iter().map(RefOr::T);
        let others = self.shown.parameters.get_or_insert_default();
        others.extend(parameters);
    }

    /// Says that the request has a body.
    pub fn takes_body<T: ToSchema>(&mut self, required: Option<Required>) {
        let content = Content::new(Some(self.refer_to::<T>()));
        let body = RequestBody::builder().content("application/json", content);
        self.shown.request_body = Some(RefOr::T(body.required(required).build()));
        self.has_common::<WithBody>();
    }

    /// A reference to the schema of a type, which the specification then has.
    fn refer_to<T: ToSchema>(&mut self) -> Ref {
        self.schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(&mut self.schemas);
        Ref::from_schema_name(T::name())
    }

    /// The names of the parameters in one part of the request.
    pub fn names_in(&self, part: ParameterIn) -> Vec<String> {
        let parameters = self.shown.parameters.iter().flatten();
        let names = parameters.filter_map(|parameter| match parameter {
            RefOr::T(it) if it.parameter_in == part => Some(it.name.clone()),
            _ => None,
        });
        names.collect()
    }

    fn finish(&mut self) {
        // 1. The parameters of the path come first, and those of the query last.
        let place = |parameter: &RefOr<Parameter>| match parameter {
            RefOr::T(it) if it.parameter_in == ParameterIn::Path => 0,
            RefOr::T(it) if it.parameter_in == ParameterIn::Header => 1,
            _ => 2,
        };
        if let Some(parameters) = &mut self.shown.parameters {
            parameters.sort_by_key(place);
        }
        // 2. Every problem without a body of its own has the problem document.
        let problem = Content::new(Some(Ref::from_schema_name(Problem::name())));
        for (status, response) in &mut self.shown.responses.responses {
            if let RefOr::T(response) = response
                && status.starts_with(['4', '5'])
                && response.content.is_empty()
            {
                let content = problem.clone().into();
                response.content.insert(MEDIA_TYPE.to_owned(), content);
            }
        }
        // 3. The prose ends with the roles.
        if let Some(roles) = self.roles {
            let roles: Vec<String> = roles.iter().map(|role| format!("`{role}`")).collect();
            let roles = format!("Roles: {}.", roles.join(", "));
            let prose = self.shown.description.take();
            let prose = prose.map_or(roles.clone(), |prose| format!("{prose}\n\n{roles}"));
            self.shown.description = Some(prose);
        }
    }
}

macro_rules! arguments {
    ($($name:ident)*) => {
        impl<$($name: Argument),*> Argument for ($($name,)*) {
            fn describe(_operation: &mut Operation) {
                $($name::describe(_operation);)*
            }
        }
    };
}

arguments!();
arguments!(A);
arguments!(A B);
arguments!(A B C);
arguments!(A B C D);
arguments!(A B C D E);
arguments!(A B C D E F);
arguments!(A B C D E F G);
arguments!(A B C D E F G H);

/// What a handler uses of the application, which no client sees.
impl<T: ?Sized> Argument for Data<T> {
    fn describe(_: &mut Operation) {}
}

/// The request as a whole. What a handler reads from it, another argument describes.
impl Argument for HttpRequest {
    fn describe(_: &mut Operation) {}
}
