//! The one service behind all quota layers.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::future::MeteredFuture;
use super::rules::{Begun, Rules};
use super::watched::Watched;
use crate::answer::AnswerBody;
use crate::callee::Callee;
use crate::wrapped::around_inner;

/// Charges each request before the inner service sees it. Made by [`QuotaLayer`](crate::QuotaLayer) and the layers of one
/// axis.
///
/// It is ready when the inner service is; a charge is made in [`call`](Service::call), so idle connections and clones hold
/// nothing. The inner service is cloned only for a request that has to wait for its store.
#[derive(Clone, Debug)]
pub struct Metered<S> {
    inner: S,
    rules: Arc<Rules>,
}

around_inner!(Metered);

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for Metered<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
{
    type Response = Response<AnswerBody<ResBody>>;
    type Error = S::Error;
    type Future = MeteredFuture<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        match self.rules.begin(&mut parts) {
            Begun::Admitted(kept) => {
                let response = self.inner.call(Request::from_parts(parts, body));
                let watched = kept.map(|kept| Watched::kept(&self.rules, kept));
                MeteredFuture::running(response, watched)
            }
            Begun::Metered(charged) => {
                let replaced = self.rules.replaces_answers().then(|| Box::new(parts.clone()));
                let response = self.inner.call(Request::from_parts(parts, body));
                let watched = Watched::ByHandler { rules: Arc::clone(&self.rules), charged, replaced };
                MeteredFuture::running(response, Some(watched))
            }
            Begun::Refused(rejection) => MeteredFuture::refused(self.rules.refuse(&rejection, &parts)),
            Begun::Waiting(charge) => {
                let callee = Callee::take(&mut self.inner);
                MeteredFuture::waiting(charge, callee, Request::from_parts(parts, body), Arc::clone(&self.rules))
            }
        }
    }
}
