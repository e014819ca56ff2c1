//! The service behind a backoff layer.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::future::BackoffFuture;
use super::rules::Rules;
use crate::answer::AnswerBody;

/// Calls its upstream only while that has not asked for a pause. Made by [`BackoffLayer`](crate::BackoffLayer).
///
/// It is ready when the inner service is.
#[derive(Clone, Debug)]
pub struct Backoff<S> {
    inner: S,
    rules: Arc<Rules>,
}

impl<S> Backoff<S> {
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

    /// The inner service, without pauses.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for Backoff<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
{
    type Response = Response<AnswerBody<ResBody>>;
    type Error = S::Error;
    type Future = BackoffFuture<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        // The service that is ready goes with the request; a clone of it takes its place.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        BackoffFuture::new(ready, request, Arc::clone(&self.rules))
    }
}
