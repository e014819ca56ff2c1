//! What happens to a request when the store cannot answer.

/// What happens to a request when the store cannot answer.
///
/// It is set for a [group](crate::GroupBuilder::on_store_failure); an axis may be
/// [stricter](crate::AxisBuilder::on_store_failure), and a decision takes the strictest of its axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum OnStoreFailure {
    /// The request is let through, uncounted: its verdict says so
    /// ([`was_counted`](crate::Verdict::was_counted) is false).
    #[default]
    Open,
    /// The request is turned away as a failure of the service ([`ChargeError::Store`](crate::ChargeError::Store)), never
    /// as a refusal of the caller.
    Closed,
}
