//! What a content type says of a message.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};

const GRPC: &str = "application/grpc";

/// Whether a head is one of gRPC, of its web form too: by the content type.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let rest = headers.get(CONTENT_TYPE).and_then(subtype);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';', ' ']) || is_web(rest))
}

/// The content type of a call in the form that pages in browsers speak.
#[cfg(feature = "grpc")]
pub(crate) fn of_grpc_web(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(CONTENT_TYPE).filter(|value| subtype(value).is_some_and(is_web))
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
