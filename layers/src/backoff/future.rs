//! What becomes of a request.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::rules::Rules;
use crate::answer::AnswerBody;
use crate::gated::Gated;

pin_project! {
    /// The response of a [`Backoff`](crate::Backoff) service.
    #[derive(Debug)]
    pub struct BackoffFuture<S, ReqBody>
    where
        S: Service<Request<ReqBody>>,
    {
        #[pin]
        pub(super) request: Gated<S, ReqBody, Rules>,
    }
}

impl<S, ReqBody, ResBody> Future for BackoffFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
{
    type Output = Result<Response<AnswerBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().request.poll(cx)
    }
}
