//! Failures within a while up to a limit, and then a lock. An attempt counts as a failure until it is told to be none, so
//! that attempts at the same time cannot be more than the limit either.
//!
//! Bound: the limit in a span that starts with the first failure, and then none until the end of the lock.

use super::{Assessment, Ending, NEVER, Outcome, State};
use crate::quota::Quota;

#[derive(Clone, Copy, Default)]
struct Record {
    /// The time of the first failure.
    first: u64,
    /// The end of the lock; 0 if there is none.
    locked_until: u64,
    count: u32,
}

impl Record {
    /// The record at `now`.
    fn at(now: u64, state: Option<State>, span: u64) -> Self {
        let record = state.map(Self::from).unwrap_or_default();
        if now >= record.fresh_at(now, span) { Self::default() } else { record }
    }

    fn fresh_at(&self, now: u64, span: u64) -> u64 {
        match self {
            _ if self.is_locked() => self.locked_until,
            Self { count: 0, .. } => now,
            _ => self.first.saturating_add(span),
        }
    }

    fn is_locked(&self) -> bool {
        self.locked_until > 0
    }

    fn assessment(self, now: u64, span: u64, used: u64, fits_at: Option<u64>) -> Assessment {
        let fresh_at = self.fresh_at(now, span);
        Assessment { used, fits_at, fresh_at, is_resting: self.is_locked(), state: self.into() }
    }
}

pub(super) fn assess(quota: Quota, state: Option<State>, now: u64, cost: u64) -> Assessment {
    let (limit, span) = (quota.limit(), span(quota));
    let mut record = Record::at(now, state, span);
    let count = u64::from(record.count);
    if record.is_locked() || count + cost > limit {
        let used = if record.is_locked() { count.max(limit) } else { count };
        return record.assessment(now, span, used, Some(record.fresh_at(now, span)));
    }
    // Of decisions at the same time the later one may be made first.
    record.first = if record.count == 0 { now } else { record.first.min(now) };
    record.count += u32::try_from(cost).expect("a cost that fits is at most the limit, which is below 2^32");
    record.assessment(now, span, count + cost, None)
}

pub(super) fn end(quota: Quota, state: Option<State>, now: u64, ending: Ending) -> Option<Assessment> {
    let (limit, rest, span) = (quota.limit(), quota.counted().micros, span(quota));
    let mut record = Record::at(now, state, span);
    let count = u64::from(record.count);
    match ending.outcome {
        Outcome::Cleared => record = Record::default(),
        // Of failures before, it was none.
        Outcome::Uncounted if count == 0 || ending.charged_at < record.first => return None,
        Outcome::Uncounted => {
            let left = count.saturating_sub(ending.units);
            record.count = u32::try_from(left).expect("less than a count, which is below 2^32");
            if left < limit {
                // It locked while this one was still under way, and counted.
                record.locked_until = 0;
            }
        }
        Outcome::Ended if count >= limit && !record.is_locked() => {
            record.locked_until = now.saturating_add(rest.max(ending.rest_at_least));
        }
        Outcome::Ended | Outcome::DoesNotFit => return None,
    }
    Some(record.assessment(now, span, record.count.into(), None))
}

/// Microseconds within which failures count.
fn span(quota: Quota) -> u64 {
    u64::try_from(quota.span().as_micros()).unwrap_or(NEVER)
}

impl From<State> for Record {
    fn from(State { first, second, third }: State) -> Self {
        Self { first, locked_until: second, count: third }
    }
}

impl From<Record> for State {
    fn from(Record { first, locked_until, count }: Record) -> Self {
        Self { first, second: locked_until, third: count }
    }
}
