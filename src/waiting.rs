//! A charge that waits until it is made.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use smallvec::SmallVec;

use crate::charge_error::ChargeError;
use crate::clock::{Clock, Sleep};
use crate::cost::Cost;
use crate::digest::Digest;
use crate::key::Key;
use crate::lines::Place;
use crate::panel::{Panel, Wanted};
use crate::quota::SECOND;
use crate::seen::Seen;
use crate::store::Answer;
use crate::verdict::{Finding, Report, Verdict};

/// A charge that may wait.
pub(crate) struct Waiting {
    pub(crate) panel: Arc<Panel>,
    pub(crate) seen: Seen,
    pub(crate) cost: Cost,
    pub(crate) request_id: Option<Key>,
    pub(crate) patience: Duration,
}

/// How a place in a line became the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    AtOnce,
    AfterOthers,
    /// It did not: the line is too long, or the others took too long.
    TooLate,
}

/// The places of a charge, in the order of their counters. Places are taken in that order alone, so that no two charges
/// wait for each other.
type Places = SmallVec<[Place; 2]>;

impl Waiting {
    /// Charges as soon as it fits, after all who came before for the same counters; gives up at once when that would be
    /// too late.
    pub(crate) async fn charge(self) -> Result<Verdict, ChargeError> {
        let outcome = self.charge_in_time().await;
        self.panel.last_outcome(outcome)
    }

    async fn charge_in_time(&self) -> Result<Verdict, ChargeError> {
        let panel = &self.panel;
        let clock = panel.ledger().clock();
        let deadline = clock.now().saturating_add(self.patience);
        let mut places = Places::new();

        // Whoever waits already came first.
        for counter in self.counters() {
            if panel.ledger().lines.has(counter)
                && self.stand_in_line(counter, &mut places, clock, deadline).await == Turn::TooLate
            {
                return self.others_come_first(counter).await;
            }
        }
        loop {
            let verdict = match self.ask(&self.cost).await {
                Err(ChargeError::Refused(verdict)) => verdict,
                outcome => return outcome,
            };
            let (wait, counter) = (verdict.wait(), self.last_to_fit(&verdict));
            if clock.now().saturating_add(wait) > deadline {
                return Err(ChargeError::Refused(verdict));
            }
            let turn = if places.iter().any(|place| place.counter() == counter) {
                Turn::AtOnce
            } else {
                self.stand_in_line(counter, &mut places, clock, deadline).await
            };
            match turn {
                Turn::AtOnce => clock.sleep(wait).await,
                // What it was told is out of date by now.
                Turn::AfterOthers => {}
                Turn::TooLate => return Err(ChargeError::Refused(verdict)),
            }
        }
    }

    /// Takes a place in a counter's line, and waits until it is the first.
    async fn stand_in_line(&self, counter: Digest, places: &mut Places, clock: &dyn Clock, deadline: Duration) -> Turn {
        // Those behind this counter in order are left, and taken again where they are needed.
        places.retain(|place| place.counter() < counter);
        let Some(place) = self.panel.ledger().lines.join(counter) else { return Turn::TooLate };
        let turn = if place.is_first() {
            Turn::AtOnce
        } else {
            let patience = clock.sleep(deadline.saturating_sub(clock.now()));
            if first_in_time(&place, patience).await { Turn::AfterOthers } else { Turn::TooLate }
        };
        places.push(place);
        turn
    }

    async fn ask(&self, cost: &Cost) -> Result<Verdict, ChargeError> {
        let wanted = self.wanted(cost);
        // Nothing large stands where it would have to be kept while it waits.
        let answer = match self.panel.decide(wanted) {
            Answer::Ready(answer) => answer,
            Answer::Pending(answer) => answer.await,
        };
        self.panel.outcome_so_far(answer, Some(wanted))
    }

    /// What becomes of a charge that gives up in a counter's line. It is not made, be there room: that is for those who came
    /// before, of whom no more is known than when the counter is fresh.
    async fn others_come_first(&self, counter: Digest) -> Result<Verdict, ChargeError> {
        let look = self.ask(&Cost::units(0)).await?;
        if look.reports().is_empty() {
            // Nobody counts now, and nobody waits for room.
            return Ok(look);
        }
        let question = self.panel.question(&self.seen, &self.cost);
        let reports = question.demands().iter().zip(look.reports()).map(|(demand, report)| {
            let wait = (demand.counter() == counter).then(|| report.reset().max(SECOND));
            let (used, reset, above_watermark) = (report.used(), report.reset(), report.is_above_watermark());
            Report::new(demand.terms(), Finding { used, wait, reset, above_watermark })
        });
        self.panel.outcome_so_far(Ok(Verdict::from_reports(reports)), Some(self.wanted(&self.cost)))
    }

    fn wanted<'a>(&'a self, cost: &'a Cost) -> Wanted<'a> {
        Wanted { seen: &self.seen, cost, request_id: self.request_id.as_ref(), call: 0 }
    }

    /// The counters that are charged, in order.
    fn counters(&self) -> SmallVec<[Digest; 4]> {
        let question = self.panel.question(&self.seen, &self.cost);
        let charged = question.demands().iter().filter(|demand| demand.terms().units() > 0);
        let mut counters: SmallVec<_> = charged.map(crate::question::Demand::counter).collect();
        counters.sort_unstable();
        counters
    }

    /// The counter on which the cost fits last.
    fn last_to_fit(&self, verdict: &Verdict) -> Digest {
        let question = self.panel.question(&self.seen, &self.cost);
        let both = question.demands().iter().zip(verdict.reports());
        let last = both.max_by_key(|(_, report)| report.wait()).map(|(demand, _)| demand.counter());
        last.expect("what is refused has a report")
    }
}

/// Whether a place becomes the first before the patience ends.
pub(crate) async fn first_in_time(place: &Place, patience: Sleep) -> bool {
    let (mut first, mut patience) = (pin!(place.first()), patience);
    std::future::poll_fn(|context| {
        if first.as_mut().poll(context).is_ready() {
            return Poll::Ready(true);
        }
        patience.as_mut().poll(context).map(|()| false)
    })
    .await
}
