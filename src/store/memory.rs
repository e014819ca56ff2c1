//! The embedded store: counters in this process.

mod counters;
mod decision;
mod entry;
mod held;
mod keyed;
mod known;
mod lock;
mod records;
mod settling;
mod shared;
mod table;

use std::fmt;
use std::time::Duration;

use self::counters::Counters;
pub(crate) use self::known::Known;
use self::records::{Records, digest_of_request};
use crate::call_end::CallEnd;
use crate::clock::{Clock, SystemClock};
use crate::config_error::ConfigError;
use crate::question::Question;
use crate::settlement::Settlement;
use crate::store::contract::{Answer, Store};
use crate::verdict::Verdict;

/// How many counters of keys a store holds unless told otherwise.
const MAX_STATES: usize = 1_000_000;
/// How long an admitted request's id is remembered unless told otherwise.
const REQUESTS_KEPT: Duration = Duration::from_secs(60);

/// Counts in this process: the default, and all that one machine needs. It answers at once, without I/O, without a
/// runtime, and without a thread or task of its own.
///
/// **Atomic.** Every counter of a decision is locked, in one fixed order, before any is written; they are spread over
/// many locks, so that accounts wait for each other only by chance, and for a shared axis only while it is counted. A lock
/// is held for less time than it takes to fall asleep: who finds it taken spins, and soon lets other threads run. A
/// decision that is refused has changed nothing at any time, so it never makes another one fail.
///
/// **Bounded.** A counter that equals a fresh one is forgotten as other decisions pass, and its memory is given back.
/// The store holds at most [`max_states`](Self::max_states) counters of keys, 1,000,000 by default, about 50 bytes each when
/// it is full. It knows a key by a keyed hash, and takes two of a million for one with a probability below 10^-9.
/// A counter in use is never forgotten: past the bound, a new key gets the group's
/// [failure policy](crate::OnStoreFailure), with [`StoreErrorKind::StoreFull`](crate::StoreErrorKind::StoreFull). A
/// bucket whose refill is lowered counts as in use until it is full by the lower refill, if it is asked about before it
/// is full by the one that it was charged with.
///
/// **Time** is the process's monotonic clock ([`SystemClock`], which takes a moment to make for the first time); a wall
/// clock that is set changes nothing.
///
/// A store is shared between groups by an `Arc<MemoryStore>`.
pub struct MemoryStore {
    clock: StoreClock,
    counters: Counters,
    records: Records,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::on(StoreClock::System(SystemClock::new()))
    }

    /// An empty store that takes its time from this clock.
    pub fn with_clock(clock: impl Clock) -> Self {
        Self::on(StoreClock::Given(Box::new(clock)))
    }

    fn on(clock: StoreClock) -> Self {
        let made = clock.micros();
        Self { clock, counters: Counters::new(MAX_STATES, made), records: Records::new(MAX_STATES, REQUESTS_KEPT) }
    }

    /// This store, empty, with room for so many counters of keys. Counters of shared axes are not limited: there are as
    /// many as the configuration names.
    ///
    /// # Errors
    ///
    /// `memory.max_states` of 0.
    pub fn max_states(self, states: usize) -> Result<Self, ConfigError> {
        if states == 0 {
            let reason = "is 0, so that no key could be counted: use at least 1";
            return Err(ConfigError::new("memory.max_states", reason));
        }
        let made = self.clock.micros();
        let records = Records::new(states, self.records.kept_for());
        Ok(Self { counters: Counters::new(states, made), records, ..self })
    }

    /// This store, empty, with admitted requests remembered for so long by their
    /// [ids](crate::Charge::request_id): a minute by default. As many are remembered at once as there is room for
    /// counters of keys; past that, another request with an id gets the failure policy.
    pub fn remember_requests(self, time: Duration) -> Self {
        let records = Records::new(self.counters.keyed.max(), time);
        Self { records, ..self }
    }

    /// How many counters of keys are held now, those included that equal a fresh one and wait to be forgotten.
    pub fn states(&self) -> usize {
        self.counters.keyed.len()
    }

    /// As [`Counters::charge_known`].
    #[inline(always)]
    pub(crate) fn charge_known<'q>(
        &self,
        account: &Known<'_>,
        capacity: impl FnOnce() -> Known<'q>,
        units: u64,
    ) -> Option<Verdict> {
        self.counters.charge_known(account, capacity, units, || self.clock.micros())
    }
}

/// The latest time that is counted at, in microseconds: some 146,000 years.
const LATEST: u64 = 1 << 62;

/// The system's clock is read directly, since every decision does.
enum StoreClock {
    System(SystemClock),
    Given(Box<dyn Clock>),
}

impl StoreClock {
    /// The time in microseconds since the Unix epoch.
    #[inline(always)]
    fn micros(&self) -> u64 {
        match self {
            Self::System(clock) => clock.micros(),
            // Later than any clock should read, and early enough for a period to be added.
            Self::Given(clock) => u64::try_from(clock.now().as_micros()).unwrap_or(LATEST).min(LATEST),
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn decide(&self, question: &Question<'_>) -> Answer<Verdict> {
        let now = self.clock.micros();
        self.counters.keyed.sweep_in_passing(now);
        let demands = question.demands();
        let decide = || self.counters.decide(demands, now);
        Answer::Ready(match question.request_id() {
            None => decide(),
            Some(id) => {
                let charges = demands.iter().any(|demand| demand.terms.units > 0);
                self.records.once(digest_of_request(id, demands), charges, now, decide)
            }
        })
    }

    fn settle(&self, settlement: &Settlement<'_>) -> Answer<Verdict> {
        Answer::Ready(self.counters.settle(settlement, self.clock.micros()))
    }

    fn reset(&self, question: &Question<'_>) -> Answer<()> {
        for demand in question.demands() {
            self.counters.remove(demand);
        }
        Answer::Ready(Ok(()))
    }

    fn end(&self, end: &CallEnd<'_>) -> Answer<()> {
        Answer::Ready(self.counters.end(end, self.clock.micros()))
    }

    #[cfg(feature = "waiting")]
    fn clock(&self) -> &dyn Clock {
        match &self.clock {
            StoreClock::System(clock) => clock,
            StoreClock::Given(clock) => &**clock,
        }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("states", &self.counters.keyed.len())
            .field("max_states", &self.counters.keyed.max())
            .finish_non_exhaustive()
    }
}
