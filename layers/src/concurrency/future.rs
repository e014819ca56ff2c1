//! What becomes of a request, step by step.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tower_service::Service;

use super::body::PermitBody;
use super::gate::Entry;
use super::permit::{Held, Holding, Waiting};
use super::place::Place;
use super::rules::{Rules, asks_for_upgrade};
use crate::answer::AnswerBody;
use crate::callee::Callee;
use crate::rejection::Rejection;

pin_project! {
    /// The response of a [`Concurrency`](crate::Concurrency) service.
    pub struct ConcurrencyFuture<S, ReqBody>
    where
        S: Service<Request<ReqBody>>,
    {
        ends_at_head: bool,
        // Until the request is let through.
        rules: Option<Arc<Rules>>,
        // Both until it is made.
        callee: Callee<S>,
        request: Option<Request<ReqBody>>,
        // Rare, and large: in a box.
        queued: Option<Pin<Box<Queued>>>,
        // From then on. Dropped in this order: what works for a request is gone when its place is given back.
        #[pin]
        response: Option<S::Future>,
        held: Option<Holding>,
    }
}

impl<S, ReqBody> ConcurrencyFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    /// Nothing is asked yet: a future that is not polled holds nothing.
    #[inline]
    pub(super) fn new(callee: Callee<S>, request: Request<ReqBody>, rules: &Arc<Rules>) -> Self {
        Self {
            ends_at_head: rules.releases_at_head || matches!(*request.method(), Method::HEAD),
            rules: Some(Arc::clone(rules)),
            callee,
            request: Some(request),
            queued: None,
            response: None,
            held: None,
        }
    }
}

impl<S, ReqBody, ResBody> Future for ConcurrencyFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    ResBody: Body,
{
    type Output = Result<Response<PermitBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if this.response.is_none() {
            if this.held.is_none() {
                let held = match poll_held(this.rules, this.request, this.queued, cx) {
                    Poll::Pending => {
                        this.callee.let_go();
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(held)) => held,
                    Poll::Ready(Err(rejection)) => {
                        let refusal = take(this.rules).refuse(&rejection, &take(this.request).into_parts().0);
                        return Poll::Ready(Ok(refusal.map(|body| PermitBody::new(AnswerBody::refusal(body), None))));
                    }
                };
                *this.held = Some(hold(held, this.request));
            }
            if let Err(error) = ready!(this.callee.poll_ready(cx)) {
                *this.held = None;
                return Poll::Ready(Err(error));
            }
            this.response.set(Some(this.callee.call(take(this.request))));
        }
        let running = this.response.as_pin_mut().expect("a request that was let through runs");
        match ready!(running.poll(cx)) {
            Ok(response) => {
                let (head, body) = response.into_parts();
                if *this.ends_at_head || has_no_body(head.status, &body) {
                    *this.held = None;
                }
                let body = PermitBody::new(AnswerBody::inner(body), this.held.take());
                Poll::Ready(Ok(Response::from_parts(head, body)))
            }
            Err(error) => {
                // Given back at once, however long the caller keeps this future.
                *this.held = None;
                Poll::Ready(Err(error))
            }
        }
    }
}

/// What a future has until its request is let through, or refused.
#[inline]
fn take<T>(of_request: &mut Option<T>) -> T {
    of_request.take().expect("a request goes on once")
}

/// Lets a request through as soon as there is room, or not at all.
#[inline]
fn poll_held<ReqBody>(
    rules_until_then: &mut Option<Arc<Rules>>,
    request: &mut Option<Request<ReqBody>>,
    queued: &mut Option<Pin<Box<Queued>>>,
    cx: &mut Context<'_>,
) -> Poll<Result<Held, Rejection>> {
    let rules = rules_until_then.as_ref().expect("a request goes on once");
    if queued.is_none() {
        let place = match place(rules, request) {
            Ok(place) => place,
            Err(rejection) => return Poll::Ready(Err(rejection)),
        };
        match rules.ask_for(&place) {
            Entry::Through => return Poll::Ready(Ok(Held::new(take(rules_until_then), place))),
            Entry::Full => return Poll::Ready(Err(rules.busy())),
            Entry::Queued(number) => {
                let place = Waiting::new(Arc::clone(rules), place, number);
                *queued = Some(Box::pin(Queued { place, patience: tokio::time::sleep(rules.max_wait) }));
            }
        }
    }
    let Some(waiting) = queued else { unreachable!("it was just put there") };
    let held = ready!(waiting.as_mut().poll(cx));
    // Whoever has given up leaves the queue at once, however long the caller keeps this future.
    *queued = None;
    Poll::Ready(held.ok_or_else(|| rules.busy()))
}

/// The place of a request; its head is taken out only where it matters.
#[inline]
fn place<ReqBody>(rules: &Rules, request: &mut Option<Request<ReqBody>>) -> Result<Place, Rejection> {
    if let Some(place) = rules.place_of_anybody() {
        return Ok(place);
    }
    let (parts, body) = take(request).into_parts();
    let place = rules.place(&parts);
    *request = Some(Request::from_parts(parts, body));
    place
}

pin_project! {
    /// A place in the queue, and how long it is kept.
    struct Queued {
        place: Waiting,
        #[pin]
        patience: Sleep,
    }
}

impl Future for Queued {
    /// `None`: it took too long, or had to make room for another.
    type Output = Option<Held>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Held>> {
        let this = self.project();
        match Pin::new(this.place).poll(cx) {
            Poll::Ready(held) => Poll::Ready(held),
            Poll::Pending => this.patience.poll(cx).map(|()| None),
        }
    }
}

/// Holds a place for the response, and for a handler that may go on with the connection.
fn hold<ReqBody>(held: Held, request: &mut Option<Request<ReqBody>>) -> Holding {
    match request {
        Some(request) if asks_for_upgrade(request) => {
            let outer = request.extensions_mut().remove();
            let (held, permit) = Holding::with_handler(held, outer);
            request.extensions_mut().insert(permit);
            held
        }
        _ => Holding::new(held),
    }
}

/// Whether nothing follows the head.
fn has_no_body(status: StatusCode, body: &impl Body) -> bool {
    status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED || body.is_end_stream()
}

impl<S, ReqBody> fmt::Debug for ConcurrencyFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match (&self.response, &self.held, &self.queued) {
            (Some(_), ..) => "Running",
            (None, Some(_), _) => "LetThrough",
            (None, None, Some(_)) => "Queued",
            (None, None, None) => "Unasked",
        };
        f.debug_struct("ConcurrencyFuture").field("step", &step).finish_non_exhaustive()
    }
}
