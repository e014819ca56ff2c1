//! Sets up pauses around a client.

use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;
use tower_quota_core::BackoffAxis;

use super::rules::Rules;
use super::service::Backoff;
use crate::answer::{Refusals, refusal_setters};
use crate::key::{RequestKey, RequiredKey};

/// Around an outbound client: an upstream that answers 429 or 503 with `Retry-After` is not called again under the same key
/// before that time, by no instance if the store is shared; or before the longest pause that the axis
/// [lets it ask for](tower_quota_core::BackoffBuilder::at_most), ten minutes by default.
///
/// `Retry-After` is read as seconds or as any date of HTTP, against the response's own `Date`; of several the longest
/// counts. What cannot be read is none, and what one of our layers further in has refused is not the upstream's. The response
/// itself is passed on as it is, `Retry-After` included.
///
/// ```
/// use std::time::Duration;
/// use tower_quota::{BackoffLayer, Group, MemoryStore, key};
///
/// let gmail = Group::new("gmail", MemoryStore::new())?;
/// let backoff = gmail.backoff("mailbox").at_most(Duration::from_secs(600)).build()?;
/// // A worker waits; each mailbox for itself.
/// let layer = BackoffLayer::new(&backoff, key::header("x-mailbox")?).wait_up_to(Duration::from_secs(60));
/// # let _ = layer;
/// # Ok::<(), tower_quota::ConfigError>(())
/// ```
///
/// With one pause for the whole upstream, and a caller of our own who is told at once:
///
/// ```
/// use tower_quota::{BackoffLayer, Group, MemoryStore, key};
///
/// let seats = Group::new("seats", MemoryStore::new())?;
/// let layer = BackoffLayer::new(&seats.backoff("upstream").build()?, key::constant("seats"));
/// # let _ = layer;
/// # Ok::<(), tower_quota::ConfigError>(())
/// ```
///
/// What a quota layer around the same client has charged for a call that was answered so stays charged, or is given back by
/// [`refund_when`](crate::QuotaLayer::refund_when).
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing before it is applied"]
pub struct BackoffLayer {
    rules: Arc<Rules>,
}

impl BackoffLayer {
    /// Pauses on this axis, under this key. A request without a key, or with one that is nonsense, is answered with 400.
    pub fn new(axis: &BackoffAxis, key: RequestKey) -> Self {
        Self {
            rules: Arc::new(Rules {
                axis: axis.clone(),
                key: RequiredKey::new(key, Some(axis.name())),
                patience: Duration::ZERO,
                otherwise: Duration::from_secs(1),
                refusals: Refusals::default(),
            }),
        }
    }

    /// Lets a call wait for up to so long until the pause has ended: not at all by default, then it is answered with 503
    /// and the rest of the pause as `Retry-After`. Those who wait go on a little apart ([`BackoffAxis::wait`]).
    pub fn wait_up_to(self, time: Duration) -> Self {
        self.set(|rules| rules.patience = time)
    }

    /// How long to pause after a 429 whose `Retry-After` is missing or cannot be read: a second by default. A 503 without
    /// one pauses nothing.
    pub fn otherwise(self, time: Duration) -> Self {
        self.set(|rules| rules.otherwise = time)
    }

    refusal_setters!();

    fn set(self, change: impl FnOnce(&mut Rules)) -> Self {
        let mut rules = Arc::unwrap_or_clone(self.rules);
        change(&mut rules);
        Self { rules: Arc::new(rules) }
    }
}

impl<S> Layer<S> for BackoffLayer {
    type Service = Backoff<S>;

    fn layer(&self, inner: S) -> Backoff<S> {
        Backoff::new(inner, Arc::clone(&self.rules))
    }
}
