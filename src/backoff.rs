//! Pauses that another side asks for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::{Ending, Outcome};
use crate::axis::{AxisBuilder, PerKeyAxis};
use crate::call_end::CallEnd;
use crate::charge_error::ChargeError;
use crate::config_error::ConfigError;
use crate::counts;
use crate::group::Group;
use crate::jitter::jitter;
use crate::key::Key;
use crate::meter::Meter;
use crate::question::Owner;
use crate::quota::{Algorithm, MINUTE, Quota, SECOND};
use crate::store::{Answer, StoreError};
use crate::verdict::CountedBy;

impl Group {
    /// An axis on which each key can be paused, since the other side asked for it.
    pub fn backoff(&self, name: &str) -> BackoffBuilder {
        BackoffBuilder { group: self.clone(), name: name.to_owned(), at_most: 10 * MINUTE }
    }
}

/// Sets up a [`BackoffAxis`]. Made by [`Group::backoff`].
#[derive(Clone, Debug)]
#[must_use = "an axis exists once it is built"]
pub struct BackoffBuilder {
    group: Group,
    name: String,
    at_most: Duration,
}

impl BackoffBuilder {
    /// No pause is longer than this, whatever is asked for: ten minutes by default. After that the upstream is asked again.
    pub fn at_most(mut self, time: Duration) -> Self {
        self.at_most = time;
        self
    }

    /// The axis, registered with its group.
    ///
    /// # Errors
    ///
    /// A name that is taken or is none; `group.axis.at_most` below a second.
    pub fn build(self) -> Result<BackoffAxis, ConfigError> {
        let Self { group, name, at_most } = self;
        if at_most < SECOND {
            let field = format!("{}.{name}.at_most", group.name());
            return Err(ConfigError::new(field, format!("{at_most:?} is shorter than the second that pauses last")));
        }
        // Nothing is counted; what is used is the pause, which any counter of attempts can have.
        let quota = Quota::then_rest(Algorithm::Attempts, u32::MAX.into(), SECOND, MINUTE);
        let axis: AxisBuilder<PerKeyAxis> = group.per_key(&name, quota);
        let axis = axis.build()?;
        let meter = Meter::new(axis.by(Key::clone));
        Ok(BackoffAxis(Arc::new(Shared { axis, meter, at_most })))
    }
}

/// Pauses of keys: of the accounts of an upstream, or of an upstream as a whole. Over a shared store all instances pause
/// together.
///
/// A handle, made by [`Group::backoff`]: cheap to clone, and all clones are the same axis.
///
/// ```
/// use std::time::Duration;
/// use tower_quota_core::{Group, Key, MemoryStore};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let gmail = Group::new("gmail", MemoryStore::new())?;
/// let backoff = gmail.backoff("mailbox").build()?;
/// let mailbox = Key::from("alice@example.org");
/// // The provider has answered 429 with Retry-After: 30.
/// backoff.pause(&mailbox, Duration::from_secs(30)).await?;
/// assert!(backoff.paused_for(&mailbox).await? > Duration::from_secs(29));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct BackoffAxis(Arc<Shared>);

struct Shared {
    axis: PerKeyAxis,
    meter: Meter<Key>,
    at_most: Duration,
}

