//! What becomes of a request, step by step.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_quota_core::PendingCharge;
use tower_service::Service;

use super::body::{AnswerBody, Refusal};
use super::rules::Rules;

pin_project! {
    /// The response of a [`Metered`](crate::Metered) service.
    pub struct MeteredFuture<S, ReqBody>
    where
        S: Service<Request<ReqBody>>,
    {
        #[pin]
        step: Step<S, S::Future, ReqBody>,
    }
}

pin_project! {
    #[project = StepProjection]
    enum Step<S, F, ReqBody> {
        /// The store is asked; the service is ready, and gets the request if it is admitted.
        Waiting {
            charge: PendingCharge,
            service: S,
            request: Option<Request<ReqBody>>,
            rules: Arc<Rules>,
        },
        /// The inner service has the request. Its answer may be a rejection that is to be replaced.
        Running {
            #[pin]
            response: F,
            watched: Option<Box<Watched>>,
        },
        Refused { response: Option<Response<Refusal>> },
    }
}

/// Whose rejections are replaced, and the head of the request that they answer. Rare, and large: in a box.
pub(super) type Watched = (Arc<Rules>, Parts);

impl<S, ReqBody> MeteredFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    pub(super) fn running(response: S::Future) -> Self {
        Self::watched(response, None)
    }

    pub(super) fn watched(response: S::Future, watched: Option<Box<Watched>>) -> Self {
        Self { step: Step::Running { response, watched } }
    }

    pub(super) fn refused(response: Response<Refusal>) -> Self {
        Self { step: Step::Refused { response: Some(response) } }
    }

    pub(super) fn waiting(charge: PendingCharge, service: S, request: Request<ReqBody>, rules: Arc<Rules>) -> Self {
        Self { step: Step::Waiting { charge, service, request: Some(request), rules } }
    }
}

impl<S, ReqBody, ResBody> Future for MeteredFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    type Output = Result<Response<AnswerBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut step = self.project().step;
        loop {
            let next = match step.as_mut().project() {
                StepProjection::Waiting { charge, service, request, rules } => {
                    let outcome = ready!(Pin::new(charge).poll(cx));
                    let request = request.take().expect("a request waits for one outcome");
                    match outcome {
                        Ok(_) => Step::Running { response: service.call(request), watched: None },
                        Err(error) => {
                            let response = rules.refuse(&rules.rejection(error), &request.into_parts().0);
                            Step::Refused { response: Some(response) }
                        }
                    }
                }
                StepProjection::Running { response, watched } => {
                    let response = ready!(response.poll(cx))?;
                    let rejection = watched.as_deref().and_then(|(rules, parts)| {
                        let rejection = rules.own_rejection(&response)?;
                        Some(rules.refuse(&rejection, parts))
                    });
                    return Poll::Ready(Ok(match rejection {
                        Some(replaced) => replaced.map(AnswerBody::refusal),
                        None => response.map(AnswerBody::inner),
                    }));
                }
                StepProjection::Refused { response } => {
                    let response = response.take().expect("a future is not polled after it is ready");
                    return Poll::Ready(Ok(response.map(AnswerBody::refusal)));
                }
            };
            step.set(next);
        }
    }
}

impl<S, ReqBody> fmt::Debug for MeteredFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match &self.step {
            Step::Waiting { .. } => "Waiting",
            Step::Running { .. } => "Running",
            Step::Refused { .. } => "Refused",
        };
        f.debug_struct("MeteredFuture").field("step", &step).finish()
    }
}
