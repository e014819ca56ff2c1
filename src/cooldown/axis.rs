//! A cooldown as an axis of a group.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Batches, Begin, Cooldown, LEASE};
use crate::axis::{AxisBuilder, PerKeyAxis, SharedAxis};
use crate::config_error::ConfigError;
use crate::failure::OnStoreFailure;
use crate::group::Group;
use crate::key::Key;
use crate::meter::Meter;
use crate::quota::Algorithm;
use crate::store::StoreError;

impl Group {
    /// An axis that counts the attempts, or failures, of each key, and lets it rest.
    pub fn cooldown(&self, name: &str, rule: Cooldown) -> CooldownBuilder {
        CooldownBuilder {
            group: self.clone(),
            name: name.to_owned(),
            rule,
            total: None,
            lease: None,
            on_store_failure: OnStoreFailure::default(),
        }
    }
}

/// Sets up a [`CooldownAxis`]. Made by [`Group::cooldown`].
#[derive(Clone, Debug)]
#[must_use = "an axis exists once it is built"]
pub struct CooldownBuilder {
    group: Group,
    name: String,
    rule: Cooldown,
    total: Option<SharedAxis>,
    lease: Option<Duration>,
    on_store_failure: OnStoreFailure,
}

impl CooldownBuilder {
    /// A limit over all keys, of the same group, that every attempt is charged on as well: in the same step, or on
    /// neither.
    pub fn total(mut self, axis: &SharedAxis) -> Self {
        self.total = Some(axis.clone());
        self
    }

    /// How long the call that reaches the limit may take, a minute by default, at most 49 days: if nobody tells its end by
    /// then, because its process has gone, it counts as ended, and the rest has started then. A process that has gone in
    /// another call leaves its attempts counted. Not for failures.
    pub fn lease(mut self, time: Duration) -> Self {
        self.lease = Some(time);
        self
    }

    /// A stricter failure policy than the group's.
    pub fn on_store_failure(mut self, policy: OnStoreFailure) -> Self {
        self.on_store_failure = policy;
        self
    }

    /// The axis, registered with its group.
    ///
    /// # Errors
    ///
    /// `group.axis.limit`, `.rest`, `.lease`, `.within` and `.kept_on_success` of what cannot work; a name that is taken or is
    /// none; a total of another group.
    pub fn build(self) -> Result<CooldownAxis, ConfigError> {
        let Self { group, name, rule, total, lease, on_store_failure } = self;
        if let Some(total) = &total {
            total.core().must_be_counted_in(group.ledger())?;
        }
        let axis: AxisBuilder<PerKeyAxis> = group.per_key(&name, rule.quota(lease));
        let axis = axis.on_store_failure(on_store_failure).build()?;
        let mut meter = Meter::new(axis.by(Key::clone));
        if let Some(total) = &total {
            meter = meter.and(total)?;
        }
        Ok(CooldownAxis(Arc::new(Shared { axis, meter, rule, lease })))
    }
}

/// An axis that lets each key rest after so many attempts, or failures.
///
/// A handle, made by [`Group::cooldown`]: cheap to clone, and all clones are the same axis.
///
/// ```
/// use tower_quota_core::{ChargeError, Cooldown, Group, Key, MINUTE, MemoryStore};
///
/// # async fn example(send: impl AsyncFn(u64) -> Result<(), ()>) -> Result<(), Box<dyn std::error::Error>> {
/// let relay = Group::new("relay", MemoryStore::new())?;
/// let push = relay.cooldown("school", Cooldown::after_attempts(5_000).rest(3 * MINUTE)).build()?;
/// match push.begin(&Key::from("north"), 200).await {
///     Ok(attempts) => {
///         // As many as fit below the limit, counted before they are made.
///         let _ = send(attempts.granted()).await;
///         attempts.end().await?;
///     }
///     Err(ChargeError::Refused(verdict)) => println!("it rests for {:?}", verdict.wait()),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CooldownAxis(Arc<Shared>);

struct Shared {
    axis: PerKeyAxis,
    meter: Meter<Key>,
    rule: Cooldown,
    lease: Option<Duration>,
}

impl CooldownAxis {
    /// The name of the axis within its group.
    pub fn name(&self) -> &'static str {
        self.0.axis.name()
    }

    /// Counts so many attempts of a key, once this is awaited, before they are made: all of them, or as many as fit below
    /// the limit.
    pub fn begin(&self, key: &Key, attempts: u64) -> Begin {
        Begin::new(self.clone(), key.clone(), attempts)
    }

    /// Goes through `input` in batches of at most `most`, none of which passes the limit, and rests in between. The calls
    /// of one key, be they of several drivers in this process, are made one after the other, those of different keys
    /// independently. Drivers in several processes share what is counted, and the rest.
    pub fn batches<'t, T>(&self, key: &Key, input: &'t [T], most: usize) -> Batches<'t, T> {
        Batches::new(self.clone(), key.clone(), input, most)
    }

    /// Judges the next calls by another limit and another rest. What is counted stays counted, and a rest that has
    /// started ends when it would have. Failures count for as long as the new rule says, if their key is asked about before
    /// they are over by the old one.
    ///
    /// # Errors
    ///
    /// As for the builder; `rule` if it counts something else, attempts instead of failures.
    pub fn set_rule(&self, rule: Cooldown) -> Result<(), ConfigError> {
        let counts_the_same = rule.algorithm == self.0.rule.algorithm;
        if !counts_the_same || rule.keeps_on_success != self.0.rule.keeps_on_success {
            let field = format!("{}.rule", self.0.axis.core().label.field());
            return Err(ConfigError::new(field, "counts something else: use another axis"));
        }
        self.0.axis.set_quota(rule.quota(self.0.lease))
    }

    /// Forgets what is counted of a key, its rest included.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn reset(&self, key: &Key) -> Result<(), StoreError> {
        self.0.axis.reset(key).await
    }

    pub(super) fn axis(&self) -> &PerKeyAxis {
        &self.0.axis
    }

    pub(super) fn meter(&self) -> &Meter<Key> {
        &self.0.meter
    }

    pub(super) fn lease(&self) -> Duration {
        self.0.lease.unwrap_or(LEASE)
    }

    pub(super) fn counts_failures(&self) -> bool {
        self.0.rule.algorithm == Algorithm::Failures
    }

    pub(super) fn keeps_on_success(&self) -> bool {
        self.0.rule.keeps_on_success
    }
}

impl fmt::Debug for CooldownAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CooldownAxis").field("axis", &self.0.axis).field("rule", &self.0.rule).finish_non_exhaustive()
    }
}
