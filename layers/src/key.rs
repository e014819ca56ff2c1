//! Who is asking: how a key is read from the head of a request.
//!
//! A [`RequestKey`] comes from a [header](header()), from a request [extension](extension()) that an earlier layer has
//! set, or from [any function](from_fn()) of the request's head. A header says what its sender wants it to say: count by it
//! only where something in front has verified it. An extension that the application's own authentication sets is the key
//! to trust. An empty key is none.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::header::HeaderName;
use http::request::Parts;
use tower_quota_core::{ConfigError, Key, KeyRead};

/// The longest header value that is taken for an identity, in bytes.
const LONGEST_HEADER: usize = 1_024;

/// How a key is read from a request: cheap to clone.
#[derive(Clone)]
pub struct RequestKey {
    read: Arc<dyn Fn(&Parts) -> KeyRead + Send + Sync>,
    /// What is looked at, for the log.
    source: Cow<'static, str>,
}

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
    let wrong = |_| ConfigError::new("key.header", format!("{name:?} cannot be the name of a header"));
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(wrong)?;
    let source = format!("the header {name}");
    Ok(RequestKey::new(source, move |parts| read_header(parts, &name)))
}

/// The same key for every request: one counter, or one pause, for all of them.
pub fn constant(key: impl Into<Key>) -> RequestKey {
    let key = key.into();
    RequestKey::new("a constant", move |_| KeyRead::Found(key.clone()))
}

fn read_header(parts: &Parts, name: &HeaderName) -> KeyRead {
    let mut values = parts.headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return KeyRead::Missing;
    };
    let value = value.as_bytes().trim_ascii();
    match value.len() {
        _ if values.next().is_some() => KeyRead::Malformed,
        0 => KeyRead::Missing,
        1..=LONGEST_HEADER => KeyRead::Found(Key::new(value)),
        _ => KeyRead::Malformed,
    }
}

/// What `key` reads from the request extension of type `T`, which an earlier layer has set. Without it, the request has no
/// key.
///
/// ```
/// use tower_quota::key;
///
/// #[derive(Clone)]
/// struct AccountId(u64);
///
/// let account = key::extension(|id: &AccountId| id.0);
/// # let _ = account;
/// ```
pub fn extension<T, K>(key: impl Fn(&T) -> K + Send + Sync + 'static) -> RequestKey
where
    T: Send + Sync + 'static,
    K: Into<Key>,
{
    let source = format!("the request extension {}", std::any::type_name::<T>());
    RequestKey::new(source, move |parts| parts.extensions.get::<T>().map(|extension| key(extension).into()).into())
}

/// What `read` makes of the request's head: a [`Key`], an `Option<Key>`, or a [`KeyRead`] where nonsense must be told from
/// nothing.
///
/// ```
/// use tower_quota::{Key, Parts, key};
///
/// // "/tenants/acme/orders" is counted under "acme".
/// let tenant = key::from_fn(|parts: &Parts| parts.uri.path().split('/').nth(2).map(Key::from));
/// # let _ = tenant;
/// ```
pub fn from_fn<R>(read: impl Fn(&Parts) -> R + Send + Sync + 'static) -> RequestKey
where
    R: Into<KeyRead>,
{
    RequestKey::new("what a function reads from the request", move |parts| read(parts).into())
}

impl RequestKey {
    fn new(source: impl Into<Cow<'static, str>>, read: impl Fn(&Parts) -> KeyRead + Send + Sync + 'static) -> Self {
        Self { read: Arc::new(read), source: source.into() }
    }

    /// The key of a request. An empty one identifies nobody, wherever it comes from.
    pub(crate) fn read(&self, parts: &Parts) -> KeyRead {
        match (self.read)(parts) {
            KeyRead::Found(key) if key.as_bytes().is_empty() => KeyRead::Missing,
            read => read,
        }
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }
}

impl fmt::Debug for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { read: _, source } = self;
        f.debug_struct("RequestKey").field("source", source).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

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
    fn an_empty_key_is_none_wherever_it_comes_from() {
        let mut request = Request::new(());
        request.extensions_mut().insert(String::new());
        let parts = request.into_parts().0;
        assert_eq!(extension(|name: &String| Key::from(name)).read(&parts), KeyRead::Missing);
        assert_eq!(from_fn(|_| Key::from("")).read(&parts), KeyRead::Missing);
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
