//! A clock that tests move by hand.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;

/// A clock that stands still until a test moves it. Clones are the same clock.
///
/// ```
/// use tower_quota_core::testing::FakeClock;
/// use tower_quota_core::{ChargeError, Group, HOUR, Key, MemoryStore, Meter, Quota};
///
/// let clock = FakeClock::new();
/// let items = Group::new("item", MemoryStore::with_clock(clock.clone()))?;
/// let account = items.per_key("account", Quota::fixed_window(1, HOUR)).build()?;
/// let meter = Meter::new(account.by(|name: &str| Key::from(name)));
///
/// let charge = || meter.ask("alice", 1).answered().expect("memory needs no I/O");
/// assert!(charge().is_ok());
/// assert!(matches!(charge(), Err(ChargeError::Refused(verdict)) if verdict.wait() == HOUR));
/// clock.advance(HOUR);
/// assert!(charge().is_ok());
/// # Ok::<(), tower_quota_core::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FakeClock(Arc<Mutex<Duration>>);

impl FakeClock {
    /// A clock that stands at 2026-01-01 00:00:00 UTC.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Duration::from_secs(1_767_225_600))))
    }

    /// Moves the clock on.
    pub fn advance(&self, time: Duration) {
        let mut now = self.0.lock();
        *now = now.saturating_add(time);
    }

    /// Sets the clock to a time since the Unix epoch, earlier or later.
    pub fn set(&self, time: Duration) {
        *self.0.lock() = time;
    }
}

impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Duration {
        *self.0.lock()
    }
}
