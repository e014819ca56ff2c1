//! Sets up an axis.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::{AxisCore, PerKeyAxis, SharedAxis};
use crate::config_error::ConfigError;
use crate::failure::OnStoreFailure;
use crate::ledger::Ledger;
use crate::name::{self, Label};
use crate::quota::{MINUTE, Quota, SECOND};
use crate::rate::{LiveRate, Rate};
use crate::throttle::Throttle;
use crate::watermark::Watermark;

/// Sets up an axis of a group; `build` registers it there, once.
///
/// Made by [`Group::per_key`](crate::Group::per_key) and [`Group::shared`](crate::Group::shared).
#[must_use = "an axis exists once it is built"]
pub struct AxisBuilder<A> {
    ledger: Arc<Ledger>,
    name: String,
    quota: Result<Quota, ConfigError>,
    watermark: Option<Watermark>,
    retry_when_closed: Duration,
    on_store_failure: OnStoreFailure,
    kind: PhantomData<fn() -> A>,
}

impl<A> AxisBuilder<A> {
    pub(crate) fn new<T>(ledger: Arc<Ledger>, name: &str, quota: T) -> Self
    where
        T: TryInto<Quota, Error: Into<ConfigError>>,
    {
        Self {
            ledger,
            name: name.to_owned(),
            quota: quota.try_into().map_err(Into::into),
            watermark: None,
            retry_when_closed: MINUTE,
            on_store_failure: OnStoreFailure::default(),
            kind: PhantomData,
        }
    }

    /// What a refused caller is told to wait while the axis is closed, that is while its limit is 0: a minute by
    /// default, at least a second.
    pub fn retry_when_closed(mut self, wait: Duration) -> Self {
        self.retry_when_closed = wait;
        self
    }

    /// A stricter failure policy than the group's, for decisions that this axis takes part in.
    pub fn on_store_failure(mut self, policy: OnStoreFailure) -> Self {
        self.on_store_failure = policy;
        self
    }

    fn core(self, per_key: bool) -> Result<AxisCore, ConfigError> {
        let ledger = self.ledger;
        name::check(&format!("{}.axis", ledger.group), &self.name)?;
        let owner = format!("{}.{}", ledger.group, self.name);
        let quota = self.quota.map_err(|error| error.within(&owner))?;
        let watermark = self.watermark.map(Watermark::checked).transpose().map_err(|error| error.within(&owner))?;
        if self.retry_when_closed < SECOND {
            let reason = format!("{:?} is shorter than the second that Retry-After counts in", self.retry_when_closed);
            return Err(ConfigError::new("retry_when_closed", reason).within(&owner));
        }
        self.on_store_failure.check().map_err(|error| error.within(&owner))?;
        ledger.prepare_for(self.on_store_failure);
        let label = Label::of(&ledger.group, &self.name, per_key);
        ledger.register(label)?;
        Ok(AxisCore {
            label,
            rate: LiveRate::new(Rate::of(label, quota)),
            watermark,
            retry_when_closed: self.retry_when_closed,
            on_store_failure: self.on_store_failure.max(ledger.on_store_failure),
            refusals: Throttle::new(),
            ledger,
        })
    }
}

impl AxisBuilder<PerKeyAxis> {
    /// The axis, registered with its group.
    ///
    /// # Errors
    ///
    /// A name that is taken or is none, a quota that cannot work, a wait below a second: each named as
    /// `group.axis.field`.
    pub fn build(self) -> Result<PerKeyAxis, ConfigError> {
        self.core(true).map(PerKeyAxis::new)
    }
}

impl AxisBuilder<SharedAxis> {
    /// Raises an event when usage passes a mark.
    pub fn watermark(mut self, watermark: Watermark) -> Self {
        self.watermark = Some(watermark);
        self
    }

    /// The axis, registered with its group.
    ///
    /// # Errors
    ///
    /// As for an axis per key, and marks that cannot work.
    pub fn build(self) -> Result<SharedAxis, ConfigError> {
        self.core(false).map(SharedAxis::new)
    }
}

impl<A> fmt::Debug for AxisBuilder<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ledger, name, quota, watermark, retry_when_closed, on_store_failure, kind: _ } = self;
        f.debug_struct("AxisBuilder")
            .field("group", &ledger.group)
            .field("name", name)
            .field("quota", quota)
            .field("watermark", watermark)
            .field("retry_when_closed", retry_when_closed)
            .field("on_store_failure", on_store_failure)
            .finish()
    }
}
