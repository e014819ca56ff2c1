//! How a key is read, whatever it is, and how several are put together.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use tower_quota_core::{Key, KeyRead, Measure, PerKeyAxis};

use super::missing::Missing;

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

impl RequestKey {
    /// A key that is made of what the request holds.
    pub(super) fn new(
        source: impl Into<Cow<'static, str>>,
        read: impl Fn(&Parts) -> KeyRead + Send + Sync + 'static,
    ) -> Self {
        Self { reading: Reading::Made(Arc::new(read)), source: source.into() }
    }

    /// A key that stands in the request.
    pub(super) fn lent(
        source: impl Into<Cow<'static, str>>,
        read: impl Fn(&Parts) -> KeyRead<&[u8]> + Send + Sync + 'static,
    ) -> Self {
        Self { reading: Reading::Lent(Arc::new(read)), source: source.into() }
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

    /// An axis, counted under this key.
    pub(crate) fn measure(self, axis: &PerKeyAxis) -> Measure<Parts> {
        let (Self { reading, source }, missing) = (self, Missing::on(Some(axis.name())));
        match reading {
            Reading::Made(read) => axis.by(move |parts: &Parts| missing.note(unless_empty(read(parts)), &source)),
            Reading::Lent(read) => axis.by_bytes(move |parts: &Parts| missing.note(unless_empty(read(parts)), &source)),
        }
    }

    /// What is looked at.
    pub(super) fn source(&self) -> &str {
        &self.source
    }
}

fn unless_empty<K: AsRef<[u8]>>(read: KeyRead<K>) -> KeyRead<K> {
    match read {
        KeyRead::Found(key) if key.as_ref().is_empty() => KeyRead::Missing,
        read => read,
    }
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

    use super::super::{extension, from_fn, header};
    use super::*;

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
}
