//! How each algorithm counts: pure transitions from a state and a time to a state and an outcome.
//!
//! Nothing here reads a clock or does I/O, and nothing is lost from one state to the next: times are whole microseconds, or
//! whole ticks of them ([`Period`](crate::quota::Period)), units are whole, and every product stays below 2^53, so that the same forms can be
//! computed by a store that knows only doubles. A state never moves back: an earlier time counts as the state's own, but
//! a wait is told from the time as it was read.

mod attempts;
mod failures;
mod fixed_window;
mod sliding_window;
mod token_bucket;

use crate::quota::{Algorithm, Quota};

/// What a store keeps for one counter; what the words mean is the algorithm's own business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) first: u64,
    pub(crate) second: u64,
    pub(crate) third: u32,
}

/// A counter, looked at with a cost in mind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Assessment {
    /// The state at this time: with the cost charged if it fits, else without.
    pub(crate) state: State,
    /// Units used in `state`.
    pub(crate) used: u64,
    /// The absolute time in microseconds at which the cost fits; `None` if it fits now.
    pub(crate) fits_at: Option<u64>,
    /// The absolute time in microseconds at which `state`, left alone, equals a fresh one.
    pub(crate) fresh_at: u64,
    /// Whether nothing fits until a time, whatever it costs.
    pub(crate) is_resting: bool,
}

/// How a call ended that was charged before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) outcome: Outcome,
    /// What the call was charged as.
    pub(crate) call: u64,
    /// Units that were charged for it.
    pub(crate) units: u64,
    /// When it was charged, in microseconds.
    pub(crate) charged_at: u64,
    /// Microseconds for which its counter shall rest at least.
    pub(crate) rest_at_least: u64,
}

/// What came of a call that was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It is over; or it failed, where failures are counted.
    Ended = 0,
    /// It succeeded, and all failures before it are forgotten.
    Cleared = 1,
    /// It succeeded, and is not counted itself.
    Uncounted = 2,
    /// It was not made, because it does not fit: the rest starts now.
    DoesNotFit = 3,
}

/// A counter whose `state` was last written, at `now` in microseconds, after a call has ended; `None`: nothing changes.
pub(crate) fn end(quota: Quota, state: Option<State>, now: u64, ending: Ending) -> Option<Assessment> {
    match quota.algorithm() {
        Algorithm::Attempts => attempts::end(quota, state, now, ending),
        Algorithm::Failures => failures::end(quota, state, now, ending),
        _ => None,
    }
}

/// What a charge turned out to be worth that was made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// When it was made, in microseconds.
    pub(crate) charged_at: u64,
    /// Units that were charged.
    pub(crate) charged: u64,
    /// Units that it was worth: at most `MOST_USED`.
    pub(crate) worth: u64,
}

impl Settled {
    /// What is given back.
    fn refund(&self) -> u64 {
        self.charged.saturating_sub(self.worth)
    }

    /// What is charged on top, whether it fits or not.
    fn overrun(&self) -> u64 {
        self.worth.saturating_sub(self.charged)
    }
}

/// More cannot be used up: whatever was overrun, products stay below 2^53.
pub(crate) const MOST_USED: u64 = 1 << 52;

/// The counter whose `state` was last written, at `now` in microseconds, with a charge corrected to what it was worth.
///
/// A refund goes where the charge was, and gives back no more than what of it still counts. An overrun is used up now.
pub(crate) fn settle(quota: Quota, state: Option<State>, now: u64, settled: Settled) -> Option<State> {
    // Brought up to now.
    let current = assess(quota, state, now, 0, 0).state;
    let corrected = match quota.algorithm() {
        Algorithm::FixedWindow | Algorithm::AlignedWindow => fixed_window::settle(quota, current, settled),
        Algorithm::SlidingWindow => sliding_window::settle(quota, current, settled),
        Algorithm::TokenBucket => token_bucket::settle(quota, current, now, settled),
        // Their calls end in a way of their own.
        Algorithm::Attempts | Algorithm::Failures => return None,
    };
    (corrected != current && (state.is_some() || settled.overrun() > 0)).then_some(corrected)
}

/// A time that does not come.
const NEVER: u64 = 1 << 62;

/// The counter whose `state` was last written (`None`: never), at `now` in microseconds, asked for `cost` units.
///
/// The cost is one that can fit: at most the quota's limit. A `call` is what ends later ([`end`]), where that matters.
#[inline(always)]
pub(crate) fn assess(quota: Quota, state: Option<State>, now: u64, cost: u64, call: u64) -> Assessment {
    match quota.algorithm() {
        Algorithm::Attempts => attempts::assess(quota, state, now, cost, call),
        Algorithm::Failures => failures::assess(quota, state, now, cost),
        _ => assess_rate(quota, state, now, cost).expect("any other algorithm counts by time alone"),
    }
}

/// The same, of an algorithm that counts by time alone; `None` of one that counts calls. Apart, so that all of it is inlined
/// where it is called, and nothing of the assessment has to stand in memory.
#[inline(always)]
pub(crate) fn assess_rate(quota: Quota, state: Option<State>, now: u64, cost: u64) -> Option<Assessment> {
    match quota.algorithm() {
        Algorithm::FixedWindow => Some(fixed_window::assess(quota, state, now, cost, |start| start)),
        Algorithm::AlignedWindow => {
            let period = quota.counted().micros;
            Some(fixed_window::assess(quota, state, now, cost, |start| start - start % period))
        }
        Algorithm::SlidingWindow => Some(sliding_window::assess(quota, state, now, cost)),
        Algorithm::TokenBucket => Some(token_bucket::assess(quota, state, now, cost)),
        Algorithm::Attempts | Algorithm::Failures => None,
    }
}
