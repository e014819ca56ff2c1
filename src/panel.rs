//! The axes of a meter, whatever its subject is.

use std::sync::Arc;

use crate::axis::AxisCore;
#[cfg(feature = "waiting")]
use crate::call_end::CallEnd;
use crate::charge_error::ChargeError;
use crate::cost::Cost;
use crate::failure::OnStoreFailure;
use crate::key::Key;
use crate::ledger::Ledger;
use crate::name::Label;
use crate::question::{Owner, Question};
use crate::quota::Quota;
use crate::seen::Seen;
use crate::settlement::Settlement;
use crate::store::{Answer, StoreError};
use crate::verdict::{CountedBy, Report, Verdict};

/// Axes of one group, in the order in which they are judged.
#[derive(Debug)]
pub(crate) struct Panel {
    axes: Vec<Arc<AxisCore>>,
    /// The strictest of the axes'.
    on_store_failure: OnStoreFailure,
}

/// What is asked of a panel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) seen: &'a Seen,
    pub(crate) cost: &'a Cost,
    /// What the request calls itself, if it is not to be charged twice.
    pub(crate) request_id: Option<&'a Key>,
    /// What the call is known by, if its end is told later; else 0.
    pub(crate) call: u64,
}

impl Panel {
    pub(crate) fn new(axes: Vec<Arc<AxisCore>>) -> Self {
        let strictest = axes.iter().map(|axis| axis.on_store_failure).max();
        Self { on_store_failure: strictest.unwrap_or_default(), axes }
    }

    pub(crate) fn ledger(&self) -> &Arc<Ledger> {
        // A meter has a first axis.
        &self.axes[0].ledger
    }

    pub(crate) fn question<'a>(&'a self, seen: &'a Seen, cost: &Cost) -> Question<'a> {
        let axes = self.axes.iter().zip(seen.owners()).enumerate();
        let counted = axes.filter(|(_, (_, owner))| **owner != Owner::Nobody);
        Question::new(
            counted.map(|(index, (axis, owner))| axis.demand(owner, seen.plan(index), cost.for_axis(axis.label))),
        )
    }

    /// What the store says to a charge.
    pub(crate) fn decide(&self, wanted: Wanted<'_>) -> Answer<Verdict> {
        self.ledger().decide(&self.question_of(wanted))
    }

    fn question_of<'a>(&'a self, wanted: Wanted<'a>) -> Question<'a> {
        self.question(wanted.seen, wanted.cost).of_request(wanted.request_id).of_call(wanted.call)
    }

    /// Takes down the end of a call, with whoever counted it.
    #[cfg(feature = "waiting")]
    pub(crate) fn end(&self, end: &CallEnd<'_>, counted_by: CountedBy) -> Answer<()> {
        self.ledger().end(end, counted_by, self.share())
    }

    /// What the store says to a charge that turned out to be worth something else, from whoever counted it.
    pub(crate) fn settle(&self, settlement: &Settlement<'_>, counted_by: CountedBy) -> Answer<Verdict> {
        self.ledger().settle(settlement, counted_by, self.share())
    }

    /// Where the counters stand, by whoever counts them.
    pub(crate) fn look(&self, seen: &Seen, counted_by: CountedBy) -> Answer<Verdict> {
        let question = self.question(seen, &Cost::units(0));
        match (counted_by, self.share()) {
            (CountedBy::LocalShare, Some(percent)) => {
                self.ledger().decide_by_share(&question, percent).expect("nothing is demanded, and so it fits")
            }
            _ => self.ledger().decide(&question),
        }
    }

    /// How much of each limit this process counts by itself while the store fails.
    fn share(&self) -> Option<u8> {
        match self.on_store_failure {
            OnStoreFailure::Local { percent } => Some(percent),
            _ => None,
        }
    }

    /// The axes' own quotas, as of now.
    pub(crate) fn quotas(&self) -> impl Iterator<Item = Quota> {
        self.axes.iter().map(|axis| axis.quota())
    }

    /// Whether a cost has numbers only for axes of this panel.
    pub(crate) fn knows(&self, cost: &Cost) -> Result<(), ChargeError> {
        match cost.foreign_axis(|axis| self.has(axis)) {
            Some(foreign) => Err(ChargeError::ForeignAxis { axis: foreign.axis }),
            None => Ok(()),
        }
    }

    pub(crate) fn has(&self, label: &Label) -> bool {
        self.axis(label).is_some()
    }

    fn axis(&self, label: &Label) -> Option<&AxisCore> {
        self.axes.iter().find(|axis| axis.label == label).map(|axis| &**axis)
    }

    /// Whether this process decides by itself what the store does not, from what was asked.
    pub(crate) fn decides_by_share(&self) -> bool {
        self.share().is_some()
    }

    /// What the store's answer means to the caller, who has asked this.
    pub(crate) fn outcome(
        &self,
        answer: Result<Verdict, StoreError>,
        wanted: Option<Wanted<'_>>,
    ) -> Result<Verdict, ChargeError> {
        self.last_outcome(self.outcome_so_far(answer, wanted))
    }

    /// The same, of a charge that may be asked again if it is refused.
    pub(crate) fn outcome_so_far(
        &self,
        answer: Result<Verdict, StoreError>,
        wanted: Option<Wanted<'_>>,
    ) -> Result<Verdict, ChargeError> {
        match answer {
            Ok(verdict) => {
                self.ledger().note_answer();
                judged(verdict)
            }
            Err(error) => self.without_store(error, wanted),
        }
    }

    /// This outcome, which is told of if it is a refusal.
    pub(crate) fn last_outcome<T>(&self, outcome: Result<T, ChargeError>) -> Result<T, ChargeError> {
        if let Err(ChargeError::Refused(verdict) | ChargeError::Never(verdict)) = &outcome
            && let Some(report) = verdict.refused_by()
            && let Some(axis) = self.axis(report.label)
        {
            axis.note_refusal(report);
        }
        outcome
    }

    /// The store did not take something down.
    #[cfg(feature = "waiting")]
    pub(crate) fn note_failure(&self, error: &StoreError) {
        self.ledger().note_failure(error, self.on_store_failure);
    }

    fn without_store(&self, error: StoreError, wanted: Option<Wanted<'_>>) -> Result<Verdict, ChargeError> {
        let policy = self.on_store_failure;
        self.ledger().note_failure(&error, policy);
        match policy {
            OnStoreFailure::Open => Ok(Verdict::uncounted()),
            OnStoreFailure::Closed => Err(ChargeError::Store(error)),
            OnStoreFailure::Local { percent } => {
                let local = wanted.and_then(|wanted| self.ledger().decide_by_share(&self.question_of(wanted), percent));
                match local {
                    Some(Answer::Ready(Ok(verdict))) => judged(verdict.by_local_share()),
                    _ => Err(ChargeError::Store(error)),
                }
            }
        }
    }
}

fn judged(verdict: Verdict) -> Result<Verdict, ChargeError> {
    match verdict.refused_by().map(Report::never_fits) {
        None => Ok(verdict),
        Some(true) => Err(ChargeError::Never(Box::new(verdict))),
        Some(false) => Err(ChargeError::Refused(Box::new(verdict))),
    }
}
