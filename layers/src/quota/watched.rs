//! What a layer does with the answer of a handler.

use std::sync::{Arc, PoisonError};

use http::Response;
use http::request::Parts;
use tower_quota_core::{CountedBy, Reservation};

use super::meter;
use super::rules::{Kept, Rules};
use crate::answer::{AnswerBody, tell_who_counted};
use crate::limit_fields::Told;

/// What there is to do with the answer of a handler.
pub(super) enum Watched {
    /// It tells of the limits.
    Told(Box<Told>),
    /// It tells that not the store has counted.
    Elsewhere(CountedBy, Option<Box<Told>>),
    /// The charge may be given back.
    Reserved { rules: Arc<Rules>, reserved: Box<Reservation> },
    /// The handler charges by itself.
    ByHandler {
        rules: Arc<Rules>,
        /// Whatever it has charged by then.
        charged: meter::Charged,
        /// The head of the request, if a rejection that answers it is replaced.
        replaced: Option<Box<Parts>>,
    },
}

impl Watched {
    #[inline]
    pub(super) fn kept(rules: &Arc<Rules>, kept: Kept) -> Self {
        match kept {
            Kept::Told(told) => Self::Told(told),
            Kept::Elsewhere(by, told) => Self::Elsewhere(by, told),
            Kept::Reserved(reserved) => Self::Reserved { rules: Arc::clone(rules), reserved },
        }
    }

    /// What becomes of a handler's answer.
    pub(super) fn answer<B>(self, response: Response<B>) -> Response<AnswerBody<B>> {
        let (by, told, mut response) = match self {
            Self::Told(told) => (CountedBy::Store, Some(told), response),
            Self::Elsewhere(by, told) => (by, told, response),
            Self::Reserved { rules, reserved } => {
                let verdict = reserved.verdict();
                (verdict.counted_by(), rules.told_of(verdict), rules.refund(&reserved, response))
            }
            Self::ByHandler { rules, charged, replaced } => {
                return answer_of_handler(&rules, &charged, replaced, response);
            }
        };
        tell_who_counted(&mut response, by);
        if let Some(told) = told {
            told.tell(&mut response);
        }
        response.map(AnswerBody::inner)
    }
}

fn answer_of_handler<B>(
    rules: &Rules,
    charged: &meter::Charged,
    replaced: Option<Box<Parts>>,
    mut response: Response<B>,
) -> Response<AnswerBody<B>> {
    // A handler may return the rejection of its own charge. What replaces it tells by itself.
    if let Some(parts) = replaced
        && let Some(rejection) = rules.own_rejection(&response)
    {
        return rules.refuse(&rejection, &parts).map(AnswerBody::refusal);
    }
    if let Some(verdict) = &*charged.lock().unwrap_or_else(PoisonError::into_inner) {
        tell_who_counted(&mut response, verdict.counted_by());
        if let Some(told) = rules.told_of(verdict) {
            told.tell(&mut response);
        }
    }
    response.map(AnswerBody::inner)
}
