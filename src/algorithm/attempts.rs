//! Attempts up to a limit, and then a rest that starts when the call that reached the limit has ended. Time without an
//! attempt resets nothing.
//!
//! A call that does not end within its lease, because its process has gone, counts as ended then.
//!
//! Bound: the limit between two rests.

use super::{Assessment, Ending, NEVER, Outcome, State};
use crate::quota::Quota;

#[derive(Clone, Copy)]
struct Record {
    /// Of a rest or a pause: its end. Of a call at the boundary: the end of its lease. Else 0.
    until: u64,
    /// The call at the boundary; or [`PAUSE`]; or 0.
    call: u64,
    count: u32,
}

/// Stands for a pause, which is not the rest: the count goes on after it.
const PAUSE: u64 = 1;

impl Record {
    /// The record at `now`.
    fn at(now: u64, state: Option<State>, rest: u64) -> Self {
        let mut record = state.map_or(Self { until: 0, call: 0, count: 0 }, Self::from);
        if record.is_in_flight() && now >= record.until {
            (record.until, record.call) = (record.until.saturating_add(rest), 0);
        }
        if !record.is_in_flight() && record.until > 0 && now >= record.until {
            let count = if record.call == PAUSE { record.count } else { 0 };
            record = Self { until: 0, call: 0, count };
        }
        record
    }

    fn is_in_flight(&self) -> bool {
        self.call > PAUSE
    }

    fn is_resting(&self) -> bool {
        self.until > 0
    }

    fn fresh_at(&self, now: u64, rest: u64) -> u64 {
        match self {
            _ if self.is_in_flight() => self.until.saturating_add(rest),
            Self { until: 1.., call: 0, .. } => self.until,
            // In a pause, too.
            Self { count: 0, .. } => now.max(self.until),
            _ => NEVER,
        }
    }

    /// With so many units to be told as used.
    fn assessment(self, now: u64, rest: u64, used: u64, fits_at: Option<u64>) -> Assessment {
        Assessment {
            used,
            fits_at,
            fresh_at: self.fresh_at(now, rest),
            is_resting: self.is_resting(),
            state: self.into(),
        }
    }
}

pub(super) fn assess(quota: Quota, state: Option<State>, now: u64, cost: u64, call: u64) -> Assessment {
    let (limit, rest) = (quota.limit(), quota.counted().micros);
    let mut record = Record::at(now, state, rest);
    let count = u64::from(record.count);
    if record.is_resting() {
        // Of a call in flight no more is known than its lease.
        let fits_at = record.until.saturating_add(if record.is_in_flight() { rest } else { 0 });
        return record.assessment(now, rest, count.max(limit), Some(fits_at));
    }
    if count + cost > limit {
        // If the rest starts now.
        return record.assessment(now, rest, count, Some(now.saturating_add(rest)));
    }
    record.count += u32::try_from(cost).expect("a cost that fits is at most the limit, which is below 2^32");
    if cost > 0 && count + cost == limit {
        (record.until, record.call) = (now.saturating_add(lease(quota)), call.max(PAUSE + 1));
    }
    record.assessment(now, rest, count + cost, None)
}

pub(super) fn end(quota: Quota, state: Option<State>, now: u64, ending: Ending) -> Option<Assessment> {
    let rest = quota.counted().micros;
    let mut record = Record::at(now, state, rest);
    let Ending { outcome, call, rest_at_least, .. } = ending;
    let until = |time: u64| now.saturating_add(time);
    match record {
        _ if record.is_in_flight() && record.call == call => {
            (record.until, record.call) = (until(rest.max(rest_at_least)), 0);
        }
        // Its end may be told with less: the rest starts now, and is over when it would be at the latest.
        _ if record.is_in_flight() && rest_at_least > rest => {
            (record.until, record.call) = (until(rest_at_least).max(record.until.saturating_add(rest)), 0);
        }
        _ if record.is_in_flight() => return None,
        Record { until: 0, .. } if outcome == Outcome::DoesNotFit => record.until = until(rest),
        _ if rest_at_least == 0 => return None,
        Record { until: 0, .. } => (record.until, record.call) = (until(rest_at_least), PAUSE),
        _ => record.until = record.until.max(until(rest_at_least)),
    }
    let used = u64::from(record.count);
    Some(record.assessment(now, rest, used, None))
}

/// Microseconds for which a call at the boundary may take.
fn lease(quota: Quota) -> u64 {
    u64::try_from(quota.span().as_micros()).unwrap_or(NEVER)
}

impl From<State> for Record {
    fn from(State { first, second, third }: State) -> Self {
        Self { until: first, call: second, count: third }
    }
}

impl From<Record> for State {
    fn from(Record { until, call, count }: Record) -> Self {
        Self { first: until, second: call, third: count }
    }
}