impl BackoffAxis {
    /// The name of the axis within its group.
    pub fn name(&self) -> &'static str {
        self.0.axis.name()
    }

    /// Pauses a key for so long: at least a second, and no longer than [`at_most`](BackoffBuilder::at_most). A pause that
    /// ends later stays.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn pause(&self, key: &Key, time: Duration) -> Result<(), StoreError> {
        let told = self.tell(key, time, CountedBy::Store).wait().await;
        self.or_here(told, key, time)
    }

    /// The same, without waiting for the store.
    pub fn pause_soon(&self, key: &Key, time: Duration) {
        match self.tell(key, time, CountedBy::Store) {
            Answer::Ready(told) => drop(self.or_here(told, key, time)),
            Answer::Pending(told) => {
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    let (axis, key) = (self.clone(), key.clone());
                    runtime.spawn(async move { axis.or_here(told.await, &key, time) });
                }
            }
        }
    }

    /// What the store could not take down this process keeps for itself, if it counts by itself then.
    fn or_here(&self, told: Result<(), StoreError>, key: &Key, time: Duration) -> Result<(), StoreError> {
        let panel = self.0.meter.panel();
        told.or_else(|error| {
            panel.note_failure(&error);
            if !panel.decides_by_share() {
                return Err(error);
            }
            match self.tell(key, time, CountedBy::LocalShare) {
                Answer::Ready(told) => told,
                Answer::Pending(_) => Err(error),
            }
        })
    }

    fn tell(&self, key: &Key, time: Duration, counted_by: CountedBy) -> Answer<()> {
        let time = time.clamp(SECOND, self.0.at_most);
        if counted_by == CountedBy::Store {
            tracing::info!(target: "tower_quota::cooldown", axis = self.name(), seconds = time.as_secs(), "a pause starts");
        }
        let (core, owner) = (self.0.axis.core(), Owner::Key(key.clone()));
        let rest_at_least = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let ending = Ending { outcome: Outcome::Ended, call: 0, units: 0, charged_at: 0, rest_at_least };
        self.0.meter.panel().end(&CallEnd { demand: core.demand(&owner, None, 0), ending }, counted_by)
    }

    /// How long a key is paused from now on; zero if it is not, or if the store cannot tell and the failure policy is
    /// [open](crate::OnStoreFailure::Open). By a [share](crate::OnStoreFailure::Local) it is what this process has been told
    /// since the store fails.
    ///
    /// # Errors
    ///
    /// The store's, if the policy is closed.
    pub async fn paused_for(&self, key: &Key) -> Result<Duration, ChargeError> {
        let verdict = self.0.meter.charge(key, 0_u64).await?;
        let paused = verdict.reports().first().filter(|report| report.is_above_watermark());
        Ok(paused.map(crate::verdict::Report::reset).unwrap_or_default())
    }

    /// Waits until a key is not paused any more, if that is not longer than `up_to`; else how long it still is, without
    /// waiting. Those who wait go on a little apart, up to a twentieth of their wait later than they could, so that they do
    /// not come back all at once. As many may wait for one key as the group [lets](crate::GroupBuilder::most_waiting); for
    /// others the pause is too long.
    ///
    /// # Errors
    ///
    /// [`Paused::For`], and the store's if the policy is closed.
    pub async fn wait(&self, key: &Key, up_to: Duration) -> Result<(), Paused> {
        let core = self.0.axis.core();
        let clock = core.ledger.clock();
        let deadline = clock.now().saturating_add(up_to);
        let mut place = None;
        loop {
            let pause = self.paused_for(key).await.map_err(Paused::Unknown)?;
            if pause.is_zero() {
                return Ok(());
            }
            let is_in_time = clock.now().saturating_add(pause) <= deadline;
            if is_in_time && place.is_none() {
                place = core.ledger.lines.join(core.demand(&Owner::Key(key.clone()), None, 0).counter());
            }
            if !is_in_time || place.is_none() {
                counts::pause(core.label);
                return Err(Paused::For(pause));
            }
            clock.sleep(pause + jitter(pause)).await;
        }
    }
}

/// Why a call may not be made now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Paused {
    /// The key is paused for so long.
    For(Duration),
    /// The store could not tell.
    Unknown(ChargeError),
}

impl fmt::Display for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(time) => write!(f, "paused for {time:?}"),
            Self::Unknown(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Paused {}

impl fmt::Debug for BackoffAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { axis, meter: _, at_most } = &*self.0;
        f.debug_struct("BackoffAxis").field("axis", axis).field("at_most", at_most).finish_non_exhaustive()
    }
}
