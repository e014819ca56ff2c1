//! The service behind a split.

use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::body::SplitBody;
use super::future::SplitFuture;
use super::side::{Classifier, Side};
use crate::quota::Metered;

/// Sends each request through its side. Made by [`ReadWriteSplitLayer`](crate::ReadWriteSplitLayer).
///
/// It is always ready: the side that a request goes to is cloned for it, and waited for in the request's future.
#[derive(Clone, Debug)]
pub struct ReadWriteSplit<S, R = Metered<S>, W = R> {
    inner: S,
    read: R,
    write: W,
    classifier: Classifier,
}

impl<S, R, W> ReadWriteSplit<S, R, W> {
    pub(super) fn new(inner: S, read: R, write: W, classifier: Classifier) -> Self {
        Self { inner, read, write, classifier }
    }

    /// The inner service, which requests of neither side go to.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service for reads.
    pub fn read(&self) -> &R {
        &self.read
    }

    /// The service for writes.
    pub fn write(&self) -> &W {
        &self.write
    }
}

impl<S, R, W, ReqBody, N, RB, WB> Service<Request<ReqBody>> for ReadWriteSplit<S, R, W>
where
    S: Service<Request<ReqBody>, Response = Response<N>> + Clone,
    R: Service<Request<ReqBody>, Response = Response<RB>, Error = S::Error> + Clone,
    W: Service<Request<ReqBody>, Response = Response<WB>, Error = S::Error> + Clone,
{
    type Response = Response<SplitBody<N, RB, WB>>;
    type Error = S::Error;
    type Future = SplitFuture<S, R, W, ReqBody>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let side = self.classifier.side(&parts);
        let request = Request::from_parts(parts, body);
        match side {
            Side::Read => SplitFuture::read(self.read.clone(), request),
            Side::Write => SplitFuture::write(self.write.clone(), request),
            Side::Neither => SplitFuture::neither(self.inner.clone(), request),
        }
    }
}
