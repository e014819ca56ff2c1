//! What a layer does with the answer of a handler.

use std::sync::{Arc, PoisonError};

use http::Response;
use http::request::Parts;

use super::meter;
use super::rules::{Admitted, Rules, tell_who_counted};
use crate::answer::{AnswerBody, Refusal};

/// What there is to do with the answer of a handler.
pub(super) struct Watched {
    rules: Arc<Rules>,
    charged: Charged,
}

/// Who has charged.
enum Charged {
    ByLayer(Box<Admitted>),
    ByHandler {
        /// Whatever it has charged by then.
        charged: meter::Charged,
        /// The head of the request, if a rejection that answers it is replaced.
        replaced: Option<Box<Parts>>,
    },
}

impl Watched {
    /// The limits are told, or the charge may be given back.
    pub(super) fn charged(rules: &Arc<Rules>, admitted: Box<Admitted>) -> Self {
        Self { rules: Arc::clone(rules), charged: Charged::ByLayer(admitted) }
    }

    /// The handler charges by itself.
    pub(super) fn charged_by_handler(rules: &Arc<Rules>, charged: meter::Charged, replaced: Option<Parts>) -> Self {
        let replaced = replaced.map(Box::new);
        Self { rules: Arc::clone(rules), charged: Charged::ByHandler { charged, replaced } }
    }

    /// Gives the charge back, if that is wanted for this answer.
    pub(super) fn refund<B>(&self, response: Response<B>) -> Response<B> {
        if let Charged::ByLayer(admitted) = &self.charged
            && let Admitted::Reserved(reserved) = &**admitted
        {
            return self.rules.refund(reserved, response);
        }
        response
    }

    /// What replaces the answer of a handler that returned the rejection of its own charge.
    pub(super) fn replaced<B>(&self, response: &Response<B>) -> Option<Response<Refusal>> {
        let Charged::ByHandler { replaced: Some(parts), .. } = &self.charged else { return None };
        let rejection = self.rules.own_rejection(response)?;
        Some(self.rules.refuse(&rejection, parts))
    }

    /// Tells in the response what the charge came to.
    pub(super) fn tell<B>(&self, response: &mut Response<AnswerBody<B>>) {
        match &self.charged {
            Charged::ByLayer(admitted) => self.rules.tell_limits(response, admitted.verdict()),
            Charged::ByHandler { charged, .. } => {
                if let Some(verdict) = &*charged.lock().unwrap_or_else(PoisonError::into_inner) {
                    tell_who_counted(response, verdict.counted_by());
                    self.rules.tell_limits(response, verdict);
                }
            }
        }
    }
}
