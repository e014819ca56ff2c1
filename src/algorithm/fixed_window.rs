//! One counter and the start of its window, in microseconds: both kinds of fixed window.
//!
//! Bound: twice the limit in a span of one period.

use super::{Assessment, MOST_USED, Settled, State};
use crate::quota::Quota;

struct Window {
    start: u64,
    used: u64,
}

/// `align` moves the start of a new window to where such windows start.
#[inline(always)]
pub(super) fn assess(
    quota: Quota,
    state: Option<State>,
    now: u64,
    cost: u64,
    align: impl Fn(u64) -> u64,
) -> Assessment {
    let period = quota.counted().micros;
    let new_at = |now| Window { start: align(now), used: 0 };
    let mut window = match state.map(Window::from) {
        Some(window) if now >= window.start.saturating_add(period) => new_at(now),
        // All that was used has been given back: as good as fresh.
        Some(window) if window.used == 0 => new_at(now.max(window.start)),
        Some(window) => window,
        None => new_at(now),
    };
    let end = window.start.saturating_add(period);
    let fits = window.used + cost <= quota.limit();
    if fits {
        window.used += cost;
    }
    Assessment {
        used: window.used,
        fits_at: (!fits).then_some(end),
        fresh_at: if window.used == 0 { now } else { end },
        is_resting: false,
        state: window.into(),
    }
}

/// Corrects a charge in the window of this time, if it was made there.
pub(super) fn settle(quota: Quota, current: State, settled: Settled) -> State {
    let mut window = Window::from(current);
    let end = window.start.saturating_add(quota.counted().micros);
    if (window.start..end).contains(&settled.charged_at) {
        window.used = window.used.saturating_sub(settled.refund());
    }
    window.used = (window.used + settled.overrun()).min(MOST_USED);
    window.into()
}

impl From<State> for Window {
    fn from(state: State) -> Self {
        Self { start: state.first, used: state.second }
    }
}

impl From<Window> for State {
    fn from(window: Window) -> Self {
        Self { first: window.start, second: window.used, third: 0 }
    }
}
