//! What a quota layer was told to do, and what that comes to for one request.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Response;
use http::request::Parts;
use tower_quota_core::{
    Asked, AskedToReserve, ChargeError, Cost, CountedBy, Key, Meter, PendingCharge, PendingReservation, Reservation,
    Verdict,
};

use super::meter::{self, RequestMeter};
use crate::answer::{Refusal, Refusals};
use crate::limit_fields::{Fields, Told};
use crate::rejection::{LayerId, Rejection};

type CostOf = Arc<dyn Fn(&Parts) -> Cost + Send + Sync>;
type When = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;
type RequestId = Arc<dyn Fn(&Parts) -> Option<Key> + Send + Sync>;
type RefundWhen = Arc<dyn Fn(&http::response::Parts) -> bool + Send + Sync>;

/// What a quota layer was told to do.
#[derive(Clone)]
pub(super) struct Rules {
    id: LayerId,
    pub(super) meter: Meter<Parts>,
    pub(super) charged: Charged,
    pub(super) skip: Option<When>,
    pub(super) request_id: Option<RequestId>,
    pub(super) refund_when: Option<RefundWhen>,
    pub(super) patience: Duration,
    pub(super) fields: Option<Arc<Fields>>,
    pub(super) refusals: Refusals,
}

/// Who charges.
#[derive(Clone)]
pub(super) enum Charged {
    /// The layer, by a cost read from the request's head; `None` is 1.
    ByLayer(Option<CostOf>),
    ByHandler,
}

/// What becomes of a request.
pub(super) enum Begun {
    /// It goes on.
    Admitted(Option<Kept>),
    /// It goes on, with a meter in its extensions that its handler charges with.
    Metered(meter::Charged),
    /// It waits for the store.
    Waiting(Pending),
    Refused(Rejection),
}

/// A charge that was made.
#[expect(clippy::large_enum_variant, reason = "it is moved once, to where less is kept of it")]
pub(super) enum Admitted {
    Charged(Verdict),
    /// It may be given back.
    Reserved(Reservation),
}

/// What the answer to an admitted request needs of its charge; mostly nothing.
pub(super) enum Kept {
    Told(Box<Told>),
    Reserved(Box<Reservation>),
    /// Not the store has counted it.
    Elsewhere(CountedBy, Option<Box<Told>>),
}

/// A charge on its way to the store.
pub(super) enum Pending {
    Charge(PendingCharge),
    Reservation(PendingReservation),
}

impl Future for Pending {
    type Output = Result<Admitted, ChargeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Charge(charge) => Pin::new(charge).poll(cx).map_ok(Admitted::Charged),
            Self::Reservation(reservation) => Pin::new(reservation).poll(cx).map_ok(Admitted::Reserved),
        }
    }
}

impl Rules {
    pub(super) fn new(meter: Meter<Parts>) -> Self {
        Self {
            id: LayerId::next(),
            meter,
            charged: Charged::ByLayer(None),
            skip: None,
            request_id: None,
            refund_when: None,
            patience: Duration::ZERO,
            fields: None,
            refusals: Refusals::default(),
        }
    }

