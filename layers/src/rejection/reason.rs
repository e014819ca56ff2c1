//! Why requests are turned away, and what HTTP calls it.

use http::StatusCode;

/// Why a request was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The caller has used up its quota: 429.
    QuotaExceeded,
    /// The service has used up its capacity: 503.
    CapacityExceeded,
    /// The request costs more than a whole limit, so that no wait helps: 422.
    CostExceedsLimit,
    /// The request does not say who is asking: 400.
    KeyMissing,
    /// What the request says of who is asking is no identity: 400.
    KeyMalformed,
    /// As many requests as may be are in flight: 503.
    Busy,
    /// The upstream has asked for a pause that has not ended: 503.
    UpstreamPaused,
    /// The store could not answer, and the failure policy is closed: 503.
    StoreFailed,
    /// A function of the application panicked, or named an axis that is no part of the decision: 500.
    Misconfigured,
}

impl Reason {
    /// The status of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            Self::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
            Self::CapacityExceeded | Self::Busy | Self::UpstreamPaused | Self::StoreFailed => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::CostExceedsLimit => StatusCode::UNPROCESSABLE_ENTITY,
            Self::KeyMissing | Self::KeyMalformed => StatusCode::BAD_REQUEST,
            Self::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The problem type (RFC 9457), from the IANA registry where it has one.
    pub(super) fn problem_type(self) -> &'static str {
        match self {
            Self::QuotaExceeded => "https://iana.org/assignments/http-problem-types#quota-exceeded",
            Self::CapacityExceeded | Self::Busy => {
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
            }
            _ => "about:blank",
        }
    }

    /// A sentence for the caller.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::QuotaExceeded => "The quota is used up",
            Self::CapacityExceeded => "The service has no capacity left",
            Self::CostExceedsLimit => "The request costs more than the limit ever allows",
            Self::KeyMissing => "The request does not say who is asking",
            Self::KeyMalformed => "The request does not say clearly who is asking",
            Self::Busy => "The service is at work on as many requests as it can",
            Self::UpstreamPaused => "The service behind this one has asked for a pause",
            Self::StoreFailed => "The quota cannot be checked now",
            Self::Misconfigured => "The quota of this request cannot be determined",
        }
    }
}
