//! A charge that can be corrected once it is known what it was worth.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use crate::charge::{Asked, Charge, ChargeFuture, PendingCharge};
use crate::charge_error::ChargeError;
use crate::cost::Cost;
use crate::panel::Panel;
use crate::seen::Seen;
use crate::settlement::Settlement;
#[cfg(feature = "waiting")]
use crate::store::StoreErrorKind;
use crate::store::{Answer, StoreError};
use crate::verdict::Verdict;

/// What was charged for an admitted request, to be settled by what it was worth. Dropped, it stands as it was charged.
///
/// The first [`settle`](Self::settle) or [`cancel`](Self::cancel) of all clones counts; later ones change nothing. Either is
/// sent to the store once: if its answer is lost, it is not known whether it was taken down, and nothing is given back
/// twice. One that provably was not ([`StoreError::did_nothing`](crate::StoreError::did_nothing)) may be tried again.
///
/// A refund goes where the charge was: into the window that was charged, and into a bucket as far as it has not refilled
/// since. What is gone by then takes nothing, so a refund never gives more than the charge took. What is worth more than
/// was charged is used up now, whether it fits or not: it is paid back first. A watermark that is passed so is told of with
/// the next charge. A counter that was reset in between may give back what was charged on it since.
///
/// ```
/// use tower_quota_core::{Group, Key, MINUTE, MemoryStore, Meter, Quota};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let models = Group::new("model", MemoryStore::new())?;
/// let tokens = models.per_key("tokens", Quota::token_bucket(12_000, 12_000, MINUTE)).build()?;
/// let meter = Meter::new(tokens.by(|user: &str| Key::from(user)));
///
/// let estimate = meter.reserve("alice", 2_000).await?;
/// // The answer took fewer tokens.
/// estimate.settle(850).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Reservation(Arc<Inner>);

struct Inner {
    claim: Claim,
    verdict: Verdict,
    is_settled: AtomicBool,
}

/// What a reservation is made of, beside the verdict.
#[derive(Clone, Debug)]
struct Claim {
    panel: Arc<Panel>,
    /// With the quotas that are charged by: later ones have counters of their own.
    seen: Seen,
    cost: Cost,
}

impl Reservation {
    fn new(claim: Option<Claim>, verdict: Verdict) -> Self {
        let claim = claim.expect("what is admitted was seen");
        Self(Arc::new(Inner { claim, verdict, is_settled: AtomicBool::new(false) }))
    }

    /// What the charge came to.
    pub fn verdict(&self) -> &Verdict {
        &self.0.verdict
    }

    /// Corrects the charge to what it was worth: less is given back, more is charged on top. The verdict tells where the
    /// counters stand then; it refuses nothing.
    ///
    /// # Errors
    ///
    /// [`ChargeError::ForeignAxis`] and [`ChargeError::Uncountable`], for mistakes in the program: then nothing is settled yet.
    /// [`ChargeError::Store`] if the store could not answer, whatever the failure policy is: then it may or may not have been
    /// taken down, unless the error [tells](crate::StoreError::did_nothing) that it was not.
    pub async fn settle(&self, worth: impl Into<Cost>) -> Result<Verdict, ChargeError> {
        match self.tell(&worth.into())? {
            Told::Settling(answer) => answer.wait().await.map_err(|error| self.unless_done(error)),
            Told::Looking(answer) => answer.wait().await,
        }
        .map_err(ChargeError::Store)
    }

    /// The error of the one settlement; it may be tried again if the store has done nothing.
    fn unless_done(&self, error: StoreError) -> StoreError {
        if error.did_nothing() {
            self.0.is_settled.store(false, Ordering::Release);
        }
        error
    }

