//! A decision over any number of counters: each is locked and judged on the way down, and written on the way back up, once
//! it is known whether all fit.

use smallvec::SmallVec;

use super::counters::Counters;
use super::held::{Found, Held};
use super::keyed::Keyed;
use super::shared::Shared;
use crate::algorithm::{self, Assessment};
use crate::digest::Digest;
use crate::question::{Demand, Owner};
use crate::store::contract::{StoreError, StoreErrorKind};
use crate::verdict::{Fit, Report, Reports, Verdict};
use crate::watermark::{Crossing, Mark, Watermark};

impl Counters {
    /// Judges and charges all demands at `now`.
    pub(super) fn decide(&self, demands: &[Demand<'_>], now: u64) -> Result<Verdict, StoreError> {
        /// Room that was made may be taken by another decision; after so many times the store is full.
        const TRIES: usize = 8;
        for _ in 0..TRIES {
            let mut decision = Decision::new(now);
            match self.decide_all(demands, &mut decision) {
                Outcome::Charged | Outcome::Refused => return Ok(decision.into_verdict()),
                Outcome::NoRoom if self.keyed.make_room(now) => {}
                Outcome::NoRoom => break,
            }
        }
        Err(StoreError::new(StoreErrorKind::StoreFull))
    }

    /// Decides with the demands in the order of their locks, and puts the reports into the order asked.
    fn decide_all<'q>(&self, demands: &'q [Demand<'q>], decision: &mut Decision<'q>) -> Outcome {
        let mut places: SmallVec<[(usize, Place<'q>); 4]> =
            demands.iter().map(|demand| self.place(demand)).enumerate().collect();
        places.sort_unstable_by_key(|(_, place)| place.lock);
        let outcome = self.decide_next(&mut places.iter().map(|(_, place)| *place), decision);

        let mut reports: SmallVec<[(usize, Report); 4]> =
            places.iter().map(|(asked, _)| *asked).zip(decision.reports.drain(..)).collect();
        reports.sort_unstable_by_key(|(asked, _)| *asked);
        decision.reports.extend(reports.into_iter().map(|(_, report)| report));
        outcome
    }

    /// Locks the next of these places, and decides from there on.
    fn decide_next<'q>(&self, places: &mut dyn Iterator<Item = Place<'q>>, decision: &mut Decision<'q>) -> Outcome {
        match places.next() {
            None => decision.outcome(&self.keyed),
            Some(place) => self.decide_from(place, places, decision),
        }
    }

    /// Locks a place, and decides from there on.
    fn decide_from<'q>(
        &self,
        place: Place<'q>,
        places: &mut dyn Iterator<Item = Place<'q>>,
        decision: &mut Decision<'q>,
    ) -> Outcome {
        if place.is_shared() {
            self.decide_held(&mut self.shared.lock(place.lock), place, places, decision)
        } else {
            self.decide_held(&mut self.keyed.lock(place.lock, decision.now), place, places, decision)
        }
    }

    /// Decides a place whose lock is held, and from there on.
    fn decide_held<'q, H: Held>(
        &self,
        held: &mut H,
        place: Place<'q>,
        places: &mut dyn Iterator<Item = Place<'q>>,
        decision: &mut Decision<'q>,
    ) -> Outcome {
        decide_in(held, place, decision, |held, decision| match places.next() {
            None => decision.outcome(&self.keyed),
            Some(next) if next.lock == place.lock => self.decide_held(held, next, places, decision),
            Some(next) => self.decide_from(next, places, decision),
        })
    }

    /// Where the counter of a demand is.
    fn place<'q>(&self, demand: &'q Demand<'q>) -> Place<'q> {
        let digest = demand.counter();
        let lock = match demand.owner {
            Owner::Everybody => SHARED | Shared::lock_of(digest),
            _ => self.keyed.lock_of(digest),
        };
        Place { lock, digest, demand }
    }
}

/// Judges a place among the counters that are held, has the rest decided while they are, and does what that comes to.
fn decide_in<'q, H: Held>(
    held: &mut H,
    place: Place<'q>,
    decision: &mut Decision<'q>,
    rest: impl FnOnce(&mut H, &mut Decision<'q>) -> Outcome,
) -> Outcome {
    let Place { demand, digest, .. } = place;
    let now = decision.now;
    let found = held.find(digest);
    let judged = Judged::new(demand, found, now);
    let at = decision.reports.len();
    decision.reports.push(judged.report(demand, now));
    decision.refused |= judged.fit != Fit::Fits;
    decision.new_keys += usize::from(H::IS_BOUNDED && found.is_none() && judged.cost > 0);

    let outcome = rest(held, decision);
    match outcome {
        Outcome::Charged if judged.cost > 0 => {
            held.write(digest, &judged.assessment, judged.mark);
            let before = found.map(|found| found.mark).unwrap_or_default();
            if judged.mark != before {
                decision.note_crossing(demand, &judged, before);
            }
        }
        Outcome::Charged => judged.keep(held, digest, now),
        Outcome::Refused => {
            let uncharged = judged.without_charge(demand, found, now);
            uncharged.keep(held, digest, now);
            decision.reports[at] = uncharged.report(demand, now);
        }
        Outcome::NoRoom => {}
    }
    outcome
}

