//! Charges that turned out to be worth something else.

use super::counters::Counters;
use super::held::Held;
use super::shared::Shared;
use crate::algorithm::{self, Settled};
use crate::question::{Demand, Owner, Terms};
use crate::settlement::Settlement;
use crate::store::contract::{StoreError, StoreErrorKind};
use crate::verdict::{Fit, Report, Reports, Verdict};

impl Counters {
    /// Corrects a charge on each of its axes at `now`. What finds no room for a new counter leaves the others corrected.
    pub(super) fn settle(&self, settlement: &Settlement<'_>, now: u64) -> Result<Verdict, StoreError> {
        let (mut reports, mut is_full) = (Reports::new(), false);
        for (demand, settled) in settlement.settled() {
            let counter = demand.counter();
            let report = match demand.owner {
                Owner::Everybody => {
                    self.settle_in(&mut self.shared.lock(Shared::lock_of(counter)), demand, settled, now)
                }
                _ => self.settle_in(&mut self.keyed.lock(self.keyed.lock_of(counter), now), demand, settled, now),
            };
            match report {
                Some(report) => reports.push(report),
                None => is_full = true,
            }
        }
        if is_full {
            return Err(StoreError::new(StoreErrorKind::StoreFull));
        }
        Ok(Verdict::from_all(reports, now))
    }

    /// Corrects a charge on a counter whose lock is held; `None` if there is no room for it.
    fn settle_in<H: Held>(&self, held: &mut H, demand: &Demand<'_>, settled: Settled, now: u64) -> Option<Report> {
        let (counter, quota) = (demand.counter(), demand.terms.quota);
        let found = held.find(counter);
        let (state, mark) = (found.map(|found| found.state), found.map(|found| found.mark).unwrap_or_default());
        let corrected = algorithm::settle(quota, state, now, settled);
        let assessment = algorithm::assess(quota, corrected.or(state), now, 0, 0);
        if corrected.is_some() {
            if H::IS_BOUNDED && found.is_none() && !self.keyed.reserve(1) {
                return None;
            }
            held.rewrite(counter, &assessment, mark);
        }
        let terms = Terms { units: 0, ..demand.terms };
        let reset = assessment.fresh_at.saturating_sub(now);
        Some(Report::in_micros(&terms, Fit::Fits, assessment.used, 0, reset, mark.above))
    }
}
