//! What a cooldown layer was told to do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use http::request::Parts;
use http::response::Parts as Answer;
use tower_quota_core::{Attempts, ChargeError, CooldownAxis};

use crate::answer::{Refusals, tell_who_counted};
use crate::gated::{Asking, Gate};
use crate::key::RequiredKey;
use crate::rejection::Rejection;
use crate::retry_after;

type Count = Arc<dyn Fn(&Parts) -> u64 + Send + Sync>;
type Failed = Arc<dyn Fn(&Answer) -> bool + Send + Sync>;

/// How an attempt ended, as a handler tells the [`CooldownLayer`](crate::CooldownLayer) around it: in the extensions of its
/// response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptOutcome {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
}

#[derive(Clone)]
pub(super) struct Rules {
    pub(super) axis: CooldownAxis,
    pub(super) key: RequiredKey,
    pub(super) attempts: Option<Count>,
    pub(super) failed_when: Option<Failed>,
    pub(super) patience: Duration,
    pub(super) rest_at_most: Duration,
    pub(super) refusals: Refusals,
}

impl Gate for Rules {
    type Pass = Attempts;
    type Refused = ChargeError;

    /// Counts the attempts of a request.
    fn ask(&self, parts: &Parts) -> Result<Asking<Self>, Rejection> {
        let (key, attempts) = self
            .refusals
            .guard(|| (self.key.read(parts), self.attempts.as_ref().map_or(1, |attempts| attempts(parts))))?;
        let key = Rejection::unless_found(key)?;
        Ok(self.axis.begin(&key, attempts).whole().wait_up_to(self.patience).into_future())
    }

    fn rejection(error: ChargeError) -> Rejection {
        Rejection::from(error)
    }

    /// The call has ended with this response.
    fn answered<B>(&self, mut attempts: Attempts, mut response: Response<B>) -> Response<B> {
        tell_who_counted(&mut response, attempts.counted_by());
        // What a layer further in has refused was not attempted, unless the handler tells of it.
        if Rejection::of(&response).is_some() && response.extensions().get::<AttemptOutcome>().is_none() {
            attempts.withdraw_when_dropped();
            return response;
        }
        let (head, body) = response.into_parts();
        if !self.has_failed(&head) {
            attempts.succeed_when_dropped();
        }
        if let Some(wait) = retry_after::of(head.status, &head.headers) {
            attempts.rest_at_least(wait.min(self.rest_at_most));
        }
        Response::from_parts(head, body)
    }

    fn may_wait(&self) -> bool {
        !self.patience.is_zero()
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}

impl Rules {
    fn has_failed(&self, head: &Answer) -> bool {
        if let Some(outcome) = head.extensions.get::<AttemptOutcome>() {
            return *outcome == AttemptOutcome::Failed;
        }
        let Some(failed_when) = &self.failed_when else {
            let is_grpc_error = head.headers.get("grpc-status").is_some_and(|status| status != "0");
            return head.status.is_client_error() || head.status.is_server_error() || is_grpc_error;
        };
        self.refusals.guard(|| failed_when(head)).unwrap_or(true)
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { axis, key, attempts, failed_when, patience, rest_at_most, refusals } = self;
        f.debug_struct("Rules")
            .field("axis", axis)
            .field("key", key)
            .field("counts_attempts", &attempts.is_some())
            .field("tells_failures", &failed_when.is_some())
            .field("patience", patience)
            .field("rest_at_most", rest_at_most)
            .field("refusals", refusals)
            .finish()
    }
}
