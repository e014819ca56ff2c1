//! What becomes of a request on its side.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower::util::Oneshot;
use tower_service::Service;

use super::body::SplitBody;

pin_project! {
    /// The response of a [`ReadWriteSplit`](crate::ReadWriteSplit) service.
    pub struct SplitFuture<S, R, W, ReqBody>
    where
        S: Service<Request<ReqBody>>,
        R: Service<Request<ReqBody>>,
        W: Service<Request<ReqBody>>,
    {
        #[pin]
        side: Side<Oneshot<S, Request<ReqBody>>, Oneshot<R, Request<ReqBody>>, Oneshot<W, Request<ReqBody>>>,
    }
}

pin_project! {
    #[project = SideProjection]
    enum Side<N, R, W> {
        Neither { #[pin] response: N },
        Read { #[pin] response: R },
        Write { #[pin] response: W },
    }
}

impl<S, R, W, ReqBody> SplitFuture<S, R, W, ReqBody>
where
    S: Service<Request<ReqBody>>,
    R: Service<Request<ReqBody>>,
    W: Service<Request<ReqBody>>,
{
    pub(super) fn neither(service: S, request: Request<ReqBody>) -> Self {
        Self { side: Side::Neither { response: Oneshot::new(service, request) } }
    }

    pub(super) fn read(service: R, request: Request<ReqBody>) -> Self {
        Self { side: Side::Read { response: Oneshot::new(service, request) } }
    }

    pub(super) fn write(service: W, request: Request<ReqBody>) -> Self {
        Self { side: Side::Write { response: Oneshot::new(service, request) } }
    }
}

impl<S, R, W, ReqBody, N, RB, WB> Future for SplitFuture<S, R, W, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<N>>,
    R: Service<Request<ReqBody>, Response = Response<RB>, Error = S::Error>,
    W: Service<Request<ReqBody>, Response = Response<WB>, Error = S::Error>,
{
    type Output = Result<Response<SplitBody<N, RB, WB>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().side.project() {
            SideProjection::Neither { response } => {
                response.poll(cx).map_ok(|response| response.map(SplitBody::neither))
            }
            SideProjection::Read { response } => response.poll(cx).map_ok(|response| response.map(SplitBody::read)),
            SideProjection::Write { response } => response.poll(cx).map_ok(|response| response.map(SplitBody::write)),
        }
    }
}

impl<S, R, W, ReqBody> fmt::Debug for SplitFuture<S, R, W, ReqBody>
where
    S: Service<Request<ReqBody>>,
    R: Service<Request<ReqBody>>,
    W: Service<Request<ReqBody>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match &self.side {
            Side::Neither { .. } => "Neither",
            Side::Read { .. } => "Read",
            Side::Write { .. } => "Write",
        };
        f.debug_struct("SplitFuture").field("side", &side).finish()
    }
}
