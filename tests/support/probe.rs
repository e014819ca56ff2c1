//! A service that panics when it is called before it was ready.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::{Request, Response};
use tower::Service;

/// Ready once it has been polled twice, for one call; a clone has to become ready by itself.
#[derive(Default)]
pub(crate) struct Probe {
    polls: usize,
    calls: Arc<AtomicUsize>,
}

impl Probe {
    pub(crate) fn calls(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.calls)
    }
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        Self { polls: 0, calls: self.calls() }
    }
}

impl Service<Request<super::Body>> for Probe {
    type Response = Response<super::Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.polls += 1;
        if self.polls < 2 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<super::Body>) -> Self::Future {
        assert!(self.polls >= 2, "called before it was ready");
        self.polls = 0;
        self.calls.fetch_add(1, Ordering::Relaxed);
        ready(Ok(Response::new(super::Body::default())))
    }
}
