//! After so many attempts, or failures, rest.

mod attempts;
mod axis;
mod batches;
mod begin;

use std::time::Duration;

pub use self::attempts::Attempts;
pub use self::axis::{CooldownAxis, CooldownBuilder};
pub use self::batches::{Batch, Batches};
pub use self::begin::Begin;
use crate::config_error::ConfigError;
use crate::quota::{Algorithm, Quota};

/// After so many attempts, or so many failures within a while, rest.
///
/// **Attempts** are counted before they are made, and stay counted if they fail. The limit is never passed; the rest
/// starts when the call that reached it has ended, and after the rest the count starts at 0. Time alone resets nothing.
///
/// ```
/// use tower_quota_core::{Cooldown, Group, MINUTE, MemoryStore};
///
/// let relay = Group::new("relay", MemoryStore::new())?;
/// let push = relay.cooldown("school", Cooldown::after_attempts(5_000).rest(3 * MINUTE)).build()?;
/// # let _ = push;
/// # Ok::<(), tower_quota_core::ConfigError>(())
/// ```
///
/// **Failures** are counted from the first one on, for as long as [`within`](CooldownAfter::within) says: a guard for
/// logins. An attempt counts as a failure until it is told to be none, so guesses at the same time are no way around it,
/// and one whose outcome nobody tells stays a failure. A success clears the failures of its key, and of no other.
///
/// ```
/// use tower_quota_core::{Cooldown, Group, MINUTE, MemoryStore};
///
/// let logins = Group::new("login", MemoryStore::new())?;
/// let lock = |failures| Cooldown::after_failures(failures).within(15 * MINUTE).rest(15 * MINUTE);
/// let account = logins.cooldown("account", lock(5)).build()?;
/// // Who logs into an account of their own now and then goes on being counted by address.
/// let address = logins.cooldown("address", lock(10).kept_on_success()).build()?;
/// # let _ = (account, address);
/// # Ok::<(), tower_quota_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cooldown {
    algorithm: Algorithm,
    limit: u64,
    rest: Duration,
    within: Duration,
    keeps_on_success: bool,
}

/// A [`Cooldown`] that does not know yet how long it rests.
#[must_use = "it is a cooldown once it knows how long it rests"]
#[derive(Clone, Copy, Debug)]
pub struct CooldownAfter {
    algorithm: Algorithm,
    limit: u64,
    within: Duration,
}

impl Cooldown {
    /// Rests after so many attempts: 1 to 2^32 - 1, or 0 to let none through.
    pub fn after_attempts(attempts: u64) -> CooldownAfter {
        CooldownAfter { algorithm: Algorithm::Attempts, limit: attempts, within: Duration::ZERO }
    }

    /// Rests after so many failures, which count for 15 minutes from the first one on unless told otherwise.
    pub fn after_failures(failures: u64) -> CooldownAfter {
        let within = Duration::from_secs(15 * 60);
        CooldownAfter { algorithm: Algorithm::Failures, limit: failures, within }
    }

    /// A success does not clear the failures before it; it only is none itself.
    pub fn kept_on_success(mut self) -> Self {
        self.keeps_on_success = true;
        self
    }

    /// As a quota, with a lease for the call at the boundary of attempts.
    fn quota(&self, lease: Duration) -> Result<Quota, ConfigError> {
        let span = if self.algorithm == Algorithm::Attempts { lease } else { self.within };
        Quota::then_rest(self.algorithm, self.limit, self.rest, span)
    }
}

impl CooldownAfter {
    /// Counts failures for so long, from the first one on: 1 ms to 49 days. Attempts count until the rest, however long
    /// that takes.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// Rests for so long: a microsecond to ten years.
    pub fn rest(self, rest: Duration) -> Cooldown {
        let Self { algorithm, limit, within } = self;
        Cooldown { algorithm, limit, rest, within, keeps_on_success: false }
    }
}
