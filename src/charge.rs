//! One charge: options, question and answer.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::charge_error::ChargeError;
use crate::cost::Cost;
use crate::key::Key;
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
    request_id: Option<Key>,
}

impl<'m> Charge<'m> {
    pub(crate) fn new(panel: &'m Arc<Panel>, seen: Result<Seen, ChargeError>, cost: Cost) -> Self {
        Self { panel, seen, cost, request_id: None }
    }

    /// Calls the request by an id, so that it is never charged twice: a store that has charged this very cost on these
    /// counters for this id gives the same verdict again, and changes nothing.
    ///
    /// A store remembers an admitted charge for a stated time, a minute unless it is told otherwise. A refusal is not
    /// remembered, since it has charged nothing. With an id, a store that is asked over a network may ask once more when
    /// it did not hear the answer; without one, an unknown outcome is left to the failure policy.
    ///
    /// The id is the service's own, or that of a caller who is trusted: whoever chooses ids can repeat one, and so do
    /// again for nothing what was paid for once.
    pub fn request_id(mut self, id: impl AsRef<[u8]>) -> Self {
        self.request_id = Some(Key::new(id));
        self
    }

    /// Makes the charge, and tells its outcome at once if that takes no I/O.
    pub fn ask(&self) -> Asked {
        match self.answer() {
            Ok(Answer::Ready(answer)) => {
                let asked = self.seen.as_ref().ok().map(|seen| (seen, &self.cost));
                Asked::Answered(self.panel.outcome(answer, asked))
            }
            Ok(Answer::Pending(answer)) => {
                let asked = self.seen.as_ref().ok().and_then(|seen| self.panel.keep(seen, &self.cost));
                Asked::Waiting(PendingCharge { panel: Arc::clone(self.panel), asked, answer })
            }
            Err(error) => Asked::Answered(Err(error)),
        }
    }

    /// What the store says.
    pub(crate) fn answer(&self) -> Result<Answer<Verdict>, ChargeError> {
        if let Some(foreign) = self.cost.foreign_axis(|axis| self.panel.has(axis)) {
            return Err(ChargeError::ForeignAxis { axis: foreign.axis });
        }
        let seen = self.seen.as_ref().map_err(Clone::clone)?;
        let question = self.panel.question(seen, &self.cost).of_request(self.request_id.as_ref());
        Ok(self.panel.ledger().decide(&question))
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
    asked: Option<Box<(Seen, Cost)>>,
    answer: PendingAnswer<Verdict>,
}

impl Future for PendingCharge {
    type Output = Result<Verdict, ChargeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(self.answer.as_mut().poll(cx));
        let asked = self.asked.as_deref().map(|(seen, cost)| (seen, cost));
        Poll::Ready(self.panel.outcome(answer, asked))
    }
}

impl fmt::Debug for PendingCharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { panel, asked: _, answer: _ } = self;
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
