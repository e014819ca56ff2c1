//! The service behind a cooldown layer.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::future::CoolingFuture;
use super::rules::Rules;
use crate::answer::AnswerBody;
use crate::gated::Gated;
use crate::wrapped::around_inner;

/// Counts attempts before they are made. Made by [`CooldownLayer`](crate::CooldownLayer).
///
/// It is ready when the inner service is. While a request waits, it holds nothing of it.
#[derive(Clone, Debug)]
pub struct Cooling<S> {
    inner: S,
    rules: Arc<Rules>,
}

around_inner!(Cooling);

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for Cooling<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
{
    type Response = Response<AnswerBody<ResBody>>;
    type Error = S::Error;
    type Future = CoolingFuture<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        CoolingFuture { request: Gated::new(&mut self.inner, request, &self.rules) }
    }
}
