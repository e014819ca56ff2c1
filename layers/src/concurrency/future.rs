//! What becomes of a request, step by step.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tower_service::Service;

use super::body::PermitBody;
use super::permit::{Asked, Held, Holding, Waiting};
use super::rules::{Rules, asks_for_upgrade};
use crate::answer::{AnswerBody, Refusal};
use crate::rejection::Rejection;

pin_project! {
    /// The response of a [`Concurrency`](crate::Concurrency) service.
    pub struct ConcurrencyFuture<S, ReqBody>
    where
        S: Service<Request<ReqBody>>,
    {
        rules: Arc<Rules>,
        // Both until the request is let through.
        service: S,
        request: Option<Request<ReqBody>>,
        #[pin]
        step: Step<S::Future>,
    }
}

pin_project! {
    #[project = StepProjection]
    enum Step<F> {
        /// Nothing is asked yet: a future that is not polled holds nothing.
        Unasked,
        Queued {
            place: Waiting,
            #[pin]
            patience: Sleep,
        },
        Running {
            #[pin]
            response: F,
            held: Option<Holding>,
        },
        Refused { response: Option<Response<Refusal>> },
    }
}

impl<S, ReqBody> ConcurrencyFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    pub(super) fn new(service: S, request: Request<ReqBody>, rules: Arc<Rules>) -> Self {
        Self { rules, service, request: Some(request), step: Step::Unasked }
    }
}

impl<S, ReqBody, ResBody> Future for ConcurrencyFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ResBody: Body,
{
    type Output = Result<Response<PermitBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.step.as_mut().project() {
                StepProjection::Unasked => match ask(this.rules, this.request) {
                    Ok(Asked::Through(held)) => run(this.service, take(this.request), held),
                    Ok(Asked::Queued(place)) => {
                        Step::Queued { place, patience: tokio::time::sleep(this.rules.max_wait) }
                    }
                    Ok(Asked::Full) => refuse(this.rules, &this.rules.busy(), this.request),
                    Err(rejection) => refuse(this.rules, &rejection, this.request),
                },
                StepProjection::Queued { place, patience } => match Pin::new(place).poll(cx) {
                    Poll::Ready(held) => run(this.service, take(this.request), held),
                    Poll::Pending => {
                        ready!(patience.poll(cx));
                        refuse(this.rules, &this.rules.busy(), this.request)
                    }
                },
                StepProjection::Running { response, held } => {
                    let response = ready!(response.poll(cx));
                    // Given back at once on an error, however long the caller keeps this future.
                    let held = held.take();
                    return Poll::Ready(response.map(|response| {
                        let ends_here = this.rules.releases_at_head || has_no_body(&response);
                        let held = if ends_here { None } else { held };
                        response.map(|body| PermitBody::new(AnswerBody::inner(body), held))
                    }));
                }
                StepProjection::Refused { response } => {
                    let response = response.take().expect("a future is not polled after it is ready");
                    return Poll::Ready(Ok(response.map(|body| PermitBody::new(AnswerBody::refusal(body), None))));
                }
            };
            this.step.set(next);
        }
    }
}

fn take<ReqBody>(request: &mut Option<Request<ReqBody>>) -> Request<ReqBody> {
    request.take().expect("a request goes on once")
}

/// Asks for the place of a request; its head is taken out only where it matters.
fn ask<ReqBody>(rules: &Rules, request: &mut Option<Request<ReqBody>>) -> Result<Asked, Rejection> {
    if let Some(asked) = rules.ask_whoever() {
        return Ok(asked);
    }
    let (parts, body) = take(request).into_parts();
    let asked = rules.ask(&parts);
    *request = Some(Request::from_parts(parts, body));
    asked
}

fn refuse<F, ReqBody>(rules: &Rules, rejection: &Rejection, request: &mut Option<Request<ReqBody>>) -> Step<F> {
    let parts = take(request).into_parts().0;
    Step::Refused { response: Some(rules.refuse(rejection, &parts)) }
}

fn run<S, ReqBody>(service: &mut S, mut request: Request<ReqBody>, held: Held) -> Step<S::Future>
where
    S: Service<Request<ReqBody>>,
{
    let held = if asks_for_upgrade(&request) {
        let (held, permit) = Holding::shared(held);
        request.extensions_mut().insert(permit);
        held
    } else {
        Holding::Alone(held)
    };
    Step::Running { response: service.call(request), held: Some(held) }
}

/// Whether nothing follows the head.
fn has_no_body<B: Body>(response: &Response<B>) -> bool {
    let status = response.status();
    status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED || response.body().is_end_stream()
}

impl<S, ReqBody> fmt::Debug for ConcurrencyFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match &self.step {
            Step::Unasked => "Unasked",
            Step::Queued { .. } => "Queued",
            Step::Running { .. } => "Running",
            Step::Refused { .. } => "Refused",
        };
        f.debug_struct("ConcurrencyFuture").field("step", &step).finish_non_exhaustive()
    }
}
