//! What becomes of a request, step by step.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_quota_core::{Key, Paused};
use tower_service::Service;

use super::rules::Rules;
use crate::answer::{AnswerBody, Refusal};

pin_project! {
    /// The response of a [`Backoff`](crate::Backoff) service.
    pub struct BackoffFuture<S, ReqBody>
    where
        S: Service<Request<ReqBody>>,
    {
        rules: Arc<Rules>,
        // Both until the call is made.
        service: S,
        request: Option<Request<ReqBody>>,
        #[pin]
        step: Step<S::Future>,
    }
}

/// Ends when the call may be made.
type Wait = Pin<Box<dyn Future<Output = Result<(), Paused>> + Send>>;

pin_project! {
    #[project = StepProjection]
    enum Step<F> {
        Unasked,
        Waiting { wait: Wait, key: Key },
        Running {
            #[pin]
            response: F,
            key: Key,
        },
        Refused { response: Option<Response<Refusal>> },
    }
}

impl<S, ReqBody> BackoffFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    pub(super) fn new(service: S, request: Request<ReqBody>, rules: Arc<Rules>) -> Self {
        Self { rules, service, request: Some(request), step: Step::Unasked }
    }
}

impl<S, ReqBody, ResBody> Future for BackoffFuture<S, ReqBody>
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
                    match this.rules.key(&parts) {
                        Ok(key) => {
                            *this.request = Some(Request::from_parts(parts, body));
                            let (axis, of, patience) = (this.rules.axis.clone(), key.clone(), this.rules.patience);
                            Step::Waiting { wait: Box::pin(async move { axis.wait(&of, patience).await }), key }
                        }
                        Err(rejection) => {
                            Step::Refused { response: Some(this.rules.refusals.answer(&rejection, &parts)) }
                        }
                    }
                }
                StepProjection::Waiting { wait, key } => match ready!(wait.as_mut().poll(cx)) {
                    Ok(()) => Step::Running { response: this.service.call(take(this.request)), key: key.clone() },
                    Err(paused) => {
                        let parts = take(this.request).into_parts().0;
                        let refused = this.rules.refusals.answer(&Rules::rejection(paused), &parts);
                        Step::Refused { response: Some(refused) }
                    }
                },
                StepProjection::Running { response, key } => {
                    let response = ready!(response.poll(cx))?;
                    this.rules.look(key, &response);
                    return Poll::Ready(Ok(response.map(AnswerBody::inner)));
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

impl<S, ReqBody> fmt::Debug for BackoffFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match &self.step {
            Step::Unasked => "Unasked",
            Step::Waiting { .. } => "Waiting",
            Step::Running { .. } => "Running",
            Step::Refused { .. } => "Refused",
        };
        f.debug_struct("BackoffFuture").field("step", &step).finish_non_exhaustive()
    }
}
