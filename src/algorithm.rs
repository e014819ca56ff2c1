//! How each algorithm counts: pure transitions from a state and a time to a state and an outcome.
//!
//! Nothing here reads a clock or does I/O, and nothing is lost from one state to the next: times are whole microseconds, or
//! whole ticks of them ([`Period`](crate::quota::Period)), units are whole, and every product stays below 2^53, so that the same forms can be
//! computed by a store that knows only doubles. A state never moves back: an earlier time counts as the state's own, but
//! a wait is told from the time as it was read.

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
}

/// The counter whose `state` was last written (`None`: never), at `now` in microseconds, asked for `cost` units.
///
/// The cost is one that can fit: at most the quota's limit.
#[inline(always)]
pub(crate) fn assess(quota: Quota, state: Option<State>, now: u64, cost: u64) -> Assessment {
    match quota.algorithm() {
        Algorithm::FixedWindow => fixed_window::assess(quota, state, now, cost, |start| start),
        Algorithm::AlignedWindow => {
            let period = quota.counted().micros;
            fixed_window::assess(quota, state, now, cost, |start| start - start % period)
        }
        Algorithm::SlidingWindow => sliding_window::assess(quota, state, now, cost),
        Algorithm::TokenBucket => token_bucket::assess(quota, state, now, cost),
    }
}
