//! Who is asking: how a key is read from the head of a request.
//!
//! A [`RequestKey`] comes from a [header](header()), from the [client's address](client_ip()), from a request
//! [extension](extension()) that an earlier layer has set, or from [any function](from_fn()) of the request's head; several
//! are put together by [`or`](RequestKey::or) and [`with`](RequestKey::with). A header says what its sender wants it to
//! say: count by it only where something in front has verified it. So does a token that nobody has verified: whoever makes
//! one up for each request has a fresh budget each time, or uses up somebody else's. An extension that the application's
//! own authentication sets is the key to trust. An empty key is none.

mod address;
mod client_ip;
mod forwarded;
mod trusted_proxies;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::header::HeaderName;
use http::request::Parts;
use tower_quota_core::{ConfigError, Key, KeyRead, Measure, PerKeyAxis};

pub use self::client_ip::{PeerAddr, client_ip};
pub use self::trusted_proxies::TrustedProxies;

/// The longest header value that is taken for an identity, in bytes.
const LONGEST_HEADER: usize = 1_024;

/// How a key is read from a request: cheap to clone.
#[derive(Clone)]
pub struct RequestKey {
    reading: Reading,
    /// What is looked at, for the log.
    source: Cow<'static, str>,
}

/// Where a key is.
#[derive(Clone)]
enum Reading {
    /// It is made of what the request holds.
    Made(Arc<dyn Fn(&Parts) -> KeyRead + Send + Sync>),
    /// It stands in the request.
    Lent(Arc<ReadLent>),
}

type ReadLent = dyn Fn(&Parts) -> KeyRead<&[u8]> + Send + Sync;

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
    let source = format!("the header {name}").into();
    Ok(RequestKey { reading: Reading::Lent(Arc::new(move |parts| read_header(parts, &name))), source })
}

fn header_name(name: &str) -> Result<HeaderName, ConfigError> {
    let wrong = |_| ConfigError::new("key.header", format!("{name:?} cannot be the name of a header"));
    HeaderName::from_bytes(name.as_bytes()).map_err(wrong)
}

/// The same key for every request: one counter, or one pause, for all of them.
pub fn constant(key: impl Into<Key>) -> RequestKey {
    let key = key.into();
    RequestKey::new("a constant", move |_| KeyRead::Found(key.clone()))
}

fn read_header<'r>(parts: &'r Parts, name: &HeaderName) -> KeyRead<&'r [u8]> {
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
        Self { reading: Reading::Made(Arc::new(read)), source: source.into() }
    }

    /// This key, or the next one for a request without it: an account, else its address. Nonsense stays nonsense.
    ///
    /// The two never meet: an address that looks like an account is another key.
    ///
    /// ```
    /// use tower_quota::key::{self, TrustedProxies};
    ///
    /// let who = key::header("x-account")?.or(key::client_ip(TrustedProxies::none()));
    /// # let _ = who;
    /// # Ok::<(), tower_quota::ConfigError>(())
    /// ```
    pub fn or(self, next: Self) -> Self {
        let source = format!("{}, or {}", self.source, next.source);
        Self::new(source, move |parts| match self.read(parts) {
            KeyRead::Found(key) => KeyRead::Found(joined(b'1', &[&key])),
            KeyRead::Missing => match next.read(parts) {
                KeyRead::Found(key) => KeyRead::Found(joined(b'2', &[&key])),
                read => read,
            },
            read => read,
        })
    }

    /// This key and another one together: a tenant and a user, an account and a route. A request has it if it has both.
    ///
    /// ```
    /// use tower_quota::key;
    ///
    /// let user = key::header("x-tenant")?.with(key::header("x-user")?);
    /// # let _ = user;
    /// # Ok::<(), tower_quota::ConfigError>(())
    /// ```
    pub fn with(self, other: Self) -> Self {
        let source = format!("{} and {}", self.source, other.source);
        Self::new(source, move |parts| match (self.read(parts), other.read(parts)) {
            (KeyRead::Found(one), KeyRead::Found(other)) => KeyRead::Found(joined(b'&', &[&one, &other])),
            (KeyRead::Malformed, _) | (_, KeyRead::Malformed) => KeyRead::Malformed,
            _ => KeyRead::Missing,
        })
    }

    /// The key of a request, as the layers read it: for an application's own tests and logs. An empty one identifies
    /// nobody, wherever it comes from.
    pub fn read(&self, parts: &Parts) -> KeyRead {
        let read = match &self.reading {
            Reading::Made(read) => read(parts),
            Reading::Lent(read) => read(parts).map(Key::new),
        };
        unless_empty(read)
    }

    /// An axis, counted under this key; `missed` is told of each request without one, and of where it was looked for.
    pub(crate) fn measure(self, axis: &PerKeyAxis, missed: impl Fn(&str) + Send + Sync + 'static) -> Measure<Parts> {
        let Self { reading, source } = self;
        let missed = move || missed(&source);
        match reading {
            Reading::Made(read) => axis.by(move |parts: &Parts| noting(unless_empty(read(parts)), &missed)),
            Reading::Lent(read) => axis.by_bytes(move |parts: &Parts| noting(unless_empty(read(parts)), &missed)),
        }
    }
}

fn unless_empty<K: AsRef<[u8]>>(read: KeyRead<K>) -> KeyRead<K> {
    match read {
        KeyRead::Found(key) if key.as_ref().is_empty() => KeyRead::Missing,
        read => read,
    }
}

fn noting<K>(read: KeyRead<K>, missed: impl Fn()) -> KeyRead<K> {
    if let KeyRead::Missing = read {
        missed();
    }
    read
}

/// Keys as one, which no other keys make: each with its length before it.
fn joined(kind: u8, keys: &[&Key]) -> Key {
    let mut bytes = vec![kind];
    for key in keys {
        bytes.extend((key.as_bytes().len() as u64).to_be_bytes());
        bytes.extend(key.as_bytes());
    }
    Key::new(bytes)
}

impl fmt::Debug for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reading: _, source } = self;
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
    fn keys_are_put_together_without_meeting() {
        let of = |headers: &[(&'static str, &'static str)]| {
            let mut request = Request::new(());
            for (name, value) in headers {
                request.headers_mut().append(*name, http::HeaderValue::from_static(value));
            }
            request.into_parts().0
        };
        let name = |name: &str| header(name).unwrap();
        let both = name("a").with(name("b"));
        let read = |a: &'static str, b: &'static str| both.read(&of(&[("a", a), ("b", b)]));
        assert_ne!(read("x", "yz"), read("xy", "z"));
        assert_eq!(read("x", ""), KeyRead::Missing);
        assert_eq!(both.read(&of(&[("a", "x")])), KeyRead::Missing);
        assert_eq!(both.read(&of(&[("a", "x"), ("b", "y"), ("b", "z")])), KeyRead::Malformed);
        let either = name("a").or(name("b"));
        let (first, second) = (either.read(&of(&[("a", "x")])), either.read(&of(&[("b", "x")])));
        assert!(matches!((&first, &second), (KeyRead::Found(_), KeyRead::Found(_))) && first != second);
        assert_eq!(either.read(&of(&[("a", "x"), ("b", "y")])), first);
        assert_eq!(either.read(&of(&[])), KeyRead::Missing);
        assert_eq!(either.read(&of(&[("a", "x"), ("a", "y"), ("b", "y")])), KeyRead::Malformed);
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
