//! A body that holds its request's place until it ends.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::permit::Holding;
use crate::answer::AnswerBody;

type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// The body of a [`Concurrency`](crate::Concurrency) service's response. Its request is in flight until it ends, fails
    /// or is dropped.
    ///
    /// Every frame is passed on, trailers included, and so are the length and the end of the inner body. It is `Send`,
    /// `Sync` and `Default` where that is.
    pub struct PermitBody<B> {
        #[pin]
        inner: AnswerBody<B>,
        held: Option<Holding>,
    }
}

impl<B> PermitBody<B> {
    pub(super) fn new(inner: AnswerBody<B>, held: Option<Holding>) -> Self {
        Self { inner, held }
    }
}

impl<B> Body for PermitBody<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        // A server does not ask again when the whole length is there.
        if !matches!(frame, Some(Ok(_))) || this.inner.is_end_stream() {
            *this.held = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B: Default> Default for PermitBody<B> {
    fn default() -> Self {
        Self::new(AnswerBody::default(), None)
    }
}

impl<B> fmt::Debug for PermitBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, held } = self;
        f.debug_struct("PermitBody").field("inner", inner).field("is_in_flight", &held.is_some()).finish()
    }
}
