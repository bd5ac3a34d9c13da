//! A body that keeps a value until the body is written or dropped, and that is written in pieces.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;
use pin_project_lite::pin_project;

/// The largest piece. actix copies each piece into the buffer of the connection. So a client that
/// does not read costs a piece, and not a copy of its whole answer.
const PIECE_MOST: usize = 16 * 1024;

pin_project! {
    pub struct Kept<B, K> {
        #[pin]
        body: B,
        // What is left of the last bytes of the body.
        rest: Bytes,
        kept: K,
    }
}

impl<B, K> Kept<B, K> {
    pub fn with(body: B, kept: K) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            kept,
        }
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
        let this = self.project();
        if this.rest.is_empty() {
            match ready!(this.body.poll_next(context)) {
                Some(Ok(bytes)) => *this.rest = bytes,
                ended => return Poll::Ready(ended),
            }
        }
        let length = this.rest.len().min(PIECE_MOST);
        Poll::Ready(Some(Ok(this.rest.split_to(length))))
    }
}
