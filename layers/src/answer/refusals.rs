//! How a layer answers the requests that it refuses.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Method, Response};
use http_body::Body;
use tower_quota_core::{Throttle, Verdict};

use super::body::{AnyBody, Refusal};
use super::tell_who_counted;
#[cfg(feature = "grpc")]
use crate::content_type;
use crate::rejection::Rejection;

type Answer = Arc<dyn Fn(&Rejection, &Parts) -> Response<Refusal> + Send + Sync>;

/// Answers refusals with problem documents, or as the application wants.
#[derive(Clone, Default)]
pub(crate) struct Refusals {
    answer: Option<Answer>,
    /// Whether calls of gRPC are told when to try again in a form that retry policies of clients read.
    #[cfg(feature = "grpc")]
    pub(crate) grpc_pushback: bool,
    /// For mistakes in what the application hung in.
    mistakes: Arc<Throttle>,
}

impl Refusals {
    /// Answers by the application's function.
    pub(crate) fn replace<B: AnyBody>(
        &mut self,
        answer: impl Fn(&Rejection, &Parts) -> Response<B> + Send + Sync + 'static,
    ) {
        self.answer = Some(Arc::new(move |rejection, parts| answer(rejection, parts).map(Refusal::replaced)));
    }

    /// Whether they are the application's.
    pub(crate) fn are_replaced(&self) -> bool {
        self.answer.is_some()
    }

    /// What a rejection is answered.
    pub(crate) fn answer(&self, rejection: &Rejection, parts: &Parts) -> Response<Refusal> {
        let mut response = self.respond(rejection, parts);
        tell_who_counted(&mut response, rejection.verdict().map(Verdict::counted_by).unwrap_or_default());
        response
    }

    fn respond(&self, rejection: &Rejection, parts: &Parts) -> Response<Refusal> {
        let replaced = self.answer.as_ref().and_then(|answer| {
            let replaced = catch_unwind(AssertUnwindSafe(|| answer(rejection, parts)));
            let mut response = replaced.inspect_err(|panic| log_panic(&self.mistakes, &**panic)).ok()?;
            response.extensions_mut().insert(rejection.clone());
            Some(response)
        });
        #[cfg(feature = "grpc")]
        if content_type::is_grpc(&parts.headers) {
            // An application that thought of HTTP only must not answer calls with what no client of them understands.
            let replaced = replaced.filter(|response| content_type::is_grpc(response.headers()));
            return replaced.unwrap_or_else(|| rejection.to_grpc(&parts.headers, self.grpc_pushback));
        }
        let mut response = replaced.unwrap_or_else(|| rejection.to_response().map(Refusal::whole));
        if parts.method == Method::HEAD {
            without_body(&mut response);
        }
        response
    }

    /// Runs functions of the application; a panic is logged, and its request refused.
    pub(crate) fn guard<T>(&self, application: impl FnOnce() -> T) -> Result<T, Rejection> {
        catch_unwind(AssertUnwindSafe(application)).map_err(|panic| {
            log_panic(&self.mistakes, &*panic);
            Rejection::misconfigured()
        })
    }

    /// Where mistakes of the application are told.
    pub(crate) fn mistakes(&self) -> &Throttle {
        &self.mistakes
    }
}

/// What a HEAD request is answered: the length of the body, if it is known, and not the body.
fn without_body(response: &mut Response<Refusal>) {
    let body = std::mem::take(response.body_mut());
    if let Some(length) = body.size_hint().exact() {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
}

/// Tells that a function of the application panicked.
pub(crate) fn log_panic(mistakes: &Throttle, panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    mistakes.at_most_each_second(|held_back| {
        tracing::error!(
            target: "tower_quota::config",
            panic = text.unwrap_or("no message"),
            held_back,
            "a function that was given to a layer panicked"
        );
    });
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusals").field("are_replaced", &self.are_replaced()).finish_non_exhaustive()
    }
}
