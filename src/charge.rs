//! One charge: options, question and answer.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::charge_error::ChargeError;
use crate::cost::Cost;
use crate::key::Key;
use crate::panel::{Panel, Wanted};
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
    #[cfg(feature = "waiting")]
    patience: std::time::Duration,
}

impl<'m> Charge<'m> {
    pub(crate) fn new(panel: &'m Arc<Panel>, seen: Result<Seen, ChargeError>, cost: Cost) -> Self {
        Self {
            panel,
            seen,
            cost,
            request_id: None,
            #[cfg(feature = "waiting")]
            patience: std::time::Duration::ZERO,
        }
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

    /// Waits for up to so long until the charge fits, instead of being refused at once: not at all by default.
    ///
    /// It is made when it fits, never later than told, and refused at once when it would not fit in time; behind others,
    /// when its time is over. Of several that wait for one counter in this process the first to come goes first, and a
    /// later one that waits does not overtake it, be it smaller; one that does not wait may. While it waits it holds
    /// nothing, and sleeps until the time that the store has told, by the store's clock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_quota_core::{ChargeError, Group, Key, MemoryStore, Meter};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let gmail = Group::new("gmail", MemoryStore::new())?;
    /// let user = gmail.per_key("user", "bucket 5 50/s").build()?;
    /// let meter = Meter::new(user.by(|mailbox: &str| Key::from(mailbox)));
    /// for _message in 0..8 {
    ///     // Five at once, and then one in each 20 milliseconds.
    ///     meter.charge("alice@example.org", 1).wait_up_to(Duration::from_secs(1)).await?;
    /// }
    /// // What would take longer is refused at once.
    /// let outcome = meter.charge("alice@example.org", 5).wait_up_to(Duration::from_millis(1)).await;
    /// assert!(matches!(outcome, Err(ChargeError::Refused(_))));
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "waiting")]
    pub fn wait_up_to(mut self, time: std::time::Duration) -> Self {
        self.patience = time;
        self
    }

    /// Makes the charge, and tells its outcome at once if that takes no I/O.
    pub fn ask(&self) -> Asked {
        #[cfg(feature = "waiting")]
        if let Some(waiting) = self.waiting() {
            // Most charges fit at once, and a store in memory tells so without a detour.
            let ledger = self.panel.ledger();
            if ledger.memory().is_some()
                && ledger.lines.are_empty()
                && let Ok(Answer::Ready(answer)) = self.answer()
            {
                let outcome = self.panel.outcome_so_far(answer, self.wanted());
                if !matches!(outcome, Err(ChargeError::Refused(_))) {
                    return Asked::Answered(self.panel.last_outcome(outcome));
                }
            }
            return Asked::Waiting(PendingCharge(Pending::InLine(Box::pin(waiting.charge()))));
        }
        self.ask_once()
    }

    /// The charge as one that may wait, if it may and something may have to be waited for.
    #[cfg(feature = "waiting")]
    fn waiting(&self) -> Option<crate::waiting::Waiting> {
        if self.patience.is_zero() || self.is_foreign().is_some() {
            return None;
        }
        Some(crate::waiting::Waiting {
            panel: Arc::clone(self.panel),
            seen: self.seen.as_ref().ok()?.clone(),
            cost: self.cost.clone(),
            request_id: self.request_id.clone(),
            patience: self.patience,
        })
    }

    fn ask_once(&self) -> Asked {
        match self.answer() {
            Ok(Answer::Ready(answer)) => Asked::Answered(self.panel.outcome(answer, self.wanted())),
            Ok(Answer::Pending(answer)) => {
                let kept = self.wanted().filter(|_| self.panel.decides_by_share()).map(Kept::of).map(Box::new);
                let panel = Arc::clone(self.panel);
                Asked::Waiting(PendingCharge(Pending::Store { panel, kept, answer }))
            }
            Err(error) => Asked::Answered(Err(error)),
        }
    }

    /// What the store says.
    pub(crate) fn answer(&self) -> Result<Answer<Verdict>, ChargeError> {
        if let Some(foreign) = self.is_foreign() {
            return Err(foreign);
        }
        let seen = self.seen.as_ref().map_err(Clone::clone)?;
        Ok(self.panel.decide(self.wanted_of(seen)))
    }

    /// What is asked, if the subject could be read.
    fn wanted(&self) -> Option<Wanted<'_>> {
        self.seen.as_ref().ok().map(|seen| self.wanted_of(seen))
    }

    fn wanted_of<'a>(&'a self, seen: &'a Seen) -> Wanted<'a> {
        Wanted { seen, cost: &self.cost, request_id: self.request_id.as_ref(), call: 0 }
    }

    /// The error of a cost that names an axis which is no part of the decision.
    fn is_foreign(&self) -> Option<ChargeError> {
        self.panel.knows(&self.cost).err()
    }

    /// What is charged, and where, if the subject could be read.
    pub(crate) fn asked(&self) -> Option<(&'m Arc<Panel>, &Seen, &Cost)> {
        Some((self.panel, self.seen.as_ref().ok()?, &self.cost))
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
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for every charge")]
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

/// A charge on its way to the store, or waiting for its time. Dropped, it may or may not have been made.
#[must_use = "futures do nothing unless polled"]
pub struct PendingCharge(Pending);

enum Pending {
    Store {
        panel: Arc<Panel>,
        kept: Option<Box<Kept>>,
        answer: PendingAnswer<Verdict>,
    },
    #[cfg(feature = "waiting")]
    InLine(Pin<Box<dyn Future<Output = Result<Verdict, ChargeError>> + Send>>),
}

/// A copy of what was asked, for a process that decides by itself what the store does not.
struct Kept {
    seen: Seen,
    cost: Cost,
    request_id: Option<Key>,
}

impl Kept {
    fn of(wanted: Wanted<'_>) -> Self {
        let Wanted { seen, cost, request_id, call: _ } = wanted;
        Self { seen: seen.clone(), cost: cost.clone(), request_id: request_id.cloned() }
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted { seen: &self.seen, cost: &self.cost, request_id: self.request_id.as_ref(), call: 0 }
    }
}

impl Future for PendingCharge {
    type Output = Result<Verdict, ChargeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Pending::Store { panel, kept, answer } => {
                let answer = ready!(answer.as_mut().poll(cx));
                Poll::Ready(panel.outcome(answer, kept.as_deref().map(Kept::wanted)))
            }
            #[cfg(feature = "waiting")]
            Pending::InLine(charge) => charge.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for PendingCharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = match &self.0 {
            Pending::Store { .. } => "Store",
            #[cfg(feature = "waiting")]
            Pending::InLine(_) => "InLine",
        };
        f.debug_tuple("PendingCharge").field(&pending).finish()
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
