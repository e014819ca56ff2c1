//! A bucket as what is *used* of it, and the exact time up to which the refill has been paid: a whole tick and a
//! fraction of one, counted in parts of the refill. Kept so, a change of capacity is free and no refill is lost.
//!
//! Source: the token bucket of J. Turner, "New directions in communications" (1986), filled lazily. Bound: capacity plus
//! refill in a span of one period.

use super::{Assessment, MOST_USED, Settled, State};
use crate::quota::Quota;

struct Bucket {
    used: u64,
    /// The tick up to which the refill has been paid …
    mark: u64,
    /// … and how far into it: this many of `refill` parts.
    parts: u32,
}

/// What a bucket gets back: `units` in each `length` ticks.
struct Refill {
    units: u64,
    length: u64,
}

#[inline(always)]
pub(super) fn assess(quota: Quota, state: Option<State>, now: u64, cost: u64) -> Assessment {
    let period = quota.counted();
    let tick = u64::from(period.tick);
    let refill = Refill { units: quota.refill().into(), length: period.ticks.into() };
    let now_in_ticks = period.tick_of(now);
    let mut bucket = Bucket::at(now_in_ticks, state.map(Bucket::from), &refill);

    let fits = bucket.used + cost <= quota.limit();
    let fits_at = (!fits).then(|| {
        let missing = bucket.used + cost - quota.limit();
        bucket.paid_back_at(missing, &refill).saturating_mul(tick)
    });
    if fits {
        bucket.used += cost;
    }
    Assessment {
        used: bucket.used,
        fits_at,
        fresh_at: match bucket.used {
            0 => now,
            used => bucket.paid_back_at(used, &refill).saturating_mul(tick),
        },
        is_resting: false,
        state: bucket.into(),
    }
}

/// Corrects a charge, as far as it has not been paid back already: a bucket that was full again in between, and is
/// given back what was charged before, would hold more than it was ever filled with.
pub(super) fn settle(quota: Quota, current: State, now: u64, settled: Settled) -> State {
    let period = quota.counted();
    let refill = Refill { units: quota.refill().into(), length: period.ticks.into() };
    let mut bucket = Bucket::from(current);
    let since = period.tick_of(now).saturating_sub(period.tick_of(settled.charged_at));
    let (paid_back, part) = refill.due_after(since);
    let still_charged = settled.charged.saturating_sub(paid_back);
    bucket.used = bucket.used.saturating_sub(settled.refund().min(still_charged));
    if part > 0 && settled.refund() >= still_charged && still_charged > 0 {
        // Of the last unit a part has been paid back already: that was time which is not counted again.
        let parts = u64::from(bucket.parts) + part;
        bucket.mark = bucket.mark.saturating_add(parts / refill.units);
        bucket.parts = as_parts(parts % refill.units);
    }
    bucket.used = (bucket.used + settled.overrun()).min(MOST_USED);
    bucket.into()
}

impl Refill {
    /// Whole units that so many ticks bring, and how much of the next: so many of `length` parts.
    fn due_after(&self, ticks: u64) -> (u64, u64) {
        let (periods, rest) = (ticks / self.length, ticks % self.length * self.units);
        (periods.saturating_mul(self.units).saturating_add(rest / self.length), rest % self.length)
    }
}

impl Bucket {
    fn fresh_at(mark: u64) -> Self {
        Self { used: 0, mark, parts: 0 }
    }

    /// The bucket at `now`, refilled by what is due since its mark; a mark never moves back.
    #[inline(always)]
    fn at(now: u64, bucket: Option<Self>, refill: &Refill) -> Self {
        let Some(mut bucket) = bucket else {
            return Self::fresh_at(now);
        };
        // Parts of another refill, which move the mark by less than a tick.
        if u64::from(bucket.parts) >= refill.units {
            bucket.mark += 1;
            bucket.parts = 0;
        }
        if bucket.used == 0 {
            return Self::fresh_at(now.max(bucket.mark));
        }
        if now <= bucket.mark {
            return bucket;
        }
        let elapsed = now - bucket.mark;
        // Most of the time no whole unit is due since the last one: without a division.
        if elapsed < refill.length {
            let (due, parts) = (elapsed * refill.units, u64::from(bucket.parts));
            if (parts..parts + refill.length).contains(&due) {
                return bucket;
            }
        }
        bucket.refilled(now, elapsed, refill)
    }