    /// Gives the whole charge back.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    pub async fn cancel(&self) -> Result<Verdict, ChargeError> {
        self.settle(0_u64).await
    }

    /// Gives the whole charge back, without waiting for the store: at once in memory, on the current tokio runtime
    /// otherwise. A failure is logged, and the charge stays.
    #[cfg(feature = "waiting")]
    pub fn cancel_soon(&self) {
        if self.0.is_settled.load(Ordering::Acquire) {
            return;
        }
        match self.tell(&Cost::units(0)) {
            Ok(Told::Settling(Answer::Ready(Ok(_))) | Told::Looking(_)) | Err(_) => {}
            Ok(Told::Settling(Answer::Ready(Err(error)))) => self.stays_charged(error),
            Ok(Told::Settling(Answer::Pending(told))) => {
                let Ok(runtime) = tokio::runtime::Handle::try_current() else {
                    let error = StoreError::new(StoreErrorKind::Misconfigured);
                    return self.stays_charged(error.because("there is no tokio runtime to tell the store on"));
                };
                let reservation = self.clone();
                runtime.spawn(async move {
                    if let Err(error) = told.await {
                        reservation.stays_charged(error);
                    }
                });
            }
        }
    }

    #[cfg(feature = "waiting")]
    fn stays_charged(&self, error: StoreError) {
        self.0.claim.panel.ledger().note_unsettled(&self.unless_done(error));
    }

    fn tell(&self, worth: &Cost) -> Result<Told, ChargeError> {
        let Inner { claim: Claim { panel, seen, cost }, verdict, is_settled } = &*self.0;
        panel.knows(worth)?;
        if !verdict.was_counted() {
            return Ok(Told::Looking(Answer::Ready(Ok(verdict.clone()))));
        }
        let settlement = Settlement::new(panel.question(seen, cost), worth, verdict.decided_at_micros())
            .map_err(|axis| ChargeError::Uncountable { axis })?;
        if is_settled.swap(true, Ordering::AcqRel) {
            return Ok(Told::Looking(panel.look(seen, verdict.counted_by())));
        }
        Ok(Told::Settling(panel.settle(&settlement, verdict.counted_by())))
    }
}

/// What the store says.
enum Told {
    /// To the one settlement.
    Settling(Answer<Verdict>),
    /// To a look at the counters, since it is settled already.
    Looking(Answer<Verdict>),
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { claim, verdict, is_settled } = &*self.0;
        f.debug_struct("Reservation")
            .field("cost", &claim.cost)
            .field("verdict", verdict)
            .field("is_settled", is_settled)
            .finish_non_exhaustive()
    }
}

/// A charge that becomes a [`Reservation`], made when it is awaited: by [`Meter::reserve`](crate::Meter::reserve).
#[must_use = "nothing is charged before a charge is awaited"]
#[derive(Clone, Debug)]
pub struct Reserve<'m> {
    charge: Charge<'m>,
}

impl<'m> Reserve<'m> {
    pub(crate) fn new(charge: Charge<'m>) -> Self {
        Self { charge }
    }

    /// Waits for up to so long until the charge fits. See [`Charge::wait_up_to`].
    #[cfg(feature = "waiting")]
    pub fn wait_up_to(self, time: std::time::Duration) -> Self {
        Self { charge: self.charge.wait_up_to(time) }
    }

    /// Makes the charge, and tells its outcome at once if that takes no I/O.
    pub fn ask(&self) -> AskedToReserve {
        match self.charge.ask() {
            Asked::Answered(outcome) => {
                AskedToReserve::Answered(outcome.map(|verdict| Reservation::new(self.claim(), verdict)))
            }
            Asked::Waiting(charge) => {
                AskedToReserve::Waiting(PendingReservation { charge, claim: self.claim().map(Box::new) })
            }
        }
    }

    fn claim(&self) -> Option<Claim> {
        let (panel, seen, cost) = self.charge.asked()?;
        Some(Claim { panel: Arc::clone(panel), seen: seen.clone(), cost: cost.clone() })
    }
}

/// What became of a reservation so far; made by [`Reserve::ask`].
#[derive(Debug)]
pub enum AskedToReserve {
    /// Its outcome.
    Answered(Result<Reservation, ChargeError>),
    /// Its outcome, once the store has answered.
    Waiting(PendingReservation),
}

/// A reservation on its way to the store, or waiting for its time. Dropped, it may or may not have been charged.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct PendingReservation {
    charge: PendingCharge,
    claim: Option<Box<Claim>>,
}

impl Future for PendingReservation {
    type Output = Result<Reservation, ChargeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.charge).poll(cx));
        Poll::Ready(outcome.map(|verdict| Reservation::new(self.claim.take().map(|claim| *claim), verdict)))
    }
}

impl<'m> IntoFuture for Reserve<'m> {
    type Output = Result<Reservation, ChargeError>;
    type IntoFuture = ReserveFuture<'m>;

    fn into_future(self) -> ReserveFuture<'m> {
        ReserveFuture { claim: self.claim(), charge: self.charge.into_future() }
    }
}

/// What awaiting a [`Reserve`] does: it is made when this is first polled.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct ReserveFuture<'m> {
    charge: ChargeFuture<'m>,
    claim: Option<Claim>,
}

impl Future for ReserveFuture<'_> {
    type Output = Result<Reservation, ChargeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.charge).poll(cx));
        Poll::Ready(outcome.map(|verdict| Reservation::new(self.claim.take(), verdict)))
    }
}
