//! The service that goes with a request until it is called.

use std::mem;
use std::task::{Context, Poll, ready};

use tower_service::Service;

/// A service to be called, sooner or later.
pub(crate) struct Callee<S> {
    service: S,
    is_ready: bool,
}

impl<S: Clone> Callee<S> {
    /// The service that is ready, whose place a clone takes.
    #[inline]
    pub(crate) fn take(inner: &mut S) -> Self {
        let clone = inner.clone();
        Self { service: mem::replace(inner, clone), is_ready: true }
    }

    /// The request has to wait: what was reserved for its call is let go meanwhile.
    pub(crate) fn let_go(&mut self) {
        if mem::take(&mut self.is_ready) {
            self.service = self.service.clone();
        }
    }
}

impl<S> Callee<S> {
    /// Ready to be called, at once or again.
    #[inline]
    pub(crate) fn poll_ready<R>(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>>
    where
        S: Service<R>,
    {
        if self.is_ready { Poll::Ready(Ok(())) } else { self.poll_ready_again(cx) }
    }

    /// Apart, so that the quick way stays small.
    #[cold]
    fn poll_ready_again<R>(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>>
    where
        S: Service<R>,
    {
        ready!(self.service.poll_ready(cx))?;
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    /// Calls it, once it is ready.
    #[inline]
    pub(crate) fn call<R>(&mut self, request: R) -> S::Future
    where
        S: Service<R>,
    {
        self.service.call(request)
    }
}
