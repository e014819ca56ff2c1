//! A rejection as an HTTP response: a problem document (RFC 9457).

use std::fmt;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response};
use http_body_util::Full;

use super::Rejection;

impl Rejection {
    /// The answer, as `application/problem+json`, with `Retry-After` where a wait helps, and `Cache-Control: no-store`.
    ///
    /// ```json
    /// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The quota is used up",
    ///  "status":429,"axis":"account","violated-policies":["account"],"limit":30,"remaining":0,"retry-after":1800}
    /// ```
    ///
    /// `violated-policies` names all axes that refuse, `limit` and `remaining` are those of the `axis` that gives the
    /// answer, and `retry-after` is the value of the header.
    pub fn to_response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(Problem(self).to_string()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(wait) = self.retry_after() {
            headers.insert(RETRY_AFTER, wait.as_secs().into());
        }
        response.extensions_mut().insert(self.clone());
        response
    }
}

/// The problem document. Nothing in it needs quoting: titles are ours, and names of axes are plain by construction.
struct Problem<'r>(&'r Rejection);

impl fmt::Display for Problem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rejection = self.0;
        let (reason, status) = (rejection.reason(), rejection.status().as_u16());
        write!(f, r#"{{"type":"{}","title":"{}","status":{status}"#, reason.problem_type(), reason.title())?;
        if let Some(axis) = rejection.axis() {
            write!(f, r#","axis":"{axis}""#)?;
        }
        if let Some(verdict) = rejection.verdict() {
            f.write_str(r#","violated-policies":["#)?;
            for (index, report) in rejection.violated().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                write!(f, r#"{comma}"{}""#, report.axis())?;
            }
            f.write_str("]")?;
            if let Some(by) = verdict.refused_by() {
                write!(f, r#","limit":{},"remaining":{}"#, by.limit(), by.remaining())?;
            }
        }
        if let Some(wait) = rejection.retry_after() {
            write!(f, r#","retry-after":{}"#, wait.as_secs())?;
        }
        f.write_str("}")
    }
}

/// `Rejection::to_response`, in an axum handler.
#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for Rejection {
    fn into_response(self) -> axum_core::response::Response {
        self.to_response().map(axum_core::body::Body::new)
    }
}
