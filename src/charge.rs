//! One charge: options, question and answer.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::charge_error::ChargeError;
use crate::cost::Cost;
use crate::panel::Panel;
use crate::seen::Seen;
use crate::store::{Answer, PendingAnswer};
use crate::verdict::Verdict;

/// A charge on every axis of a meter, made when it is awaited.
///
/// Awaited, it gives the verdict of an admitted charge; everything else is a [`ChargeError`].
#[must_use = "nothing is charged before a charge is awaited"]
#[derive(Clone, Debug)]
pub struct Charge<'m> {
    panel: &'m Arc<Panel>,
    seen: Result<Seen, ChargeError>,
    cost: Cost,
}

impl<'m> Charge<'m> {
    pub(crate) fn new(panel: &'m Arc<Panel>, seen: Result<Seen, ChargeError>, cost: Cost) -> Self {
        Self { panel, seen, cost }
    }

    /// Makes the charge, and tells its outcome at once if that takes no I/O.
    pub(crate) fn ask(&self) -> Asked {
        match self.answer() {
            Ok(Answer::Ready(answer)) => Asked::Answered(self.panel.outcome(answer)),
            Ok(Answer::Pending(answer)) => Asked::Waiting(PendingCharge { panel: Arc::clone(self.panel), answer }),
            Err(error) => Asked::Answered(Err(error)),
        }
    }

    /// What the store says.
    pub(crate) fn answer(&self) -> Result<Answer<Verdict>, ChargeError> {
        if let Some(foreign) = self.cost.foreign_axis(|axis| self.panel.has(axis)) {
            return Err(ChargeError::ForeignAxis { axis: foreign.axis });
        }
        let seen = self.seen.as_ref().map_err(Clone::clone)?;
        Ok(self.panel.ledger().decide(&self.panel.question(seen, &self.cost)))
    }
}

impl<'m> IntoFuture for Charge<'m> {
    type Output = Result<Verdict, ChargeError>;
    type IntoFuture = ChargeFuture<'m>;

    fn into_future(self) -> ChargeFuture<'m> {
        ChargeFuture(Progress::Unasked(self))
    }
}

/// What became of a charge so far; made by [`Meter::ask`](crate::Meter::ask).
#[derive(Debug)]
pub enum Asked {
    /// Its outcome.
    Answered(Result<Verdict, ChargeError>),
    /// Its outcome, once the store has answered.
    Waiting(PendingCharge),
}

impl Asked {
    /// The outcome, if it is there: always, with a store that needs no I/O.
    pub fn answered(self) -> Option<Result<Verdict, ChargeError>> {
        match self {
            Self::Answered(outcome) => Some(outcome),
            Self::Waiting(_) => None,
        }
    }
}

/// A charge on its way to the store. Dropped, it may or may not have been made.
#[must_use = "futures do nothing unless polled"]
pub struct PendingCharge {
    panel: Arc<Panel>,
    answer: PendingAnswer<Verdict>,
}

impl Future for PendingCharge {
    type Output = Result<Verdict, ChargeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(self.answer.as_mut().poll(cx));
        Poll::Ready(self.panel.outcome(answer))
    }
}

impl fmt::Debug for PendingCharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { panel, answer: _ } = self;
        f.debug_struct("PendingCharge").field("panel", panel).finish_non_exhaustive()
    }
}

/// What awaiting a [`Charge`] does: it is made when this is first polled.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct ChargeFuture<'m>(Progress<'m>);

#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for every charge")]
#[derive(Debug)]
enum Progress<'m> {
    Unasked(Charge<'m>),
    Waiting(PendingCharge),
    Done,
}

impl Future for ChargeFuture<'_> {
    type Output = Result<Verdict, ChargeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Progress::Unasked(charge) = &self.0 {
            match charge.ask() {
                Asked::Answered(outcome) => {
                    self.0 = Progress::Done;
                    return Poll::Ready(outcome);
                }
                Asked::Waiting(pending) => self.0 = Progress::Waiting(pending),
            }
        }
        let Progress::Waiting(pending) = &mut self.0 else {
            panic!("a future is not polled after it is ready");
        };
        let outcome = ready!(Pin::new(pending).poll(cx));
        self.0 = Progress::Done;
        Poll::Ready(outcome)
    }
}
