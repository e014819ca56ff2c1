//! What a backoff layer was told to do.

use std::fmt;
use std::time::Duration;

use http::request::Parts;
use http::{Response, StatusCode};
use tower_quota_core::{BackoffAxis, Key, Paused};

use crate::answer::Refusals;
use crate::gated::{Asking, Gate};
use crate::key::RequiredKey;
use crate::rejection::{Reason, Rejection};
use crate::retry_after;

#[derive(Clone)]
pub(super) struct Rules {
    pub(super) axis: BackoffAxis,
    pub(super) key: RequiredKey,
    pub(super) patience: Duration,
    /// How long to pause after a 429 that does not say.
    pub(super) otherwise: Duration,
    pub(super) refusals: Refusals,
}

impl Gate for Rules {
    /// The key to pause if the upstream asks for it.
    type Pass = Key;
    type Refused = Paused;

    fn ask(&self, parts: &Parts) -> Result<Asking<Self>, Rejection> {
        let key = Rejection::unless_found(self.refusals.guard(|| self.key.read(parts))?)?;
        let (axis, patience) = (self.axis.clone(), self.patience);
        Ok(Box::pin(async move { axis.wait(&key, patience).await.map(|()| key) }))
    }

    fn rejection(paused: Paused) -> Rejection {
        match paused {
            Paused::Unknown(error) => Rejection::from(error),
            Paused::For(time) => Rejection::plain(Reason::UpstreamPaused).after(time),
            _ => Rejection::misconfigured(),
        }
    }

    fn answered<B>(&self, key: Key, response: Response<B>) -> Response<B> {
        // A refusal by a layer further in is not the upstream's, which was not asked.
        if Rejection::of(&response).is_some() {
            return response;
        }
        let asked = retry_after::of(response.status(), response.headers());
        let too_many = response.status() == StatusCode::TOO_MANY_REQUESTS;
        if let Some(time) = asked.or_else(|| too_many.then_some(self.otherwise)) {
            self.axis.pause_soon(&key, time);
        }
        response
    }

    fn may_wait(&self) -> bool {
        !self.patience.is_zero()
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { axis, key, patience, otherwise, refusals } = self;
        f.debug_struct("Rules")
            .field("axis", axis)
            .field("key", key)
            .field("patience", patience)
            .field("otherwise", otherwise)
            .field("refusals", refusals)
            .finish()
    }
}
