//! What a store is asked, and what it answers.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::call_end::CallEnd;
use crate::question::Question;
use crate::settlement::Settlement;
use crate::verdict::Verdict;

/// Counts what was charged, and decides whether more fits.
///
/// A store judges all demands of a question at one reading of its clock, and charges all of them or none. It reports
/// each demand with [`Report::new`](crate::Report::new), in the order asked.
///
/// Any store can count quotas, settle charges and remember requests. Episodes of a [`Watermark`](crate::Watermark), and
/// attempts and failures of a `Cooldown`, are kept by the stores of this crate alone, and by what wraps them: over another
/// one an axis with a watermark alerts nobody, and a question about [attempts](crate::Algorithm::Attempts) or
/// [failures](crate::Algorithm::Failures) is to be answered with [`Misconfigured`](StoreErrorKind::Misconfigured).
pub trait Store: Send + Sync + 'static {
    /// Judges all demands of the question in one atomic step: charges every one if all fit, and changes nothing if any
    /// does not.
    fn decide(&self, question: &Question<'_>) -> Answer<Verdict>;

    /// Corrects an admitted charge to what it was worth: each axis by itself, nothing is refused. It is called once for a
    /// charge, or again after an error that [says](StoreError::nothing_done) that nothing was done. A refund goes where the charge was, and gives back no more than what of it still counts; an overrun is used
    /// up now. A store that cannot do that says so, as this one does by default.
    fn settle(&self, settlement: &Settlement<'_>) -> Answer<Verdict> {
        let _ = settlement;
        Answer::Ready(Err(StoreError::new(StoreErrorKind::Misconfigured).because("this store settles nothing")))
    }

    /// Forgets the counters that the question names, as if nothing had ever been charged on them.
    fn reset(&self, question: &Question<'_>) -> Answer<()>;

    /// Takes down that a call has ended that was charged on a counter of a `Cooldown`. A store that
    /// knows no cooldowns says so, as this one does by default.
    fn end(&self, end: &CallEnd<'_>) -> Answer<()> {
        let _ = end;
        Answer::Ready(Err(StoreError::new(StoreErrorKind::Misconfigured).because("this store knows no cooldowns")))
    }

    /// The clock that charges wait by: it runs as fast as the one that this store decides by, and need not tell the same
    /// time. Real time by default.
    #[cfg(feature = "waiting")]
    fn clock(&self) -> &dyn crate::clock::Clock {
        &crate::clock::Stopwatch
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn decide(&self, question: &Question<'_>) -> Answer<Verdict> {
        (**self).decide(question)
    }

    fn settle(&self, settlement: &Settlement<'_>) -> Answer<Verdict> {
        (**self).settle(settlement)
    }

    fn reset(&self, question: &Question<'_>) -> Answer<()> {
        (**self).reset(question)
    }

    fn end(&self, end: &CallEnd<'_>) -> Answer<()> {
        (**self).end(end)
    }

    #[cfg(feature = "waiting")]
    fn clock(&self) -> &dyn crate::clock::Clock {
        (**self).clock()
    }
}

/// The answer of a store: there at once if no I/O was needed, or on its way.
pub enum Answer<T> {
    /// The answer.
    Ready(Result<T, StoreError>),
    /// The answer, once this is done.
    Pending(PendingAnswer<T>),
}

/// An answer on its way; it needs nothing of the question any more.
pub type PendingAnswer<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

impl<T> Answer<T> {
    pub(crate) async fn wait(self) -> Result<T, StoreError> {
        match self {
            Self::Ready(result) => result,
            Self::Pending(pending) => pending.await,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(result) => f.debug_tuple("Ready").field(result).finish(),
            Self::Pending(_) => f.debug_tuple("Pending").finish_non_exhaustive(),
        }
    }
}

/// A store that could not answer. It is not a refusal: what happens next is the group's
/// [`OnStoreFailure`](crate::OnStoreFailure).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    kind: StoreErrorKind,
    reason: Cow<'static, str>,
    did_nothing: bool,
}

/// Why a store could not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store could not be reached, or did not answer in time or in form. The charge may have been made.
    Unavailable,
    /// The store holds as many counters as it may, all of them in use, and the question needs another one. Nothing was
    /// charged.
    StoreFull,
    /// What stands where a counter should be is none. Nothing was charged; a reset of the counter clears it.
    Corrupt,
    /// The store answers, but not to us, or not to this: wrong credentials, a command that is not permitted, a setup that
    /// cannot work, an error that it should not have. Somebody has to put it right. The charge was hardly made.
    Misconfigured,
}

impl StoreError {
    /// An error of this kind.
    pub fn new(kind: StoreErrorKind) -> Self {
        Self { kind, reason: Cow::Borrowed(""), did_nothing: false }
    }

    /// This error, and what an operator should know about it. It is logged: it names no caller.
    pub fn because(self, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into(), ..self }
    }

    /// This error, of a store that has provably done nothing of what it was asked: the same may be asked again without
    /// being done twice.
    pub fn nothing_done(self) -> Self {
        Self { did_nothing: true, ..self }
    }

    /// Whether the store has provably done nothing of what it was asked. Else it may or may not have.
    pub fn did_nothing(&self) -> bool {
        self.did_nothing
    }

    /// Why the store could not answer.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unavailable => "the store could not be reached, or did not answer",
            StoreErrorKind::StoreFull => "the store is full of counters in use",
            StoreErrorKind::Corrupt => "what stands in the store is no counter",
            StoreErrorKind::Misconfigured => "the store cannot do what it is asked",
        })?;
        if !self.reason.is_empty() {
            write!(f, ": {}", self.reason)?;
        }
        Ok(())
    }
}

impl Error for StoreError {}
