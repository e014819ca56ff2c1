//! A rejection as a gRPC status, and which requests are calls of gRPC.

use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, PreconditionViolation, QuotaViolation, StatusExt};
use tower_quota_core::Verdict;

use super::{Reason, Rejection};

const GRPC: &str = "application/grpc";
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
        if let Some(of_web) = request.get(CONTENT_TYPE).filter(|value| subtype(value).is_some_and(is_web)) {
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

/// Whether a head is one of gRPC, of its web form too: by the content type.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let rest = headers.get(CONTENT_TYPE).and_then(subtype);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';', ' ']) || is_web(rest))
}

/// What follows `application/grpc`.
fn subtype(content_type: &HeaderValue) -> Option<&str> {
    let text = content_type.to_str().ok()?;
    let (kind, rest) = text.split_at_checked(GRPC.len())?;
    kind.eq_ignore_ascii_case(GRPC).then_some(rest)
}

fn is_web(rest: &str) -> bool {
    rest.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("-web"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_by_their_content_type() {
        let is_call = |content_type: &[u8]| {
            let value = HeaderValue::from_bytes(content_type).unwrap();
            is_grpc(&HeaderMap::from_iter([(CONTENT_TYPE, value)]))
        };
        for call in ["", "+proto", "+json", ";charset=utf-8", "-web", "-web+proto", "-web-text+proto"] {
            assert!(is_call(format!("application/grpc{call}").as_bytes()), "{call}");
            assert!(is_call(format!("Application/gRPC{call}").as_bytes()), "{call}");
        }
        for other in [&b""[..], b"application/grp", b"application/json", b"application/grpcs", b"application/grpc\xff"]
        {
            assert!(!is_call(other), "{other:?}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
