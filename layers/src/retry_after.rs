//! What somebody else's `Retry-After` says.

use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};

/// How long a response asks to wait: one of status 429 or 503 with a `Retry-After` that can be read, in seconds or as any
/// date of HTTP. Of several the longest.
pub(crate) fn of(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let asks = status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE;
    #[expect(clippy::disallowed_methods, reason = "what a date of the other side's wall clock is compared with")]
    let now = || {
        let date = headers.get(DATE).and_then(date);
        // A date is told by the other side's clock, and so is this one.
        date.unwrap_or_else(SystemTime::now)
    };
    let waits = headers.get_all(RETRY_AFTER).iter().filter_map(|value| wait(value, now));
    waits.max().filter(|_| asks)
}

fn wait(value: &HeaderValue, now: impl Fn() -> SystemTime) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More than can be counted is for ever.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let wait = date(value)?.duration_since(now()).unwrap_or_default();
    Some(Duration::from_secs(wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))))
}

fn date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE_OF_RESPONSE: &str = "Wed, 21 Oct 2026 07:27:00 GMT";

    fn read(values: &[&str]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, HeaderValue::from_static(DATE_OF_RESPONSE));
        for value in values {
            headers.append(RETRY_AFTER, value.parse().unwrap());
        }
        of(StatusCode::TOO_MANY_REQUESTS, &headers).map(|wait| wait.as_secs())
    }

    #[test]
    fn t27_seconds_and_every_date_of_http_are_read_and_junk_is_not() {
        for (values, expected) in [
            (&["120"][..], Some(120)),
            (&["0"], Some(0)),
            (&[" 7 "], Some(7)),
            (&["Wed, 21 Oct 2026 07:28:00 GMT"], Some(60)),
            (&["Wednesday, 21-Oct-26 07:28:00 GMT"], Some(60)),
            (&["Wed Oct 21 07:28:00 2026"], Some(60)),
            (&["Wed, 21 Oct 2026 07:00:00 GMT"], Some(0)),
            (&["99999999999999999999"], Some(u64::MAX)),
            (&["5", "50"], Some(50)),
            (&["soon", "5"], Some(5)),
            (&["-1"], None),
            (&["1.5"], None),
            (&["1e9"], None),
            (&["soon"], None),
            (&[""], None),
            (&[], None),
        ] {
            assert_eq!(read(values), expected, "{values:?}");
        }
    }

    #[test]
    fn t27_without_a_date_of_the_response_the_own_clock_counts_rounded_up() {
        let mut headers = HeaderMap::new();
        #[expect(clippy::disallowed_methods, reason = "a date is told by the wall clock")]
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60));
        headers.insert(RETRY_AFTER, later.parse().unwrap());
        let told = of(StatusCode::SERVICE_UNAVAILABLE, &headers).unwrap();
        assert!((59..=60).contains(&told.as_secs()) && told.subsec_nanos() == 0, "{told:?}");
        assert_eq!(of(StatusCode::OK, &headers), None, "another status asks for nothing");
        let told = HeaderValue::from_static("Wed, 21 Oct 2026 07:28:00 GMT");
        for (left, expected) in [(59_800, 60), (60_000, 60), (60_001, 61), (1, 1), (0, 0)] {
            let now = date(&told).unwrap() - Duration::from_millis(left);
            assert_eq!(wait(&told, || now), Some(Duration::from_secs(expected)), "{left} ms");
        }
    }
}