    /// The bucket at `now`, so long after its mark.
    #[inline(always)]
    fn refilled(mut self, now: u64, elapsed: u64, refill: &Refill) -> Self {
        let (periods, ticks) = divided(elapsed, refill.length);
        // Time enough to pay back everything, whatever the parts: the products below stay small.
        if periods > 0 && periods > self.used.div_ceil(refill.units) {
            return Self::fresh_at(now);
        }
        // The same within a period, which is how most buckets are found: without a division.
        let due = (ticks * refill.units).saturating_sub(self.parts.into());
        if due >= self.used.saturating_mul(refill.length) {
            return Self::fresh_at(now);
        }
        self.pay_back(periods, ticks, refill);
        if self.used == 0 {
            return Self::fresh_at(now);
        }
        self
    }

    /// Pays back what is due after so many periods and ticks, and moves the mark by exactly the time that this took.
    #[inline(always)]
    fn pay_back(&mut self, periods: u64, ticks: u64, refill: &Refill) {
        let Refill { units, length } = *refill;
        let (due, parts) = (ticks * units, u64::from(self.parts));
        if due < parts {
            return self.pay_back_less(periods, refill);
        }
        let whole = (due - parts) / length;
        let moved = parts + whole * length;
        self.used = self.used.saturating_sub(periods * units + whole);
        self.mark += periods * length + moved / units;
        self.parts = as_parts(moved % units);
    }

    /// Pays back what is due after so many whole periods, less what the parts eat into the last of them.
    fn pay_back_less(&mut self, periods: u64, refill: &Refill) {
        let Refill { units, length } = *refill;
        let parts = u64::from(self.parts);
        let missing = parts.div_ceil(length);
        let moved_back = missing * length - parts;
        self.used = self.used.saturating_sub(periods * units - missing);
        self.mark += periods * length - moved_back.div_ceil(units);
        self.parts = as_parts((units - moved_back % units) % units);
    }

    /// The tick at which `units` of what is used now are paid back.
    #[inline(always)]
    fn paid_back_at(&self, units: u64, refill: &Refill) -> u64 {
        let (periods, rest) = divided(units, refill.units);
        let ticks = (rest * refill.length + u64::from(self.parts)).div_ceil(refill.units);
        self.mark.saturating_add(periods.saturating_mul(refill.length)).saturating_add(ticks)
    }
}

/// The whole quotient and what remains, of numbers the first of which is mostly the smaller one: then without a division.
#[inline(always)]
fn divided(number: u64, by: u64) -> (u64, u64) {
    if number < by { (0, number) } else { (number / by, number % by) }
}

/// A remainder of a refill, which is at most 2^26.
fn as_parts(remainder: u64) -> u32 {
    u32::try_from(remainder).expect("a refill is at most 2^26")
}

impl From<State> for Bucket {
    fn from(state: State) -> Self {
        Self { used: state.first, mark: state.second, parts: state.third }
    }
}

impl From<Bucket> for State {
    fn from(bucket: Bucket) -> Self {
        Self { first: bucket.used, second: bucket.mark, third: bucket.parts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_larger_refill_end_the_tick_that_they_are_in() {
        let refill = Refill { units: 10, length: 1_000 };
        for (parts, expected) in [(9, (100, 9)), (10, (101, 0)), (999, (101, 0))] {
            let bucket = Bucket::at(100, Some(Bucket { used: 5, mark: 100, parts }), &refill);
            assert_eq!((bucket.used, bucket.mark, bucket.parts), (5, expected.0, expected.1));
        }
    }
}
