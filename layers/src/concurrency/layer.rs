//! Sets up a limit on what is in flight.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tower_layer::Layer;

use super::gate::{Gate, Limits};
use super::rules::Rules;
use super::service::Concurrency;
use crate::answer::refusal_setters;
use crate::key::{RequestKey, RequiredKey};

/// Lets at most so many requests through at once: inbound in front of a handler, outbound around a client.
///
/// A request is in flight from when it is let through until its response body ends, fails or is dropped. One that finds no
/// room is answered with 503, unless it may [wait](Self::max_wait): then the first to come goes first.
///
/// ```
/// use std::time::Duration;
/// use tower_quota::ConcurrencyLayer;
///
/// // Twelve at once, and 500 more that wait for up to half a minute.
/// let layer = ConcurrencyLayer::new(12).max_queue(500).max_wait(Duration::from_secs(30));
/// # let _ = layer;
/// ```
///
/// Around a client, many calls go out a few at a time, and their results come back in the order of the input, by the
/// streams of `futures` alone. A response is in flight until its body is read or dropped:
///
/// ```
/// use std::time::Duration;
/// use futures_util::{StreamExt, stream};
/// use http::{Request, Response};
/// use http_body_util::BodyExt;
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_quota::ConcurrencyLayer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let upstream = service_fn(|request: Request<String>| async move {
/// #     Ok::<_, std::convert::Infallible>(Response::new(http_body_util::Full::new(bytes::Bytes::from(request.into_body()))))
/// # });
/// // `upstream` is any client of type `Service<Request<_>, Response = Response<_>> + Clone`.
/// let client = ConcurrencyLayer::new(12).max_queue(500).max_wait(Duration::from_secs(30)).layer(upstream);
/// let requests = (0..500).map(|item| Request::new(item.to_string()));
/// let results: Vec<_> = stream::iter(requests)
///     .map(|request| {
///         let client = client.clone();
///         async move {
///             let Ok(response) = client.oneshot(request).await;
///             response.into_body().collect().await.map(|body| body.to_bytes())
///         }
///     })
///     .buffered(500)
///     .collect()
///     .await;
/// assert!(results.iter().enumerate().all(|(item, body)| *body.as_ref().unwrap() == item.to_string()));
/// # }
/// ```
///
/// One layer value is one limit, wherever clones of it are mounted. On HTTP/2 a limit below the number of streams that a
/// connection may have refuses streams, or lets them wait for as long as [`max_wait`](Self::max_wait) says: a stream that
/// waits may hold up the flow control of the others on its connection for that time.
///
/// Upgraded connections, such as a `WebSocket`: see [`Permit`](crate::Permit).
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing before it is applied"]
pub struct ConcurrencyLayer {
    rules: Arc<Rules>,
}

impl ConcurrencyLayer {
    /// At most `limit` requests at once; 0 lets none through.
    pub fn new(limit: usize) -> Self {
        Self::with(Gate::new(limit), None)
    }

    /// At most `limit` requests of each key at once. A request without a key, or with one that is nonsense, is answered
    /// with 400.
    ///
    /// Keys are kept while they have a request in flight or waiting.
    ///
    /// ```
    /// use tower_quota::{ConcurrencyLayer, key};
    ///
    /// // An account may have four exports at once, and all together twenty.
    /// let layer = ConcurrencyLayer::per_key(4, key::header("x-account")?).total(20);
    /// # let _ = layer;
    /// # Ok::<(), tower_quota::ConfigError>(())
    /// ```
    pub fn per_key(limit: usize, key: RequestKey) -> Self {
        Self::with(Gate::per_key(Limits { lane: limit, total: usize::MAX }), Some(RequiredKey::new(key, None)))
    }

    fn with(gate: Gate, key: Option<RequiredKey>) -> Self {
        Self { rules: Arc::new(Rules::new(gate, key)) }
    }

    /// At most `limit` requests of all keys together. A key that is alone may use what its own limit allows; when several
    /// wait, the one with the least in flight goes first.
    pub fn total(self, limit: usize) -> Self {
        self.rules.gate.set_limits(|limits| limits.total = limit);
        self
    }

    /// How long a request may wait for its place: not at all by default.
    pub fn max_wait(self, wait: Duration) -> Self {
        self.set(|rules| rules.max_wait = wait)
    }

    /// How many requests may wait at once, if they [may wait](Self::max_wait): 1,024 by default. The next one is answered
    /// with 503 at once; or, if its key would still have fewer waiting than another one, whoever came last of the key that
    /// has most, so that no key fills the queue for others.
    pub fn max_queue(self, requests: usize) -> Self {
        self.set(|rules| rules.max_queue = requests)
    }

    /// How much of the limit a request takes, read from its head: 1 by default, and at least. One that is heavier than the
    /// limit goes through alone.
    ///
    /// A panic of `weight` is answered with 500.
    pub fn weight(self, weight: impl Fn(&Parts) -> usize + Send + Sync + 'static) -> Self {
        self.set(|rules| rules.weight = Some(Arc::new(weight)))
    }

    /// A request is in flight until the head of its response is ready, however long its body takes.
    pub fn release_at_head(self) -> Self {
        self.set(|rules| rules.releases_at_head = true)
    }

    /// Takes a request for over so long after it was let through, whatever holds its place: a caller who keeps a response and
    /// does not read it, a handler or an upgraded connection without an end. The request itself goes on, beside others that
    /// are let through in its place. Without it, a place is held for as long as the response is.
    ///
    /// It takes a timer of tokio for each request.
    pub fn max_hold(self, time: Duration) -> Self {
        self.set(|rules| rules.max_hold = Some(time))
    }

    /// What a refused caller is told to wait: a second by default, rounded up to whole seconds, at least one.
    pub fn retry_after(self, wait: Duration) -> Self {
        self.set(|rules| rules.retry_after = wait)
    }

    refusal_setters!();

    /// Changes the limit while requests are in flight: that of each key, if there are keys. A lower one lets nobody
    /// through until what is in flight is below it; a higher one lets those who wait through at once.
    pub fn set_limit(&self, limit: usize) {
        self.rules.gate.set_limits(|limits| limits.lane = limit);
    }

    /// Changes the limit of all keys together. As [`set_limit`](Self::set_limit).
    pub fn set_total(&self, limit: usize) {
        self.rules.gate.set_limits(|limits| limits.total = limit);
    }

    /// How much is in flight now: requests, or the sum of their weights.
    pub fn in_flight(&self) -> usize {
        self.rules.gate.in_flight()
    }

    /// How many requests wait now.
    pub fn queued(&self) -> usize {
        self.rules.gate.queued()
    }

    /// How many keys have a request in flight or waiting; 1 for a limit without keys.
    pub fn keys(&self) -> usize {
        self.rules.gate.lanes()
    }

    /// The same limit, set up differently.
    fn set(self, change: impl FnOnce(&mut Rules)) -> Self {
        let mut rules = Arc::unwrap_or_clone(self.rules);
        change(&mut rules);
        Self { rules: Arc::new(rules) }
    }
}

impl<S> Layer<S> for ConcurrencyLayer {
    type Service = Concurrency<S>;

    fn layer(&self, inner: S) -> Concurrency<S> {
        Concurrency::new(inner, Arc::clone(&self.rules))
    }
}
