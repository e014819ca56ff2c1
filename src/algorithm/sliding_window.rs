//! Two counters of adjacent windows on the clock, in ticks: the estimate of what the last period used is the current
//! counter plus the previous one weighted by how much of its window the last period still covers.
//!
//! The weighted part is rounded down: rounded up, a limit of 1 a second would become 1 in 2 seconds.
//!
//! Source: "Counting things, a lot of different things" (Cloudflare, 2017). Bound: twice the limit in a span of one
//! period; the limit on average under saturation.

use super::{Assessment, Settled, State};
use crate::quota::Quota;

struct Windows {
    /// Start of the current window, in ticks.
    start: u64,
    previous: u32,
    current: u32,
}

#[inline(always)]
pub(super) fn assess(quota: Quota, state: Option<State>, now: u64, cost: u64) -> Assessment {
    let period = quota.counted();
    let (tick, length) = (u64::from(period.tick), u64::from(period.ticks));
    let now_in_ticks = period.tick_of(now);
    let mut windows = Windows::at(now_in_ticks, state.map(Windows::from), length);
    let elapsed = now_in_ticks.saturating_sub(windows.start);

    let weighted = u64::from(windows.previous) * (length - elapsed) / length;
    let used = u64::from(windows.current) + weighted;
    let fits = used + cost <= quota.limit();
    let fits_at = (!fits).then(|| windows.fits_at(quota.limit(), cost, length).saturating_mul(tick));
    if fits {
        windows.current += u32::try_from(cost).expect("a cost that fits is at most the limit, which is at most 2^26");
    }
    Assessment {
        used: if fits { used + cost } else { used },
        fits_at,
        fresh_at: windows.fresh_at(length).map_or(now, |at| at.saturating_mul(tick)),
        is_resting: false,
        state: windows.into(),
    }
}

/// Corrects a charge in whichever of the two windows it was made in.
pub(super) fn settle(quota: Quota, current: State, settled: Settled) -> State {
    let period = quota.counted();
    let length = u64::from(period.ticks);
    let mut windows = Windows::from(current);
    let charged_at = period.tick_of(settled.charged_at);
    let charged_in = charged_at - charged_at % length;
    let refund = u32::try_from(settled.refund()).unwrap_or(u32::MAX);
    if charged_in == windows.start {
        windows.current = windows.current.saturating_sub(refund);
    } else if charged_in.saturating_add(length) == windows.start {
        windows.previous = windows.previous.saturating_sub(refund);
    }
    let overrun = u32::try_from(settled.overrun()).unwrap_or(u32::MAX);
    windows.current = windows.current.saturating_add(overrun).min(MOST_IN_A_WINDOW);
    windows.into()
}

/// No limit is higher; with more, products would pass 2^53.
const MOST_IN_A_WINDOW: u32 = 1 << 26;

impl Windows {
    /// The windows at `now`, which moves them on but never back.
    fn at(now: u64, windows: Option<Self>, length: u64) -> Self {
        let fresh = || Self { start: now - now % length, previous: 0, current: 0 };
        let Some(windows) = windows else {
            return fresh();
        };
        let next = windows.start.saturating_add(length);
        if now < next {
            windows
        } else if now < next.saturating_add(length) {
            Self { start: next, previous: windows.current, current: 0 }
        } else {
            fresh()
        }
    }

    /// The tick at which `cost` fits, given that it does not fit now: once enough of the previous window has moved out,
    /// or else once the current one is the previous one and enough of it has.
    fn fits_at(&self, limit: u64, cost: u64, length: u64) -> u64 {
        let next = self.start.saturating_add(length);
        let room = limit - cost;
        // The last tick before the end of its window at which `units`, weighted, are at most `room`.
        let remaining_when = |room: u64, units: u32| ((room + 1) * length - 1) / u64::from(units);
        match room.checked_sub(u64::from(self.current)) {
            Some(room) => next.saturating_sub(remaining_when(room, self.previous)),
            None => next.saturating_add(length.saturating_sub(remaining_when(room, self.current))),
        }
    }

    /// The tick at which nothing is left of either counter; `None` if nothing is there now.
    fn fresh_at(&self, length: u64) -> Option<u64> {
        let next = self.start.saturating_add(length);
        match (self.previous, self.current) {
            (0, 0) => None,
            (_, 0) => Some(next),
            _ => Some(next.saturating_add(length)),
        }
    }
}

impl From<State> for Windows {
    fn from(state: State) -> Self {
        // Counters are at most 2^26.
        let counter = |word| u32::try_from(word).unwrap_or(u32::MAX);
        Self { start: state.first, previous: counter(state.second), current: state.third }
    }
}

impl From<Windows> for State {
    fn from(windows: Windows) -> Self {
        Self { first: windows.start, second: windows.previous.into(), third: windows.current }
    }
}
