//! What becomes of a request, step by step.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_quota_core::{Attempts, Begin};
use tower_service::Service;

use super::rules::Rules;
use crate::answer::{AnswerBody, Refusal};
use crate::rejection::Rejection;

pin_project! {
    /// The response of a [`Cooling`](crate::Cooling) service.
    pub struct CoolingFuture<S, ReqBody>
    where
        S: Service<Request<ReqBody>>,
    {
        rules: Arc<Rules>,
        // Both until the attempt is counted.
        service: S,
        request: Option<Request<ReqBody>>,
        #[pin]
        step: Step<S::Future>,
    }
}

pin_project! {
    #[project = StepProjection]
    enum Step<F> {
        Unasked,
        Beginning { begin: <Begin as IntoFuture>::IntoFuture },
        Running {
            #[pin]
            response: F,
            attempts: Option<Attempts>,
        },
        Refused { response: Option<Response<Refusal>> },
    }
}

impl<S, ReqBody> CoolingFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    pub(super) fn new(service: S, request: Request<ReqBody>, rules: Arc<Rules>) -> Self {
        Self { rules, service, request: Some(request), step: Step::Unasked }
    }
}

impl<S, ReqBody, ResBody> Future for CoolingFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    type Output = Result<Response<AnswerBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.step.as_mut().project() {
                StepProjection::Unasked => {
                    let (parts, body) = take(this.request).into_parts();
                    match this.rules.begin(&parts) {
                        Ok(begin) => {
                            *this.request = Some(Request::from_parts(parts, body));
                            Step::Beginning { begin: begin.into_future() }
                        }
                        Err(rejection) => {
                            Step::Refused { response: Some(this.rules.refusals.answer(&rejection, &parts)) }
                        }
                    }
                }
                StepProjection::Beginning { begin } => match ready!(begin.as_mut().poll(cx)) {
                    Ok(attempts) => {
                        let response = this.service.call(take(this.request));
                        Step::Running { response, attempts: Some(attempts) }
                    }
                    Err(error) => {
                        let parts = take(this.request).into_parts().0;
                        let refused = this.rules.refusals.answer(&Rejection::from(error), &parts);
                        Step::Refused { response: Some(refused) }
                    }
                },
                StepProjection::Running { response, attempts } => {
                    let response = ready!(response.poll(cx));
                    // Whatever it came to, the call has ended.
                    let attempts = attempts.take();
                    let rules = this.rules;
                    return Poll::Ready(response.map(|response| {
                        let response = match attempts {
                            Some(attempts) => rules.end(attempts, response),
                            None => response,
                        };
                        response.map(AnswerBody::inner)
                    }));
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

impl<S, ReqBody> fmt::Debug for CoolingFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match &self.step {
            Step::Unasked => "Unasked",
            Step::Beginning { .. } => "Beginning",
            Step::Running { .. } => "Running",
            Step::Refused { .. } => "Refused",
        };
        f.debug_struct("CoolingFuture").field("step", &step).finish_non_exhaustive()
    }
}
