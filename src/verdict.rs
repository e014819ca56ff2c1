//! What a decision came to.

use std::time::Duration;

use smallvec::SmallVec;

use crate::name::{Axis, Label};
use crate::question::Demand;

/// Admitted or refused, with a report for each axis that was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    reports: Reports,
    counted: bool,
}

pub(crate) type Reports = SmallVec<[Report; 4]>;

impl Verdict {
    /// The verdict that these reports, in the order judged, come to: admitted if all fit.
    pub fn from_reports(reports: impl IntoIterator<Item = Report>) -> Self {
        Self::from_all(reports.into_iter().collect())
    }

    /// Admitted on two axes.
    #[inline]
    pub(crate) fn of_two(first: Report, second: Report) -> Self {
        let mut reports = Reports::new();
        reports.push(first);
        reports.push(second);
        Self::from_all(reports)
    }

    #[inline]
    pub(crate) fn from_all(reports: Reports) -> Self {
        Self { reports, counted: true }
    }

    /// Admitted without having been counted, because the store could not answer.
    pub(crate) fn uncounted() -> Self {
        Self { reports: SmallVec::new(), counted: false }
    }

    /// Whether the request may go on: it fits on every axis, or was let through because the store could not answer.
    pub fn is_admitted(&self) -> bool {
        self.reports.iter().all(Report::fits)
    }

    /// False if the request was let through because the store could not answer. Such a verdict has no reports.
    pub fn was_counted(&self) -> bool {
        self.counted
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
    used: u64,
    reset: u64,
    wait: u64,
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
    pub(crate) fn of(demand: &Demand<'_>, fits_now: bool) -> Self {
        if demand.is_closed() {
            Self::Closed
        } else if demand.never_fits() {
            Self::Never
        } else if fits_now || demand.units == 0 {
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
    pub fn new(demand: &Demand<'_>, finding: Finding) -> Self {
        let Finding { used, wait, reset, above_watermark } = finding;
        let fit = Fit::of(demand, wait.is_none());
        Self::in_micros(demand, fit, used, micros(wait.unwrap_or_default()), micros(reset), above_watermark)
    }

    /// A report of an axis on which the request fits and is charged.
    #[inline]
    pub(crate) fn admitted(label: &'static Label, limit: u64, used: u64, reset: u64, above_watermark: bool) -> Self {
        Self { label, limit, used, reset, wait: 0, fit: Fit::Fits, above_watermark }
    }

    pub(crate) fn in_micros(
        demand: &Demand<'_>,
        fit: Fit,
        used: u64,
        wait: u64,
        reset: u64,
        above_watermark: bool,
    ) -> Self {
        let wait = match fit {
            Fit::Full => wait,
            Fit::Closed => micros(demand.retry_when_closed),
            Fit::Fits | Fit::Never => 0,
        };
        Self { label: demand.label, limit: demand.quota().limit(), used, reset, wait, fit, above_watermark }
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

/// A time in microseconds; the longest that fits, if it does not.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
