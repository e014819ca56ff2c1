//! What becomes of a request, step by step.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::rules::{Pending, Rules};
use super::watched::Watched;
use crate::answer::{AnswerBody, Refusal};
use crate::callee::Callee;

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
        /// The store is asked; the service gets the request if it is admitted.
        Waiting {
            charge: Pending,
            call: Option<(Callee<S>, Request<ReqBody>)>,
            rules: Arc<Rules>,
        },
        /// The service becomes ready, if it is not any more.
        Admitted {
            call: Option<(Callee<S>, Request<ReqBody>)>,
            watched: Option<Watched>,
        },
        /// The inner service has the request, and may charge it by itself.
        Running {
            #[pin]
            response: F,
            watched: Option<Watched>,
        },
        Refused { response: Option<Response<Refusal>> },
    }
}

impl<S, ReqBody> MeteredFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    pub(super) fn running(response: S::Future, watched: Option<Watched>) -> Self {
        Self { step: Step::Running { response, watched } }
    }

    pub(super) fn refused(response: Response<Refusal>) -> Self {
        Self { step: Step::Refused { response: Some(response) } }
    }

    pub(super) fn waiting(charge: Pending, callee: Callee<S>, request: Request<ReqBody>, rules: Arc<Rules>) -> Self {
        Self { step: Step::Waiting { charge, call: Some((callee, request)), rules } }
    }
}

impl<S, ReqBody, ResBody> Future for MeteredFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
{
    type Output = Result<Response<AnswerBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut step = self.project().step;
        loop {
            let next = match step.as_mut().project() {
                StepProjection::Waiting { charge, call, rules } => match Pin::new(charge).poll(cx) {
                    Poll::Pending => {
                        if let Some((callee, _)) = call.as_mut().filter(|_| rules.may_wait()) {
                            callee.let_go();
                        }
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(admitted)) => Step::Admitted {
                        call: call.take(),
                        watched: rules.keep(admitted).map(|kept| Watched::kept(rules, kept)),
                    },
                    Poll::Ready(Err(error)) => {
                        let (_, request) = call.take().expect("a request waits for one outcome");
                        let response = rules.refuse(&rules.rejection(error), &request.into_parts().0);
                        Step::Refused { response: Some(response) }
                    }
                },
                StepProjection::Admitted { call, watched } => {
                    let (callee, _) = call.as_mut().expect("a request is made once");
                    ready!(callee.poll_ready(cx))?;
                    let (mut callee, request) = call.take().expect("it was there");
                    Step::Running { response: callee.call(request), watched: watched.take() }
                }
                StepProjection::Running { response, watched } => {
                    let response = ready!(response.poll(cx))?;
                    return Poll::Ready(Ok(match watched.take() {
                        Some(watched) => watched.answer(response),
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
            Step::Admitted { .. } => "Admitted",
            Step::Running { .. } => "Running",
            Step::Refused { .. } => "Refused",
        };
        f.debug_struct("MeteredFuture").field("step", &step).finish()
    }
}
