//! The answer that a refused request gets.

#[cfg(feature = "grpc")]
mod grpc;
mod http;
mod reason;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::http::{Response, StatusCode};
use tower_quota_core::{ChargeError, Key, KeyRead, Report, Verdict};

pub use self::reason::Reason;

/// How long to wait before asking a store again that could not answer.
const RETRY_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Why a request was turned away, and what it is answered. Cheap to clone.
///
/// A layer answers with it; a handler that charges by itself returns it (feature `axum`: it is a response; feature `grpc`:
/// it becomes a `tonic::Status`). Either way it stands in the extensions of the response, where an outer layer or an outbound caller [finds it](Self::of): so a refusal
/// of ours can be told from one of an upstream.
#[derive(Clone, Debug)]
pub struct Rejection(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    reason: Reason,
    axis: Option<&'static str>,
    verdict: Option<Verdict>,
    /// How long to wait, where no verdict tells.
    retry_after: Option<Duration>,
    /// The layer whose meter refused.
    layer: Option<LayerId>,
}

/// Which layer, among all of this process; clones that were set up alike are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayerId(u64);

impl LayerId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Rejection {
    pub(crate) fn new(error: ChargeError, layer: LayerId) -> Self {
        Self::of_charge(error, Some(layer))
    }

    fn of_charge(error: ChargeError, layer: Option<LayerId>) -> Self {
        let (reason, axis, verdict) = match error {
            ChargeError::Refused(verdict) => {
                let by = verdict.refused_by();
                let is_callers = by.is_some_and(Report::is_per_key);
                let reason = if is_callers { Reason::QuotaExceeded } else { Reason::CapacityExceeded };
                (reason, by.map(Report::axis), Some(*verdict))
            }
            ChargeError::Never(verdict) => {
                (Reason::CostExceedsLimit, verdict.refused_by().map(Report::axis), Some(*verdict))
            }
            ChargeError::MissingKey { axis } => (Reason::KeyMissing, Some(axis), None),
            ChargeError::MalformedKey { axis } => (Reason::KeyMalformed, Some(axis), None),
            ChargeError::Store(_) => (Reason::StoreFailed, None, None),
            _ => (Reason::Misconfigured, None, None),
        };
        let retry_after = (reason == Reason::StoreFailed).then_some(RETRY_AFTER_FAILURE);
        Self(Arc::new(Inner { reason, axis, verdict, retry_after, layer }))
    }

    /// A rejection that no decision was made for.
    pub(crate) fn plain(reason: Reason) -> Self {
        Self(Arc::new(Inner { reason, axis: None, verdict: None, retry_after: None, layer: None }))
    }

    /// This rejection, telling the caller to wait for so long.
    pub(crate) fn after(self, wait: Duration) -> Self {
        let Inner { reason, axis, .. } = *self.0;
        let verdict = self.0.verdict.clone();
        Self(Arc::new(Inner { reason, axis, verdict, retry_after: Some(wait), layer: self.0.layer }))
    }

    /// Something that the application hung into a layer does not work.
    pub(crate) fn misconfigured() -> Self {
        Self::plain(Reason::Misconfigured)
    }

    /// The key that was read, or why there is none.
    pub(crate) fn unless_found(read: KeyRead) -> Result<Key, Self> {
        match read {
            KeyRead::Found(key) => Ok(key),
            KeyRead::Missing => Err(Self::plain(Reason::KeyMissing)),
            _ => Err(Self::plain(Reason::KeyMalformed)),
        }
    }

    /// The rejection that a response was made of, if it was made of one.
    pub fn of<B>(response: &Response<B>) -> Option<&Self> {
        let of_http = response.extensions().get();
        #[cfg(feature = "grpc")]
        return of_http.or_else(|| grpc::of(response));
        #[cfg(not(feature = "grpc"))]
        of_http
    }

    /// Why the request was turned away.
    pub fn reason(&self) -> Reason {
        self.0.reason
    }

    /// The axis that gives the answer: the first that refuses, in the order judged.
    pub fn axis(&self) -> Option<&'static str> {
        self.0.axis
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        self.0.reason.status()
    }

    /// How long the caller is told to wait, in whole seconds, at least one: the longest wait of all axes that refuse,
    /// rounded up. `None` if no wait helps.
    pub fn retry_after(&self) -> Option<Duration> {
        let wait = self.wait()?;
        Some(Duration::from_secs(wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)))
    }

    /// The wait as it is known.
    fn wait(&self) -> Option<Duration> {
        match self.reason() {
            Reason::QuotaExceeded | Reason::CapacityExceeded => self.verdict().map(Verdict::wait),
            _ => self.0.retry_after,
        }
    }

    /// The axes that refuse.
    fn violated(&self) -> impl Iterator<Item = &Report> {
        self.verdict().into_iter().flat_map(Verdict::reports).filter(|report| !report.fits())
    }

    /// What the decision came to on each axis, if there was one.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.0.verdict.as_ref()
    }

    pub(crate) fn is_by(&self, layer: LayerId) -> bool {
        self.0.layer == Some(layer)
    }
}

/// For a handler that charges by a meter, or counts on a cooldown, of its own.
impl From<ChargeError> for Rejection {
    fn from(error: ChargeError) -> Self {
        Self::of_charge(error, None)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason().title())?;
        if let Some(axis) = self.axis() {
            write!(f, " (axis {axis})")?;
        }
        Ok(())
    }
}

impl Error for Rejection {}
