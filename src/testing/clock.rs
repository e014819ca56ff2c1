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
pub struct FakeClock(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    now: Duration,
    #[cfg(feature = "waiting")]
    sleepers: sleep::Sleepers,
}

impl FakeClock {
    /// A clock that stands at 2026-01-01 00:00:00 UTC.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            now: Duration::from_secs(1_767_225_600),
            #[cfg(feature = "waiting")]
            sleepers: sleep::Sleepers::default(),
        })))
    }

    /// Moves the clock on, and wakes those whose time has come.
    pub fn advance(&self, time: Duration) {
        let now = self.now();
        self.set(now.saturating_add(time));
    }

    /// Sets the clock to a time since the Unix epoch, earlier or later, and wakes those whose time has come.
    pub fn set(&self, time: Duration) {
        let mut state = self.0.lock();
        state.now = time;
        #[cfg(feature = "waiting")]
        {
            let woken = state.sleepers.take_until(time);
            drop(state);
            woken.into_iter().for_each(std::task::Waker::wake);
        }
    }

    /// How long it is until the next sleeper wakes, if anybody sleeps by this clock.
    #[cfg(feature = "waiting")]
    pub fn next_wake(&self) -> Option<Duration> {
        let state = self.0.lock();
        Some(state.sleepers.next()?.saturating_sub(state.now))
    }
}

impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Duration {
        self.0.lock().now
    }

    #[cfg(feature = "waiting")]
    fn sleep(&self, time: Duration) -> crate::clock::Sleep {
        Box::pin(sleep::Sleeper::new(self.clone(), self.now().saturating_add(time)))
    }
}

/// Sleep that ends when the clock is moved far enough.
#[cfg(feature = "waiting")]
mod sleep {
    use std::collections::BTreeMap;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::FakeClock;

    /// Who sleeps until when, each under a number of its own.
    #[derive(Debug, Default)]
    pub(super) struct Sleepers {
        asleep: BTreeMap<(Duration, u64), Waker>,
        numbers: u64,
    }

    impl Sleepers {
        pub(super) fn take_until(&mut self, time: Duration) -> Vec<Waker> {
            let later = self.asleep.split_off(&(time, u64::MAX));
            std::mem::replace(&mut self.asleep, later).into_values().collect()
        }

        pub(super) fn next(&self) -> Option<Duration> {
            self.asleep.keys().next().map(|(until, _)| *until)
        }
    }

    pub(super) struct Sleeper {
        clock: FakeClock,
        until: Duration,
        number: Option<u64>,
    }

    impl Sleeper {
        pub(super) fn new(clock: FakeClock, until: Duration) -> Self {
            Self { clock, until, number: None }
        }
    }

    impl Future for Sleeper {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            let this = &mut *self;
            let mut state = this.clock.0.lock();
            if state.now >= this.until {
                return Poll::Ready(());
            }
            let sleepers = &mut state.sleepers;
            let number = *this.number.get_or_insert_with(|| {
                sleepers.numbers += 1;
                sleepers.numbers
            });
            sleepers.asleep.insert((this.until, number), context.waker().clone());
            Poll::Pending
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            if let Some(number) = self.number {
                self.clock.0.lock().sleepers.asleep.remove(&(self.until, number));
            }
        }
    }
}
