//! A body that keeps a value until the body is written or dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;
use pin_project_lite::pin_project;

pin_project! {
    pub struct Kept<B, K> {
        #[pin]
        body: B,
        kept: K,
    }
}

impl<B, K> Kept<B, K> {
    pub fn with(body: B, kept: K) -> Self {
        Self { body, kept }
    }
}

impl<B: MessageBody, K> MessageBody for Kept<B, K> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        self.project().body.poll_next(context)
    }
}
