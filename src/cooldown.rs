//! After so many attempts, or failures, rest.

mod attempts;
mod axis;
mod batches;
mod begin;
mod to_its_end;

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

/// How long the call at the boundary of attempts may take unless told otherwise.
const LEASE: Duration = Duration::from_secs(60);

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

    /// A success does not clear the failures before it; it only is none itself. For failures alone.
    pub fn kept_on_success(mut self) -> Self {
        self.keeps_on_success = true;
        self
    }

    /// As a quota, with a lease for the call at the boundary of attempts.
    fn quota(&self, lease: Option<Duration>) -> Result<Quota, ConfigError> {
        let counts_attempts = self.algorithm == Algorithm::Attempts;
        let span = if counts_attempts { lease.unwrap_or(LEASE) } else { self.within };
        let quota = Quota::then_rest(self.algorithm, self.limit, self.rest, span)?;
        let idle = |field, reason| Err(ConfigError::new(field, reason));
        match (counts_attempts, lease) {
            (true, _) if !self.within.is_zero() => {
                idle("within", "is for failures: attempts count until the rest: leave it out, or count failures")
            }
            (true, _) if self.keeps_on_success => {
                idle("kept_on_success", "is for failures: attempts are kept anyway: leave it out, or count failures")
            }
            (false, Some(_)) => idle("lease", "is for attempts: failures are over after `within`: leave it out"),
            _ => Ok(quota),
        }
    }
}

impl CooldownAfter {
    /// Counts failures for so long, from the first one on: 1 ms to 49 days. Not for attempts, which count until the rest,
    /// however long that takes.
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