/// Marks a lock of the shared counters.
const SHARED: usize = 1 << 31;

/// Where the counter of a demand is.
#[derive(Clone, Copy)]
struct Place<'q> {
    /// Locks are taken in the order of their numbers: those of keys first, so that shared counters, which every
    /// decision needs, are held most briefly.
    lock: usize,
    digest: Digest,
    demand: &'q Demand<'q>,
}

impl Place<'_> {
    fn is_shared(&self) -> bool {
        self.lock & SHARED != 0
    }
}

/// A decision on its way through the locks.
struct Decision<'q> {
    now: u64,
    refused: bool,
    new_keys: usize,
    /// As if everything fitted, until it is known.
    reports: Reports,
    /// Marks that were passed, to be told of once nothing is locked any more.
    crossings: Vec<(&'q Watermark, Crossing)>,
}

#[derive(Clone, Copy)]
enum Outcome {
    Charged,
    Refused,
    /// Nothing is changed, because there is no room for a new counter.
    NoRoom,
}

impl<'q> Decision<'q> {
    fn new(now: u64) -> Self {
        Self { now, refused: false, new_keys: 0, reports: Reports::new(), crossings: Vec::new() }
    }

    /// What judging all demands came to.
    fn outcome(&self, keyed: &Keyed) -> Outcome {
        if self.refused {
            Outcome::Refused
        } else if keyed.reserve(self.new_keys) {
            Outcome::Charged
        } else {
            Outcome::NoRoom
        }
    }

    /// Takes down what is to be told once nothing is locked any more.
    fn note_crossing(&mut self, demand: &'q Demand<'q>, charged: &Judged, before: Mark) {
        let Assessment { used, fresh_at, .. } = charged.assessment;
        if let Some(watermark) = demand.watermark() {
            let (label, limit) = (demand.terms.label, demand.terms.quota.limit());
            let time_left = fresh_at.saturating_sub(self.now);
            self.crossings.push((watermark, Crossing { label, limit, used, time_left, before, after: charged.mark }));
        }
    }

    /// The verdict, once nothing is locked any more.
    fn into_verdict(self) -> Verdict {
        for (watermark, crossing) in self.crossings {
            watermark.tell(&crossing);
        }
        Verdict::from_all(self.reports, self.now)
    }
}

/// A demand, judged.
struct Judged {
    fit: Fit,
    /// What would be charged: nothing if it cannot fit at any time.
    cost: u64,
    assessment: Assessment,
    /// Where the usage stands towards the watermark, as of now. Only a charge writes it.
    mark: Mark,
}

impl Judged {
    fn new(demand: &Demand<'_>, found: Option<Found>, now: u64) -> Self {
        let cost = if demand.terms.can_fit() { demand.terms.units } else { 0 };
        Self::assess(demand, found, now, cost)
    }

    /// The same counter without the charge, which another demand keeps from being made.
    fn without_charge(self, demand: &Demand<'_>, found: Option<Found>, now: u64) -> Self {
        if self.fit == Fit::Fits { Self::assess(demand, found, now, 0) } else { self }
    }

    fn assess(demand: &Demand<'_>, found: Option<Found>, now: u64, cost: u64) -> Self {
        let assessment =
            algorithm::assess(demand.terms.quota, found.map(|found| found.state), now, cost, demand.terms.call);
        let fit = Fit::of(&demand.terms, assessment.fits_at.is_none());
        let charged = if fit == Fit::Fits { cost } else { 0 };
        let (used, limit) = (assessment.used, demand.terms.quota.limit());
        let mark = found.map(|found| found.mark).unwrap_or_default();
        let next = |watermark: &Watermark| watermark.next(mark, limit, used - charged, used, now);
        Self { fit, cost, assessment, mark: demand.watermark().map_or(mark, next) }
    }

    /// Sees to it that a counter in use, which was not charged, is not forgotten early.
    fn keep(&self, held: &mut impl Held, digest: Digest, now: u64) {
        if self.assessment.fresh_at > now {
            held.keep_until(digest, self.assessment.fresh_at);
        }
    }

    fn report(&self, demand: &Demand<'_>, now: u64) -> Report {
        let Assessment { used, fits_at, fresh_at, is_resting, .. } = self.assessment;
        let wait = if self.fit == Fit::Full { fits_at.map_or(0, |at| at.saturating_sub(now)) } else { 0 };
        Report::in_micros(
            &demand.terms,
            self.fit,
            used,
            wait,
            fresh_at.saturating_sub(now),
            self.mark.above || is_resting,
        )
    }
}
