//! The service behind a cooldown layer.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::future::CoolingFuture;
use super::rules::Rules;
use crate::answer::AnswerBody;

/// Counts attempts before they are made. Made by [`CooldownLayer`](crate::CooldownLayer).
///
/// It is ready when the inner service is.
#[derive(Clone, Debug)]
pub struct Cooling<S> {
    inner: S,
    rules: Arc<Rules>,
}

impl<S> Cooling<S> {
    pub(super) fn new(inner: S, rules: Arc<Rules>) -> Self {
        Self { inner, rules }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service, without a cooldown.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

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
        // The service that is ready goes with the request; a clone of it takes its place.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        CoolingFuture::new(ready, request, Arc::clone(&self.rules))
    }
}
