//! The quick way through a decision, for what most services ask most of the time.

use super::counters::Counters;
use super::shared::Shared;
use crate::algorithm::{self, Assessment, State};
use crate::digest::Digest;
use crate::name::Label;
use crate::rate::Rate;
use crate::verdict::{Report, Verdict};
use crate::watermark::Watermark;

impl Counters {
    /// Charges a key's counter and a shared one, if both are there, both have room, and no mark is passed. `None`,
    /// without a change, if anything is otherwise: then it takes a question to decide.
    ///
    /// Nothing here waits for the entry that is fetched from the table before it has to be known: most likely it comes
    /// from far down the memory hierarchy.
    #[inline(always)]
    pub(super) fn charge_known<'q>(
        &self,
        account: &Known<'_>,
        capacity: impl FnOnce() -> Known<'q>,
        units: u64,
        clock: impl FnOnce() -> u64,
    ) -> Option<Verdict> {
        let mut keyed = self.keyed.lock_known(account.counter);
        let entry = keyed.entry(account.counter)?;
        let now = clock();
        let capacity = capacity();
        let of_account = account.charge(entry.state(), now, units)?;

        let mut shared = self.shared.lock(Shared::lock_of(capacity.counter));
        let counter = shared.counter(capacity.counter)?;
        let of_capacity = capacity.charge(counter.state(), now, units)?;
        let (limit, used) = (capacity.rate.quota.limit(), of_capacity.used);
        let next = |watermark: &Watermark| watermark.next(counter.mark(), limit, used - units, used, now);
        let mark = capacity.watermark.map_or(counter.mark(), next);
        if mark != counter.mark() {
            return None;
        }
        counter.write(of_capacity.state);
        drop(shared);
        entry.write(&of_account, self.keyed.to_forget_at(of_account.fresh_at));
        drop(keyed);

        self.keyed.sweep_in_passing(now);
        Some(Verdict::of_two(
            account.report(&of_account, now, false),
            capacity.report(&of_capacity, now, mark.above),
            now,
        ))
    }
}

/// One axis, and its counter.
pub(crate) struct Known<'a> {
    pub(crate) label: &'static Label,
    pub(crate) rate: Rate,
    pub(crate) counter: Digest,
    pub(crate) watermark: Option<&'a Watermark>,
}

impl Known<'_> {
    /// The counter with so many units charged; `None` if they do not fit, or are none.
    #[inline(always)]
    fn charge(&self, state: State, now: u64, units: u64) -> Option<Assessment> {
        if units == 0 || units > self.rate.quota.limit() {
            return None;
        }
        let assessment = algorithm::assess_rate(self.rate.quota, Some(state), now, units)?;
        assessment.fits_at.is_none().then_some(assessment)
    }

    #[inline(always)]
    fn report(&self, charged: &Assessment, now: u64, is_above: bool) -> Report {
        let reset = charged.fresh_at.saturating_sub(now);
        Report::admitted(self.label, &self.rate.quota, charged.used, reset, is_above)
    }
}
