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
mod client_key;
mod forwarded;
mod header;
mod missing;
mod request_key;
mod trusted_proxies;

use http::request::Parts;
use tower_quota_core::{Key, KeyRead};

pub use self::client_ip::{PeerAddr, client_ip};
pub use self::header::header;
pub(crate) use self::missing::RequiredKey;
pub use self::request_key::RequestKey;
pub use self::trusted_proxies::TrustedProxies;

/// The same key for every request: one counter, or one pause, for all of them.
pub fn constant(key: impl Into<Key>) -> RequestKey {
    let key = key.into();
    RequestKey::new("a constant", move |_| KeyRead::Found(key.clone()))
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
