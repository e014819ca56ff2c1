//! A request that a store lets through before it is made, step by step; whatever the store is asked.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::answer::{AnswerBody, Refusal, Refusals};
use crate::callee::Callee;
use crate::rejection::Rejection;

/// What a layer asks about each request, and does when it is answered.
pub(crate) trait Gate {
    /// What a request holds that was let through.
    type Pass;
    /// Why a request is not let through.
    type Refused;

    /// Asks whether a request may be made.
    fn ask(&self, parts: &Parts) -> Result<Asking<Self>, Rejection>;

    /// What somebody is told who is not let through.
    fn rejection(refused: Self::Refused) -> Rejection;

    /// The call has been answered.
    fn answered<B>(&self, pass: Self::Pass, response: Response<B>) -> Response<B>;

    /// Whether a request may wait for longer than it takes to ask.
    fn may_wait(&self) -> bool;

    /// How refusals are answered.
    fn refusals(&self) -> &Refusals;
}

/// Ends when it is known whether a request may be made.
pub(crate) type Asking<G> = Pin<Box<dyn Future<Output = Result<<G as Gate>::Pass, <G as Gate>::Refused>> + Send>>;

pin_project! {
    /// A request on its way through a gate. One that is not polled has asked nothing.
    pub(crate) struct Gated<S, ReqBody, G>
    where
        S: Service<Request<ReqBody>>,
        G: Gate,
    {
        gate: Arc<G>,
        // Both until the call is made.
        callee: Callee<S>,
        request: Option<Request<ReqBody>>,
        #[pin]
        step: Step<S::Future, G>,
    }
}

pin_project! {
    #[project = StepProjection]
    enum Step<F, G>
    where
        G: Gate,
    {
        Unasked,
        Asking { asking: Asking<G> },
        Passed { pass: Option<G::Pass> },
        Running {
            #[pin]
            response: F,
            pass: Option<G::Pass>,
        },
        Refused { response: Option<Response<Refusal>> },
    }
}

impl<S, ReqBody, G> Gated<S, ReqBody, G>
where
    S: Service<Request<ReqBody>>,
    G: Gate,
{
    pub(crate) fn new(inner: &mut S, request: Request<ReqBody>, gate: &Arc<G>) -> Self
    where
        S: Clone,
    {
        Self { gate: Arc::clone(gate), callee: Callee::take(inner), request: Some(request), step: Step::Unasked }
    }
}

impl<S, ReqBody, ResBody, G> Future for Gated<S, ReqBody, G>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    G: Gate,
{
    type Output = Result<Response<AnswerBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.step.as_mut().project() {
                StepProjection::Unasked => {
                    let (parts, body) = take(this.request).into_parts();
                    match this.gate.ask(&parts) {
                        Ok(asking) => {
                            *this.request = Some(Request::from_parts(parts, body));
                            Step::Asking { asking }
                        }
                        Err(rejection) => refuse(&**this.gate, &rejection, &parts),
                    }
                }
                StepProjection::Asking { asking } => match asking.as_mut().poll(cx) {
                    Poll::Pending => {
                        if this.gate.may_wait() {
                            this.callee.let_go();
                        }
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(pass)) => Step::Passed { pass: Some(pass) },
                    Poll::Ready(Err(refused)) => {
                        let parts = take(this.request).into_parts().0;
                        refuse(&**this.gate, &G::rejection(refused), &parts)
                    }
                },
                StepProjection::Passed { pass } => {
                    if let Err(error) = ready!(this.callee.poll_ready(cx)) {
                        *pass = None;
                        return Poll::Ready(Err(error));
                    }
                    Step::Running { response: this.callee.call(take(this.request)), pass: pass.take() }
                }
                StepProjection::Running { response, pass } => {
                    let response = ready!(response.poll(cx));
                    // Whatever it came to, the call has ended.
                    let pass = pass.take().expect("a future is not polled after it is ready");
                    return Poll::Ready(
                        response.map(|response| this.gate.answered(pass, response).map(AnswerBody::inner)),
                    );
                }
                StepProjection::Refused { response } => {
                    let response = response.take().expect("a future is not polled after it is ready");
                    return Poll::Ready(Ok(response.map(AnswerBody::refusal)));
                }
            };
            this.step.set(next);
        }
    }
}

fn take<ReqBody>(request: &mut Option<Request<ReqBody>>) -> Request<ReqBody> {
    request.take().expect("a request goes on once")
}

fn refuse<F, G: Gate>(gate: &G, rejection: &Rejection, parts: &Parts) -> Step<F, G> {
    Step::Refused { response: Some(gate.refusals().answer(rejection, parts)) }
}

impl<S, ReqBody, G> fmt::Debug for Gated<S, ReqBody, G>
where
    S: Service<Request<ReqBody>>,
    G: Gate,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.step {
            Step::Unasked => "Unasked",
            Step::Asking { .. } => "Asking",
            Step::Passed { .. } => "Passed",
            Step::Running { .. } => "Running",
            Step::Refused { .. } => "Refused",
        })
    }
}
