//! A header as a key.

use http::header::HeaderName;
use http::request::Parts;
use tower_quota_core::{ConfigError, KeyRead};

use super::request_key::RequestKey;

/// The longest header value that is taken for an identity, in bytes.
const LONGEST_HEADER: usize = 1_024;

/// The value of a header, byte by byte: any byte that HTTP allows counts, letters keep their case, and white space around
/// the value does not count.
///
/// A request without the header, or with an empty one, has no key. A header that is sent more than once, or is longer than
/// 1 KiB, is malformed: such a request is refused, whatever the policy for missing keys is.
///
/// ```
/// use tower_quota::key;
///
/// let account = key::header("x-account")?;
/// # let _ = account;
/// # Ok::<(), tower_quota::ConfigError>(())
/// ```
///
/// # Errors
///
/// `key.header` if HTTP allows no header of this name.
pub fn header(name: &str) -> Result<RequestKey, ConfigError> {
    let name = header_name(name)?;
    Ok(RequestKey::lent(format!("the header {name}"), move |parts| read(parts, &name)))
}

/// A name that HTTP allows.
pub(super) fn header_name(name: &str) -> Result<HeaderName, ConfigError> {
    let wrong = |_| ConfigError::new("key.header", format!("{name:?} cannot be the name of a header"));
    HeaderName::from_bytes(name.as_bytes()).map_err(wrong)
}

fn read<'r>(parts: &'r Parts, name: &HeaderName) -> KeyRead<&'r [u8]> {
    let mut values = parts.headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return KeyRead::Missing;
    };
    let value = value.as_bytes().trim_ascii();
    match value.len() {
        _ if values.next().is_some() => KeyRead::Malformed,
        0 => KeyRead::Missing,
        1..=LONGEST_HEADER => KeyRead::Found(value),
        _ => KeyRead::Malformed,
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use tower_quota_core::Key;

    use super::*;

    fn read(values: &[&[u8]]) -> KeyRead {
        let mut request = Request::new(());
        for value in values {
            request.headers_mut().append("x-account", http::HeaderValue::from_bytes(value).unwrap());
        }
        header("X-Account").unwrap().read(&request.into_parts().0)
    }

    #[test]
    fn a_header_is_a_key_byte_by_byte() {
        for value in [&b"alice"[..], b"Alice", b"\xff\x80", "Zoë".as_bytes(), &[b'a'; LONGEST_HEADER]] {
            assert_eq!(read(&[value]), KeyRead::Found(Key::new(value)));
        }
        assert_eq!(read(&[b" alice\t"]), KeyRead::Found(Key::from("alice")));
    }

    #[test]
    fn no_header_and_an_empty_one_are_no_key() {
        assert_eq!(read(&[]), KeyRead::Missing);
        assert_eq!(read(&[b""]), KeyRead::Missing);
        assert_eq!(read(&[b"  "]), KeyRead::Missing);
    }

    #[test]
    fn nonsense_is_malformed() {
        assert_eq!(read(&[b"alice", b"bob"]), KeyRead::Malformed);
        assert_eq!(read(&[b"alice", b"alice"]), KeyRead::Malformed);
        assert_eq!(read(&[b"", b"alice"]), KeyRead::Malformed);
        assert_eq!(read(&[&[b'a'; LONGEST_HEADER + 1]]), KeyRead::Malformed);
        assert_eq!(read(&[&vec![b'a'; 1 << 20]]), KeyRead::Malformed);
    }

    #[test]
    fn a_header_that_cannot_be_is_told() {
        for name in ["", "x account", "x-account:", "ä"] {
            assert_eq!(header(name).unwrap_err().field(), "key.header", "{name:?}");
        }
    }
}
