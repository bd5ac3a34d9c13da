//! The answers of an operation, as its description and its arguments add them. An answer replaces an earlier
//! one with the same status.

use utoipa::openapi::header::Header;
use utoipa::openapi::response::Response;
use utoipa::openapi::{Content, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::description::Values;
use super::{Operation, Source};
use crate::answer::problem::MEDIA_TYPE;

/// The problem of an answer that can need entries that were archived and dropped.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
enum NeedsEntries {
    /// `archived`: the answer needs entries that were archived and dropped.
    #[response(status = 410)]
    Archived,
}

impl Operation {
    /// An answer with a JSON body.
    pub fn json<T: ToSchema>(&mut self, status: u16, when: &str) -> &mut Self {
        let schema = self.refer_to::<T>();
        self.content(status, when, schema, &["application/json"])
    }

    /// An answer with a text.
    pub fn text(&mut self, status: u16, when: &str, media_types: &[&str]) -> &mut Self {
        self.content(status, when, String::schema(), media_types)
    }

    /// An answer with a body of one of several media types.
    pub fn content(
        &mut self,
        status: u16,
        when: &str,
        schema: impl Into<RefOr<Schema>>,
        media_types: &[&str],
    ) -> &mut Self {
        let content = Content::new(Some(schema));
        let mut response = Response::new(when);
        for media_type in media_types {
            let content = content.clone().into();
            response.content.insert((*media_type).to_owned(), content);
        }
        self.last = status.to_string();
        self.common.remove(&self.last);
        let responses = &mut self.shown.responses.responses;
        responses.insert(self.last.clone(), response.into());
        self
    }

    /// A problem. Its body is the problem document.
    pub fn problem(&mut self, status: u16, when: &str) -> &mut Self {
        self.text(status, when, &[])
    }

    /// Problems that every operation can have.
    pub fn has_common<P: IntoResponses>(&mut self) -> &mut Self {
        let problems = P::responses();
        self.common.extend(problems.keys().cloned());
        self.shown.responses.responses.extend(problems);
        self
    }

    /// A problem whose document has more fields.
    pub fn problem_with<T: ToSchema>(&mut self, status: u16, when: &str) -> &mut Self {
        let schema = self.refer_to::<T>();
        self.content(status, when, schema, &[MEDIA_TYPE])
    }

    /// A header field of the last answer.
    pub fn header<T: PartialSchema>(&mut self, name: &str, what: &str) -> &mut Self {
        let header = Header::builder().schema(Some(T::schema()));
        self.with(name, header.description(Some(what)).build())
    }

    /// The last answer has an ETag.
    pub fn etag(&mut self) -> &mut Self {
        self.with("ETag", Header::new(String::schema()))
    }

    fn with(&mut self, name: &str, header: Header) -> &mut Self {
        if let Some(RefOr::T(last)) = self.shown.responses.responses.get_mut(&self.last) {
            last.headers.insert(name.to_owned(), header.into());
        }
        self
    }

    /// No answer is about one named subject.
    pub fn is_about_nobody(&mut self) -> &mut Self {
        self.is_about_subject = false;
        self
    }

    /// The answer can need entries that were archived and dropped.
    pub fn needs_entries(&mut self) -> &mut Self {
        self.has_common::<NeedsEntries>()
    }

    /// An answer of another operation names what this one takes.
    pub fn follows(&mut self, operation: &'static str, status: u16, values: Values) -> &mut Self {
        self.sources.push(Source {
            operation,
            status: status.to_string(),
            values,
        });
        self
    }
}
