//! A rejection as a gRPC status.

use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, PreconditionViolation, QuotaViolation, StatusExt};
use tower_quota_core::Verdict;

use super::{Reason, Rejection};
use crate::content_type;

const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// What a handler returns whose own charge was refused, and what a layer answers a call with.
///
/// | reason | code | details |
/// |---|---|---|
/// | the caller's quota is used up | `RESOURCE_EXHAUSTED` | `RetryInfo`, `QuotaFailure` |
/// | the service's capacity is | `UNAVAILABLE` | `RetryInfo`, `QuotaFailure` |
/// | the cost is above a whole limit | `FAILED_PRECONDITION` | `PreconditionFailure` |
/// | too many in flight, upstream paused, store down | `UNAVAILABLE` | `RetryInfo` |
/// | who is asking is missing or malformed | `INVALID_ARGUMENT` | |
/// | a mistake in what the application hung in | `INTERNAL` | |
///
/// Violations have the axis for a subject. The delay of `RetryInfo` is the wait that `Retry-After` rounds up to seconds.
impl From<Rejection> for Status {
    fn from(rejection: Rejection) -> Self {
        rejection.to_status(false)
    }
}

impl Rejection {
    /// The status; `pushback` tells clients with a retry policy when to try again, or not to.
    fn to_status(&self, pushback: bool) -> Status {
        let mut metadata = MetadataMap::new();
        if pushback {
            let value = self.delay().map_or(MetadataValue::from_static("-1"), |delay| {
                MetadataValue::from(i32::try_from(delay.as_millis()).unwrap_or(i32::MAX))
            });
            metadata.insert(PUSHBACK, value);
        }
        let (code, title) = (code(self.reason()), self.reason().title());
        let mut status = Status::with_error_details_and_metadata(code, title, self.details(), metadata);
        status.set_source(Arc::new(self.clone()));
        status
    }

    fn details(&self) -> ErrorDetails {
        let mut details = ErrorDetails::new();
        details.set_retry_info(self.delay());
        if self.reason() == Reason::CostExceedsLimit {
            let axes = self.verdict().into_iter().flat_map(Verdict::reports);
            let violations = axes.filter(|report| report.never_fits()).map(|report| {
                let most = format!("{} is the most that ever fits", report.limit());
                PreconditionViolation::new("QUOTA", report.axis(), most)
            });
            details.set_precondition_failure(violations.collect::<Vec<_>>());
        } else if self.verdict().is_some() {
            let violations = self.violated().map(|report| {
                QuotaViolation::new(report.axis(), format!("{} of {} left", report.remaining(), report.limit()))
            });
            details.set_quota_failure(violations.collect::<Vec<_>>());
        }
        details
    }

    /// The wait in whole milliseconds, rounded up, at least one.
    fn delay(&self) -> Option<Duration> {
        let wait = self.wait()?;
        let millis = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Some(Duration::from_millis(millis.max(1)))
    }

    /// The answer to a call: trailers only. One that a page in a browser made gets it in the form that it speaks.
    pub(crate) fn to_grpc<B: Default>(&self, request: &HeaderMap, pushback: bool) -> Response<B> {
        let mut response = self.to_status(pushback).into_http();
        response.extensions_mut().insert(self.clone());
        if let Some(of_web) = content_type::of_grpc_web(request) {
            response.headers_mut().insert(CONTENT_TYPE, of_web.clone());
        }
        response
    }
}

/// The rejection that a handler returned as a status.
pub(super) fn of<B>(response: &Response<B>) -> Option<&Rejection> {
    let status: &Status = response.extensions().get()?;
    std::error::Error::source(status)?.downcast_ref()
}

fn code(reason: Reason) -> Code {
    match reason {
        Reason::QuotaExceeded => Code::ResourceExhausted,
        Reason::CapacityExceeded | Reason::Busy | Reason::UpstreamPaused | Reason::StoreFailed => Code::Unavailable,
        Reason::CostExceedsLimit => Code::FailedPrecondition,
        Reason::KeyMissing | Reason::KeyMalformed => Code::InvalidArgument,
        Reason::Misconfigured => Code::Internal,
    }
}
