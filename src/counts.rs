//! What is counted for dashboards and alarms, through the `metrics` facade: nothing on the way of an admitted request.
#![cfg_attr(not(feature = "metrics"), allow(unused_variables, reason = "without the feature, nothing is counted"))]

use crate::name::Label;
use crate::store::StoreErrorKind;
use crate::verdict::Report;

/// A charge was refused, and the answer is that of this report.
pub(crate) fn refusal(report: &Report) {
    #[cfg(feature = "metrics")]
    {
        let reason = match report {
            report if report.never_fits() => "never_fits",
            report if report.is_closed() => "closed",
            _ => "full",
        };
        count_refusal(report.label, reason);
    }
}

/// A charge was refused, because it says not whose it is.
pub(crate) fn refusal_without_key(label: &Label) {
    #[cfg(feature = "metrics")]
    count_refusal(label, "no_key");
}

/// A call was refused, because its key is paused.
#[cfg(feature = "waiting")]
pub(crate) fn pause(label: &Label) {
    #[cfg(feature = "metrics")]
    count_refusal(label, "paused");
}

#[cfg(feature = "metrics")]
fn count_refusal(label: &Label, reason: &'static str) {
    let Label { group, axis, .. } = *label;
    metrics::counter!("tower_quota_refusals_total", "group" => group, "axis" => axis, "reason" => reason).increment(1);
}

/// The store could not make a decision.
pub(crate) fn store_failure(group: &str, kind: StoreErrorKind) {
    #[cfg(feature = "metrics")]
    {
        let kind = match kind {
            StoreErrorKind::Unavailable => "unavailable",
            StoreErrorKind::StoreFull => "store_full",
            StoreErrorKind::Corrupt => "corrupt",
            StoreErrorKind::Misconfigured => "misconfigured",
        };
        metrics::counter!("tower_quota_store_failures_total", "group" => group.to_owned(), "kind" => kind).increment(1);
    }
}

/// A charge should have been given back, and was not.
#[cfg(feature = "waiting")]
pub(crate) fn unsettled(group: &str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("tower_quota_unsettled_total", "group" => group.to_owned()).increment(1);
}
