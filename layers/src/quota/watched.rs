//! What a layer does with the answer of a handler.

use std::sync::{Arc, PoisonError};

use http::Response;
use http::request::Parts;
use tower_quota_core::{Reservation, Verdict};

use super::meter;
use super::rules::{Rules, tell_who_counted};
use crate::answer::{AnswerBody, Refusal};

/// What there is to do with the answer of a handler. Large, and rare: in a box.
pub(super) struct Watched {
    rules: Arc<Rules>,
    told: Told,
    /// What may be given back.
    reserved: Option<Reservation>,
    /// The head of the request, if a rejection that answers it is replaced.
    replaced: Option<Parts>,
}

/// What is told of in the response.
#[expect(clippy::large_enum_variant, reason = "what it stands in is in a box")]
enum Told {
    Verdict(Verdict),
    /// Whatever the handler has charged by then.
    ByHandler(meter::Charged),
}

impl Watched {
    /// The limits are told, and the charge may be given back.
    pub(super) fn telling(rules: &Arc<Rules>, verdict: Verdict, reserved: Option<Reservation>) -> Box<Self> {
        Box::new(Self { rules: Arc::clone(rules), told: Told::Verdict(verdict), reserved, replaced: None })
    }

    /// The handler charges by itself.
    pub(super) fn charging(rules: &Arc<Rules>, charged: meter::Charged, replaced: Option<Parts>) -> Box<Self> {
        Box::new(Self { rules: Arc::clone(rules), told: Told::ByHandler(charged), reserved: None, replaced })
    }

    /// Gives the charge back, if that is wanted for this answer.
    pub(super) fn refund<B>(&self, response: Response<B>) -> Response<B> {
        match &self.reserved {
            Some(reserved) => self.rules.refund(reserved, response),
            None => response,
        }
    }

    /// What replaces the answer of a handler that returned the rejection of its own charge.
    pub(super) fn replaced<B>(&self, response: &Response<B>) -> Option<Response<Refusal>> {
        let parts = self.replaced.as_ref()?;
        let rejection = self.rules.own_rejection(response)?;
        Some(self.rules.refuse(&rejection, parts))
    }

    /// Tells in the response what the charge came to.
    pub(super) fn tell<B>(&self, response: &mut Response<AnswerBody<B>>) {
        match &self.told {
            Told::Verdict(verdict) => self.rules.tell_limits(response, verdict),
            Told::ByHandler(charged) => {
                if let Some(verdict) = &*charged.lock().unwrap_or_else(PoisonError::into_inner) {
                    tell_who_counted(response, verdict.counted_by());
                    self.rules.tell_limits(response, verdict);
                }
            }
        }
    }
}
