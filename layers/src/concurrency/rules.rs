//! What a concurrency layer was told to do, and what that comes to for one request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::UPGRADE;
use http::request::Parts;
use http::{Method, Request, Response};

use super::gate::{Entry, Gate};
use super::place::Place;
use crate::answer::{Refusal, Refusals};
use crate::counts;
use crate::key::RequiredKey;
use crate::rejection::{Reason, Rejection};

type Weight = Arc<dyn Fn(&Parts) -> usize + Send + Sync>;

/// What a concurrency layer was told to do.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) gate: Arc<Gate>,
    pub(super) key: Option<RequiredKey>,
    pub(super) weight: Option<Weight>,
    pub(super) max_queue: usize,
    pub(super) max_wait: Duration,
    pub(super) retry_after: Duration,
    pub(super) releases_at_head: bool,
    pub(super) max_hold: Option<Duration>,
    pub(super) refusals: Refusals,
}

impl Rules {
    /// What a layer does unless it is told otherwise.
    pub(super) fn new(gate: Gate, key: Option<RequiredKey>) -> Self {
        Self {
            gate: Arc::new(gate),
            key,
            weight: None,
            max_queue: 1_024,
            max_wait: Duration::ZERO,
            retry_after: Duration::from_secs(1),
            releases_at_head: false,
            max_hold: None,
            refusals: Refusals::default(),
        }
    }

    /// The place of a request whose head does not matter; `None` if it does.
    #[inline]
    pub(super) fn place_of_anybody(&self) -> Option<Place> {
        (self.key.is_none() && self.weight.is_none()).then(|| Place::new(None, 1))
    }

    /// The place of a request.
    pub(super) fn place(&self, parts: &Parts) -> Result<Place, Rejection> {
        let (key, weight) = self.refusals.guard(|| {
            let key = self.key.as_ref().map(|key| key.read(parts));
            (key, self.weight.as_ref().map_or(1, |weight| weight(parts)))
        })?;
        let key = key.map(Rejection::unless_found).transpose()?;
        Ok(Place::new(key.map(Box::new), weight))
    }

    /// Asks for a place.
    #[inline]
    pub(super) fn ask_for(&self, place: &Place) -> Entry {
        place.ask(&self.gate, if self.max_wait.is_zero() { 0 } else { self.max_queue })
    }

    /// There is no place for a request, and none to wait in, or not for as long.
    pub(super) fn busy(&self) -> Rejection {
        counts::busy();
        Rejection::plain(Reason::Busy).after(self.retry_after)
    }

    /// What a rejection is answered.
    pub(super) fn refuse(&self, rejection: &Rejection, parts: &Parts) -> Response<Refusal> {
        self.refusals.answer(rejection, parts)
    }
}

/// Whether a request asks to go on as something else on its connection.
pub(super) fn asks_for_upgrade<B>(request: &Request<B>) -> bool {
    // The names of most requests are compared sooner than one is hashed.
    matches!(*request.method(), Method::CONNECT) || request.headers().keys().any(|name| *name == UPGRADE)
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gate, key, weight, max_queue, max_wait, retry_after, releases_at_head, max_hold, refusals } = self;
        f.debug_struct("Rules")
            .field("limits", &gate.limits())
            .field("is_per_key", &key.is_some())
            .field("is_weighted", &weight.is_some())
            .field("max_queue", max_queue)
            .field("max_wait", max_wait)
            .field("retry_after", retry_after)
            .field("releases_at_head", releases_at_head)
            .field("max_hold", max_hold)
            .field("refusals", refusals)
            .finish()
    }
}
