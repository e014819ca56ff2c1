//! The service behind a concurrency layer.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::PermitBody;
use super::future::ConcurrencyFuture;
use super::rules::Rules;
use crate::callee::Callee;
use crate::wrapped::around_inner;

/// Lets at most so many requests through at once. Made by [`ConcurrencyLayer`](crate::ConcurrencyLayer).
///
/// It is ready when the inner service is. A request's place is asked for when its future is first polled, so idle
/// connections, clones and futures that were never polled hold nothing. One that waits in the queue gets its place when it
/// is its turn, and is then to be polled, or dropped.
#[derive(Clone, Debug)]
pub struct Concurrency<S> {
    inner: S,
    rules: Arc<Rules>,
}

around_inner!(Concurrency);

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for Concurrency<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    ResBody: Body,
{
    type Response = Response<PermitBody<ResBody>>;
    type Error = S::Error;
    type Future = ConcurrencyFuture<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        ConcurrencyFuture::new(Callee::take(&mut self.inner), request, &self.rules)
    }
}
