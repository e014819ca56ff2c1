//! What a decision came to.

use std::time::Duration;

use smallvec::SmallVec;

use crate::name::{Axis, Label};
use crate::question::Terms;
use crate::quota::{Algorithm, Quota};

/// Admitted or refused, with a report for each axis that was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    reports: Reports,
    counted_by: CountedBy,
    /// In microseconds.
    decided_at: u64,
}

/// Who counted a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CountedBy {
    /// The group's store.
    #[default]
    Store,
    /// This process, by its share of the limits, because the store could not answer
    /// ([`OnStoreFailure::Local`](crate::OnStoreFailure::Local)).
    LocalShare,
    /// Nobody: the store could not answer, and the request was let through
    /// ([`OnStoreFailure::Open`](crate::OnStoreFailure::Open)).
    Nobody,
}

pub(crate) type Reports = SmallVec<[Report; 4]>;

impl Verdict {
    /// The verdict that these reports, in the order judged, come to: admitted if all fit.
    pub fn from_reports(reports: impl IntoIterator<Item = Report>) -> Self {
        Self::from_all(reports.into_iter().collect(), 0)
    }

    /// This verdict, made at this time of the store's clock, for a store that [settles](crate::Store::settle) charges or
    /// takes down the [ends](crate::Store::end) of calls.
    pub fn at(self, time: Duration) -> Self {
        Self { decided_at: micros(time), ..self }
    }

    /// Admitted on two axes.
    #[inline]
    pub(crate) fn of_two(first: Report, second: Report, decided_at: u64) -> Self {
        let mut reports = Reports::new();
        reports.push(first);
        reports.push(second);
        Self::from_all(reports, decided_at)
    }

    #[inline]
    pub(crate) fn from_all(reports: Reports, decided_at: u64) -> Self {
        Self { reports, counted_by: CountedBy::Store, decided_at }
    }

    /// Admitted without having been counted, because the store could not answer.
    pub(crate) fn uncounted() -> Self {
        Self { reports: SmallVec::new(), counted_by: CountedBy::Nobody, decided_at: 0 }
    }

    /// This verdict, made by a share of the limits, because the store could not answer.
    pub(crate) fn by_local_share(self) -> Self {
        Self { counted_by: CountedBy::LocalShare, ..self }
    }

    /// Whether the request may go on: it fits on every axis, or was let through because the store could not answer.
    pub fn is_admitted(&self) -> bool {
        self.reports.iter().all(Report::fits)
    }

    /// Who counted the request: the store, unless it could not answer. A verdict that nobody counted has no reports.
    pub fn counted_by(&self) -> CountedBy {
        self.counted_by
    }

    /// Whether the request was counted at all.
    pub fn was_counted(&self) -> bool {
        self.counted_by != CountedBy::Nobody
    }

    /// When it was decided, by the store's clock: a time to tell the store again, and to compare with others of its own.
    pub fn decided_at(&self) -> Duration {
        Duration::from_micros(self.decided_at)
    }

    pub(crate) fn decided_at_micros(&self) -> u64 {
        self.decided_at
    }

    /// One report for each axis, in the order judged. An axis that did not count this request has none.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// The report of one axis.
    pub fn of(&self, axis: &impl Axis) -> Option<&Report> {
        self.reports.iter().find(|report| report.label == axis.label())
    }

    /// The axis that gives the answer to a refused request: the first on which the cost can never fit, or else the
    /// first on which it does not fit now.
    pub fn refused_by(&self) -> Option<&Report> {
        let never = self.reports.iter().find(|report| report.never_fits());
        never.or_else(|| self.reports.iter().find(|report| !report.fits()))
    }

    /// Whether the cost is more than the whole limit of some axis, so that no wait helps.
    pub fn never_fits(&self) -> bool {
        self.reports.iter().any(Report::never_fits)
    }

    /// How long to wait until the same request fits on every axis, if nothing else is charged: the longest wait of them.
    /// Zero if it is admitted, or if it can never fit.
    pub fn wait(&self) -> Duration {
        if self.never_fits() {
            return Duration::ZERO;
        }
        self.reports.iter().map(Report::wait).max().unwrap_or_default()
    }
}

/// What a decision came to on one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub(crate) label: &'static Label,
    limit: u64,
    /// In microseconds, as all times here.
    period: u64,
    used: u64,
    reset: u64,
    wait: u64,
    /// What a bucket gets back in a period; 0 for a window.
    refill: u32,
    fit: Fit,
    above_watermark: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Fits,
    Full,
    Closed,
    Never,
}

