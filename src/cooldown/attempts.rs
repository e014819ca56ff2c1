//! Attempts that were counted, until they have ended.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;

use super::axis::CooldownAxis;
use super::to_its_end::ToItsEnd;
use crate::algorithm::{Ending, Outcome};
use crate::call_end::CallEnd;
use crate::key::Key;
use crate::question::Owner;
use crate::quiet::quietly;
use crate::quota::LONGEST;
use crate::store::{Answer, StoreError};
use crate::verdict::{CountedBy, Verdict};

/// Attempts that were counted and may be made now. Made by awaiting a [`Begin`](super::Begin).
///
/// They end when this is told so, or dropped. Of attempts that reached the limit the rest starts then. Where failures are
/// counted, attempts that are dropped have failed.
///
/// Dropped, it tells the store without waiting for it, on the tokio runtime that it is dropped on; outside of any, the
/// lease ends them.
#[must_use = "the attempts end when this is dropped"]
pub struct Attempts {
    axis: CooldownAxis,
    key: Key,
    granted: u64,
    call: u64,
    /// In microseconds.
    charged_at: u64,
    counted_by: CountedBy,
    has_reached_limit: bool,
    rest_at_least: Mutex<Duration>,
    has_ended: bool,
    when_dropped: Outcome,
}

impl Attempts {
    pub(super) fn new(axis: CooldownAxis, key: Key, granted: u64, verdict: &Verdict, call: u64) -> Self {
        let counted = verdict.reports().first();
        let has_reached_limit = granted > 0 && counted.is_some_and(|counted| counted.remaining() == 0);
        if let Some(counted) = counted.filter(|_| granted > 0) {
            quietly(|| {
                tracing::debug!(
                    target: "tower_quota::cooldown",
                    axis = axis.name(),
                    attempted = counted.used(),
                    batch = granted,
                    "attempts are counted"
                );
            });
        }
        Self {
            axis,
            key,
            granted,
            call,
            charged_at: verdict.decided_at_micros(),
            counted_by: verdict.counted_by(),
            has_reached_limit,
            rest_at_least: Mutex::default(),
            has_ended: false,
            when_dropped: Outcome::Ended,
        }
    }

    /// How many may be made: as many as were asked for, or as fit below the limit.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// Whether these attempts reached the limit, so that the rest starts when they end.
    pub fn has_reached_limit(&self) -> bool {
        self.has_reached_limit
    }

    /// Who counted them.
    pub fn counted_by(&self) -> CountedBy {
        self.counted_by
    }

    /// Lets the key rest for at least so long after this call, at most ten years, since its other side asked for it: beside
    /// the rest of the rule, which it does not replace. The longest that is told counts. While another call at the limit is
    /// under way, the rest starts with the end of this one, if what is told is longer than the rest of the rule: then it is
    /// over when it is told, or when the other call's lease and the rest of the rule are. Where
    /// failures are counted it makes the lock longer that this failure starts, and is nothing otherwise.
    pub fn rest_at_least(&self, time: Duration) {
        let mut longest = self.rest_at_least.lock();
        *longest = time.min(LONGEST).max(*longest);
    }

    /// The call has ended, well or not; where failures are counted, it has failed.
    ///
    /// # Errors
    ///
    /// The store's. Then the lease ends it.
    pub async fn end(self) -> Result<(), StoreError> {
        self.end_as(Outcome::Ended).await
    }

    /// The attempt has failed. The same as [`end`](Self::end).
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn failed(self) -> Result<(), StoreError> {
        self.end().await
    }

    /// The attempt has succeeded: where failures are counted, those of this key are forgotten, or kept if that is the
    /// [rule](crate::Cooldown::kept_on_success).
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn succeeded(self) -> Result<(), StoreError> {
        let outcome = self.success();
        self.end_as(outcome).await
    }

    /// From now on it has succeeded when it is dropped: [`succeeded`](Self::succeeded), without waiting for the store.
    pub fn succeed_when_dropped(&mut self) {
        self.when_dropped = self.success();
    }

    /// From now on nothing was attempted when it is dropped: where failures are counted, it is none, and those before stay.
    /// Attempts stay counted.
    pub fn withdraw_when_dropped(&mut self) {
        if self.axis.counts_failures() {
            self.when_dropped = Outcome::Uncounted;
        }
    }

    fn success(&self) -> Outcome {
        match (self.axis.counts_failures(), self.axis.keeps_on_success()) {
            (true, false) => Outcome::Cleared,
            (true, true) => Outcome::Uncounted,
            (false, _) => Outcome::Ended,
        }
    }

    pub(super) async fn end_as(mut self, outcome: Outcome) -> Result<(), StoreError> {
        match self.tell(outcome) {
            Answer::Ready(answer) => answer,
            Answer::Pending(answer) => ToItsEnd::new(answer, |_| ()).await,
        }
    }

    /// Tells the store; nothing is told twice.
    pub(super) fn tell(&mut self, outcome: Outcome) -> Answer<()> {
        let rest_at_least = *self.rest_at_least.lock();
        let is_news = self.has_reached_limit
            || !rest_at_least.is_zero()
            || outcome != Outcome::Ended
            || (self.axis.counts_failures() && self.granted > 0);
        if std::mem::replace(&mut self.has_ended, true) || !is_news {
            return Answer::Ready(Ok(()));
        }
        let starts_rest = match outcome {
            Outcome::Ended => self.has_reached_limit,
            Outcome::DoesNotFit => true,
            Outcome::Cleared | Outcome::Uncounted => false,
        };
        if starts_rest {
            quietly(|| tracing::info!(target: "tower_quota::cooldown", axis = self.axis.name(), "a rest starts"));
        }
        let core = self.axis.axis().core();
        let owner = Owner::Key(self.key.clone());
        let rest_at_least = u64::try_from(rest_at_least.as_micros()).unwrap_or(u64::MAX);
        let (call, units, charged_at) = (self.call, self.granted, self.charged_at);
        let ending = Ending { outcome, call, units, charged_at, rest_at_least };
        let end = CallEnd { demand: core.demand(&owner, None, self.granted), ending };
        self.axis.meter().panel().end(&end, self.counted_by)
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        if let Answer::Pending(told) = self.tell(self.when_dropped) {
            drop(ToItsEnd::new(told, |_| ()));
        }
    }
}

impl fmt::Debug for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempts")
            .field("axis", &self.axis)
            .field("granted", &self.granted)
            .field("has_reached_limit", &self.has_reached_limit)
            .finish_non_exhaustive()
    }
}
