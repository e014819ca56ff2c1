//! Sets up a cooldown around a service.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tower_layer::Layer;
use tower_quota_core::CooldownAxis;

use super::rules::Rules;
use super::service::Cooling;
use crate::answer::{Refusals, refusal_setters};
use crate::key::{RequestKey, RequiredKey};

/// Counts the attempts, or the failures, of each key, and lets it rest: around an outbound client, or in front of a login.
/// What a layer further in refuses is no failure, nor a success, and its `Retry-After` is not the other side's; nor is a
/// [`Rejection`](crate::Rejection) that a handler returns, unless it says [what](crate::AttemptOutcome) it stands for.
///
/// A request is counted before it is made, and its call ends with the head of its response, an error, or a drop. While its
/// key rests, a request is answered with 429 and the exact `Retry-After`.
///
/// Around a client, 5,000 messages of one school and then a rest; a provider that answers 429 or 503 with `Retry-After`
/// makes it longer:
///
/// ```
/// use tower_quota::{Cooldown, CooldownLayer, Group, MINUTE, MemoryStore, key};
///
/// let relay = Group::new("relay", MemoryStore::new())?;
/// let push = relay.cooldown("school", Cooldown::after_attempts(5_000).rest(3 * MINUTE)).build()?;
/// let layer = CooldownLayer::new(&push, key::header("x-school")?);
/// # let _ = layer;
/// # Ok::<(), tower_quota::ConfigError>(())
/// ```
///
/// In front of a login, five wrong passwords lock an account for a quarter of an hour, and a right one before starts over:
///
/// ```
/// use http::StatusCode;
/// use tower_quota::{Cooldown, CooldownLayer, Group, MINUTE, MemoryStore, key};
///
/// let logins = Group::new("login", MemoryStore::new())?;
/// let rule = Cooldown::after_failures(5).within(15 * MINUTE).rest(15 * MINUTE);
/// let account = logins.cooldown("account", rule).build()?;
/// let layer = CooldownLayer::new(&account, key::header("x-account")?)
///     .failed_when(|response| response.status == StatusCode::UNAUTHORIZED);
/// # let _ = layer;
/// # Ok::<(), tower_quota::ConfigError>(())
/// ```
///
/// A stranger who knows the name of an account can lock it so. Where that matters, count by a key of account and address
/// together, beside one by address alone.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing before it is applied"]
pub struct CooldownLayer {
    rules: Arc<Rules>,
}

impl CooldownLayer {
    /// Counts requests on this axis, under this key. A request without a key, or with one that is nonsense, is answered
    /// with 400.
    pub fn new(axis: &CooldownAxis, key: RequestKey) -> Self {
        Self {
            rules: Arc::new(Rules {
                axis: axis.clone(),
                key: RequiredKey::new(key, Some(axis.name())),
                attempts: None,
                failed_when: None,
                patience: Duration::ZERO,
                rest_at_most: Duration::from_secs(60 * 60),
                refusals: Refusals::default(),
            }),
        }
    }

    /// How many attempts a request is, read from its head: 1 by default. If they do not fit below the limit, the rest
    /// starts now; more than the limit are answered with 422.
    pub fn attempts(self, attempts: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.set(|rules| rules.attempts = Some(Arc::new(attempts)))
    }

    /// Which responses tell of a failure: by default those of status 400 and above, and of gRPC those whose head has a
    /// `grpc-status` other than 0, as that of a call that failed before it answered anything. What a handler puts into the
    /// extensions of its response, an [`AttemptOutcome`](crate::AttemptOutcome), goes before it. A request without a
    /// response has failed: its caller has gone, or the service.
    pub fn failed_when(self, failed: impl Fn(&http::response::Parts) -> bool + Send + Sync + 'static) -> Self {
        self.set(|rules| rules.failed_when = Some(Arc::new(failed)))
    }

    /// Lets a request wait for up to so long until the rest has ended, instead of refusing it at once.
    pub fn wait_up_to(self, time: Duration) -> Self {
        self.set(|rules| rules.patience = time)
    }

    /// The longest rest that a response's `Retry-After` can ask for, beside that of the rule: an hour by default.
    pub fn rest_at_most(self, time: Duration) -> Self {
        self.set(|rules| rules.rest_at_most = time)
    }

    refusal_setters!();

    fn set(self, change: impl FnOnce(&mut Rules)) -> Self {
        let mut rules = Arc::unwrap_or_clone(self.rules);
        change(&mut rules);
        Self { rules: Arc::new(rules) }
    }
}

impl<S> Layer<S> for CooldownLayer {
    type Service = Cooling<S>;

    fn layer(&self, inner: S) -> Cooling<S> {
        Cooling::new(inner, Arc::clone(&self.rules))
    }
}