impl Fit {
    /// What comes of a demand that does or does not fit by now, if it can fit at all. A look always fits.
    #[inline]
    pub(crate) fn of(terms: &Terms, fits_now: bool) -> Self {
        if terms.is_closed() {
            Self::Closed
        } else if terms.never_fits() {
            Self::Never
        } else if fits_now || terms.units == 0 {
            Self::Fits
        } else {
            Self::Full
        }
    }
}

/// What a store found on one axis: the state as the decision left it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// Units used, with this request's own if it was charged.
    pub used: u64,
    /// How long until the request fits; `None` if it does.
    pub wait: Option<Duration>,
    /// How long until the counter equals a fresh one, if nothing else is charged.
    pub reset: Duration,
    /// Whether the usage is above the axis's watermark.
    pub above_watermark: bool,
}

impl Report {
    /// A report on a demand from what the store found. The waits of a demand on a closed axis, or of one that can never
    /// fit, are known without it.
    pub fn new(terms: &Terms, finding: Finding) -> Self {
        let Finding { used, wait, reset, above_watermark } = finding;
        let fit = Fit::of(terms, wait.is_none());
        Self::in_micros(terms, fit, used, micros(wait.unwrap_or_default()), micros(reset), above_watermark)
    }

    /// A report on a request that fits and is charged.
    #[inline]
    pub(crate) fn admitted(label: &'static Label, quota: &Quota, used: u64, reset: u64, above_watermark: bool) -> Self {
        let (limit, period, refill) = (quota.limit(), quota.counted().micros, refill_of(quota));
        Self { label, limit, period, used, reset, wait: 0, refill, fit: Fit::Fits, above_watermark }
    }

    /// This report, on a request that was judged by another limit: for a store that gives the verdict again that it
    /// remembers.
    pub fn by_limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    pub(crate) fn in_micros(terms: &Terms, fit: Fit, used: u64, wait: u64, reset: u64, above_watermark: bool) -> Self {
        let wait = match fit {
            Fit::Full => wait.min(LONGEST_TOLD),
            Fit::Closed => micros(terms.retry_when_closed),
            Fit::Fits | Fit::Never => 0,
        };
        let reset = reset.min(LONGEST_TOLD);
        Self { wait, fit, ..Self::admitted(terms.label, &terms.quota, used, reset, above_watermark) }
    }

    /// The name of the axis within its group.
    pub fn axis(&self) -> &'static str {
        self.label.axis
    }

    /// Whether the axis counts each key apart: then a refusal is the caller's doing, else the service's state.
    pub fn is_per_key(&self) -> bool {
        self.label.per_key
    }

    /// The limit that this request was judged by.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The period of the quota that this request was judged by: the window, or the time in which a bucket gets its refill.
    pub fn period(&self) -> Duration {
        Duration::from_micros(self.period)
    }

    /// The time in which the limit comes back whole: the window, or how long an empty bucket takes to fill.
    pub fn window(&self) -> Duration {
        if self.refill == 0 {
            return self.period();
        }
        // No bucket takes more than ten years.
        let micros = (u128::from(self.limit) * u128::from(self.period)).div_ceil(self.refill.into());
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Units used, with this request's own if it was charged. More than the limit after the limit was lowered.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Units left, never below 0.
    pub fn remaining(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// How long until the counter equals a fresh one, if nothing else is charged.
    pub fn reset(&self) -> Duration {
        Duration::from_micros(self.reset)
    }

    /// How long until the request fits on this axis, if nothing else is charged. Zero if it fits, or if it never can.
    pub fn wait(&self) -> Duration {
        Duration::from_micros(self.wait)
    }

    /// Whether the request fits on this axis.
    pub fn fits(&self) -> bool {
        self.fit == Fit::Fits
    }

    /// Whether the axis is closed: its limit is 0.
    pub fn is_closed(&self) -> bool {
        self.fit == Fit::Closed
    }

    /// Whether the cost is more than the whole limit, so that no wait helps.
    pub fn never_fits(&self) -> bool {
        self.fit == Fit::Never
    }

    /// Whether usage is above the axis's watermark, as of now. False for an axis without one.
    pub fn is_above_watermark(&self) -> bool {
        self.above_watermark
    }
}

/// The longest wait that is told, in microseconds: 142 years. A limit that was cut far below what is used could make it
/// longer, and a store that knows only doubles could not tell it exactly.
const LONGEST_TOLD: u64 = 1 << 52;

#[inline]
fn refill_of(quota: &Quota) -> u32 {
    if quota.algorithm() == Algorithm::TokenBucket { quota.refill() } else { 0 }
}

/// A time in microseconds; the longest that fits, if it does not.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