    /// Other rules, made of these.
    pub(super) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self.id = LayerId::next();
        self
    }

    /// Reads the request's head, and charges if it is the layer that does.
    pub(super) fn begin(&self, parts: &mut Parts) -> Begun {
        let begun = self.refusals.guard(|| {
            let skipped = self.skip.as_ref().is_some_and(|skip| skip(parts));
            let cost = match &self.charged {
                Charged::ByHandler => return self.hand_over(parts, skipped),
                Charged::ByLayer(_) if skipped => return Begun::Admitted(None),
                Charged::ByLayer(cost) => cost,
            };
            let is_plain = self.request_id.is_none() && self.refund_when.is_none() && self.patience.is_zero();
            match cost {
                // Each way for itself: what all of them could go by would have to be put together first.
                None if is_plain => self.begun(self.meter.ask(parts, 1_u64)),
                Some(cost) if is_plain => self.begun(self.meter.ask(parts, cost(parts))),
                None => self.charge(parts, Cost::units(1)),
                Some(cost) => self.charge(parts, cost(parts)),
            }
        });
        begun.unwrap_or_else(Begun::Refused)
    }

    #[inline(always)]
    fn begun(&self, asked: Asked) -> Begun {
        match asked {
            // Looked at where it is: it is large.
            Asked::Answered(Ok(ref verdict)) => Begun::Admitted(self.kept_of(verdict)),
            Asked::Answered(Err(error)) => Begun::Refused(self.rejection(error)),
            Asked::Waiting(pending) => Begun::Waiting(Pending::Charge(pending)),
        }
    }

    /// Charges as the layer was told to.
    fn charge(&self, parts: &Parts, cost: Cost) -> Begun {
        let id = self.request_id.as_ref().and_then(|request_id| request_id(parts));
        if id.is_none() && self.refund_when.is_some() {
            return self.reserve(parts, cost);
        }
        let charge = self.meter.charge(parts, cost).wait_up_to(self.patience);
        self.begun(match id {
            Some(id) => charge.request_id(id.as_bytes()).ask(),
            None => charge.ask(),
        })
    }

    /// Charges so that the charge can be given back.
    fn reserve(&self, parts: &Parts, cost: Cost) -> Begun {
        match self.meter.reserve(parts, cost).wait_up_to(self.patience).ask() {
            AskedToReserve::Answered(Ok(reserved)) => Begun::Admitted(self.keep(Admitted::Reserved(reserved))),
            AskedToReserve::Answered(Err(error)) => Begun::Refused(self.rejection(error)),
            AskedToReserve::Waiting(pending) => Begun::Waiting(Pending::Reservation(pending)),
        }
    }

    /// What the answer to an admitted request needs of its charge.
    pub(super) fn keep(&self, admitted: Admitted) -> Option<Kept> {
        match admitted {
            Admitted::Charged(verdict) => self.kept_of(&verdict),
            Admitted::Reserved(reserved) => Some(Kept::Reserved(Box::new(reserved))),
        }
    }

    #[inline(always)]
    fn kept_of(&self, verdict: &Verdict) -> Option<Kept> {
        let told = self.told_of(verdict);
        match verdict.counted_by() {
            CountedBy::Store => told.map(Kept::Told),
            by => Some(Kept::Elsewhere(by, told)),
        }
    }

    /// Gives a charge back if the answer to its request is one for which that is wanted.
    pub(super) fn refund<B>(&self, reserved: &Reservation, response: Response<B>) -> Response<B> {
        let Some(refund_when) = &self.refund_when else { return response };
        let (head, body) = response.into_parts();
        if self.refusals.guard(|| refund_when(&head)).unwrap_or(false) {
            reserved.cancel_soon();
        }
        Response::from_parts(head, body)
    }

    /// Leaves a meter for the handler; one that counts nothing for a request that is skipped.
    fn hand_over(&self, parts: &mut Parts, skipped: bool) -> Begun {
        let meter = if skipped { Ok(self.meter.of_nobody()) } else { self.meter.of(parts) };
        let charged = meter::Charged::default();
        let meter = match meter {
            Ok(meter) => RequestMeter::new(meter, self.id, Arc::clone(&charged)),
            Err(error) => return Begun::Refused(self.rejection(error)),
        };
        if parts.extensions.insert(meter).is_some() {
            self.refusals.mistakes().at_most_each_second(|held_back| {
                tracing::error!(
                    target: "tower_quota::config",
                    held_back,
                    "two layers around one handler are charged_by_handler: the outer one charges nothing"
                );
            });
        }
        Begun::Metered(charged)
    }

    pub(super) fn rejection(&self, error: ChargeError) -> Rejection {
        if let ChargeError::ForeignAxis { .. } = error {
            self.refusals.mistakes().at_most_each_second(|held_back| {
                tracing::error!(target: "tower_quota::config", %error, held_back, "a charge that cannot be made");
            });
        }
        Rejection::new(error, self.id)
    }

    /// Whether a request may wait for longer than it takes to ask the store.
    pub(super) fn may_wait(&self) -> bool {
        !self.patience.is_zero()
    }

    /// What a rejection is answered.
    pub(super) fn refuse(&self, rejection: &Rejection, parts: &Parts) -> Response<Refusal> {
        let mut response = self.refusals.answer(rejection, parts);
        if let Some(told) = rejection.verdict().and_then(|verdict| self.told_of(verdict)) {
            told.tell(&mut response);
        }
        response
    }

    /// What is told of the limits, if that is wanted.
    #[inline]
    pub(super) fn told_of(&self, verdict: &Verdict) -> Option<Box<Told>> {
        self.fields.as_ref()?.told_of(verdict)
    }

    /// Whether an answer of the handler is to be replaced: the handler may return a rejection of this layer's meter.
    pub(super) fn replaces_answers(&self) -> bool {
        self.refusals.are_replaced() && matches!(self.charged, Charged::ByHandler)
    }

    /// The rejection of this layer's meter that a response was made of.
    pub(super) fn own_rejection<B>(&self, response: &Response<B>) -> Option<Rejection> {
        Rejection::of(response).filter(|rejection| rejection.is_by(self.id)).cloned()
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id: _, meter, charged, skip, request_id, refund_when, patience, fields, refusals } = self;
        f.debug_struct("Rules")
            .field("meter", meter)
            .field("charged_by_handler", &matches!(charged, Charged::ByHandler))
            .field("skips", &skip.is_some())
            .field("has_request_ids", &request_id.is_some())
            .field("refunds", &refund_when.is_some())
            .field("patience", patience)
            .field("fields", &fields.as_ref().map(|fields| fields.kind()))
            .field("refusals", refusals)
            .finish_non_exhaustive()
    }
}
