//! What is counted for dashboards and alarms, beside what the core counts.

/// A request found no place in a concurrency layer.
pub(crate) fn busy() {
    #[cfg(feature = "metrics")]
    metrics::counter!("tower_quota_busy_total").increment(1);
}

/// A trusted proxy named something that is no address.
pub(crate) fn unreadable_address() {
    #[cfg(feature = "metrics")]
    metrics::counter!("tower_quota_unreadable_addresses_total").increment(1);
}
