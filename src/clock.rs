//! What time it is: one reading for all axes of a decision.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Tells a store the time.
///
/// Every axis of a decision is judged by one reading of the store's clock.
pub trait Clock: Send + Sync + 'static {
    /// The time since the Unix epoch, to the microsecond.
    ///
    /// A reading may be earlier than one before it: a counter never moves back, so such a reading takes nothing away and
    /// pays nothing twice. A store that forgets counters which equal fresh ones holds to that for steps back of up to a
    /// second.
    fn now(&self) -> Duration;

    /// Ends after so long, by this clock. By default it sleeps in real time, on the tokio runtime that it is awaited on.
    #[cfg(feature = "waiting")]
    fn sleep(&self, time: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(time))
    }
}

/// What [`Clock::sleep`] does until it ends.
#[cfg(feature = "waiting")]
pub type Sleep = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Duration {
        (**self).now()
    }

    #[cfg(feature = "waiting")]
    fn sleep(&self, time: Duration) -> Sleep {
        (**self).sleep(time)
    }
}

/// The time since it was first asked, and sleep in real time: all that waiting needs.
#[cfg(feature = "waiting")]
#[derive(Debug)]
pub(crate) struct Stopwatch;

#[cfg(feature = "waiting")]
impl Clock for Stopwatch {
    fn now(&self) -> Duration {
        static STARTED: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
        STARTED.elapsed()
    }
}

/// The process's monotonic clock, set by the wall clock once, when it is made.
///
/// Wall-clock time is what aligned windows need; a wall clock that is set back or forward afterwards changes no
/// decision.
///
/// Where the processor has a steady time stamp counter, that is what is read ([`quanta`]); the first clock of a process
/// takes up to 0.2 s to measure its rate. Over a long run the reading drifts from the wall clock: by the error of that
/// measurement, by what the wall clock is corrected, and by the time that the machine was suspended. Aligned windows
/// move by as much.
#[derive(Clone, Debug)]
pub struct SystemClock {
    clock: quanta::Clock,
    /// The reading of the clock at …
    started: u64,
    /// … this time, in microseconds since the Unix epoch.
    started_at: u64,
}

impl SystemClock {
    /// A clock that starts at the current wall-clock time.
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        let started = clock.raw();
        // A wall clock before 1970 is a machine without one.
        #[expect(clippy::disallowed_methods, reason = "the one time that the wall clock is read")]
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { clock, started, started_at: u64::try_from(since_epoch.as_micros()).unwrap_or(0) }
    }

    /// The time since the Unix epoch, in microseconds.
    #[inline]
    pub(crate) fn micros(&self) -> u64 {
        self.started_at + self.clock.delta_as_nanos(self.started, self.clock.raw()) / 1_000
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.micros())
    }
}
