//! The body of an answer: the inner service's, or that of a refusal.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use pin_project_lite::pin_project;

type BoxError = Box<dyn Error + Send + Sync>;

/// Any body that [`reject_with`](crate::QuotaLayer::reject_with) may answer with.
pub trait AnyBody: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static {}

impl<B> AnyBody for B where B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static {}

pin_project! {
    /// The body of a [`Metered`](crate::Metered) service's response: that of the inner service, passed on frame by frame,
    /// or that of a refusal.
    ///
    /// It is `Send`, `Sync` and `Default` where the inner body is.
    pub struct AnswerBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<B> {
        Inner { #[pin] body: B },
        // Rare, and large: in a box.
        Refusal { body: Pin<Box<Refusal>> },
    }
}

pin_project! {
    /// The body of a refusal.
    #[project = RefusalProjection]
    pub(crate) enum Refusal {
        Whole { #[pin] body: Full<Bytes> },
        // A lock only so that the body is `Sync`: it is never contended.
        Replaced { body: Mutex<UnsyncBoxBody<Bytes, BoxError>> },
    }
}

impl<B> AnswerBody<B> {
    pub(crate) fn inner(body: B) -> Self {
        Self { kind: Kind::Inner { body } }
    }

    pub(crate) fn refusal(body: Refusal) -> Self {
        Self { kind: Kind::Refusal { body: Box::pin(body) } }
    }
}

impl Refusal {
    pub(crate) fn whole(body: Full<Bytes>) -> Self {
        Self::Whole { body }
    }

    pub(crate) fn replaced(body: impl AnyBody) -> Self {
        Self::Replaced { body: Mutex::new(body.map_err(Into::into).boxed_unsync()) }
    }
}

impl Default for Refusal {
    fn default() -> Self {
        Self::whole(Full::default())
    }
}

impl<B> Body for AnswerBody<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            KindProjection::Inner { body } => body.poll_frame(cx).map_err(Into::into),
            KindProjection::Refusal { body } => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Refusal { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Refusal { body } => body.size_hint(),
        }
    }
}

impl Body for Refusal {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project() {
            RefusalProjection::Whole { body } => body.poll_frame(cx).map_err(|never| match never {}),
            RefusalProjection::Replaced { body } => {
                Pin::new(body.get_mut().unwrap_or_else(PoisonError::into_inner)).poll_frame(cx)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole { body } => body.is_end_stream(),
            Self::Replaced { body } => body.lock().unwrap_or_else(PoisonError::into_inner).is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole { body } => body.size_hint(),
            Self::Replaced { body } => body.lock().unwrap_or_else(PoisonError::into_inner).size_hint(),
        }
    }
}

impl<B: Default> Default for AnswerBody<B> {
    fn default() -> Self {
        Self::inner(B::default())
    }
}

impl<B> fmt::Debug for AnswerBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            Kind::Inner { .. } => "Inner",
            Kind::Refusal { .. } => "Refusal",
        };
        f.debug_struct("AnswerBody").field("kind", &kind).finish()
    }
}
