//! The body of whichever side answered.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::answer::AnswerBody;

type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// The body of a [`ReadWriteSplit`](crate::ReadWriteSplit) service's response: that of the side it went through.
    ///
    /// It is `Send`, `Sync` and `Default` where the bodies of the sides are.
    pub struct SplitBody<N, R = AnswerBody<N>, W = R> {
        #[pin]
        side: Side<N, R, W>,
    }
}

pin_project! {
    #[project = SideProjection]
    enum Side<N, R, W> {
        Neither { #[pin] body: N },
        Read { #[pin] body: R },
        Write { #[pin] body: W },
    }
}

impl<N, R, W> SplitBody<N, R, W> {
    pub(super) fn neither(body: N) -> Self {
        Self { side: Side::Neither { body } }
    }

    pub(super) fn read(body: R) -> Self {
        Self { side: Side::Read { body } }
    }

    pub(super) fn write(body: W) -> Self {
        Self { side: Side::Write { body } }
    }
}

impl<N, R, W> Body for SplitBody<N, R, W>
where
    N: Body<Data = Bytes, Error: Into<BoxError>>,
    R: Body<Data = Bytes, Error: Into<BoxError>>,
    W: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().side.project() {
            SideProjection::Neither { body } => body.poll_frame(cx).map_err(Into::into),
            SideProjection::Read { body } => body.poll_frame(cx).map_err(Into::into),
            SideProjection::Write { body } => body.poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.side {
            Side::Neither { body } => body.is_end_stream(),
            Side::Read { body } => body.is_end_stream(),
            Side::Write { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.side {
            Side::Neither { body } => body.size_hint(),
            Side::Read { body } => body.size_hint(),
            Side::Write { body } => body.size_hint(),
        }
    }
}

impl<N: Default, R, W> Default for SplitBody<N, R, W> {
    fn default() -> Self {
        Self::neither(N::default())
    }
}

impl<N, R, W> fmt::Debug for SplitBody<N, R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match &self.side {
            Side::Neither { .. } => "Neither",
            Side::Read { .. } => "Read",
            Side::Write { .. } => "Write",
        };
        f.debug_struct("SplitBody").field("side", &side).finish()
    }
}
