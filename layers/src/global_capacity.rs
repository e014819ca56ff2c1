//! The service's declared capacity.

use http::request::Parts;
use tower_quota_core::{Measure, SharedAxis};

use crate::quota::{AxisLayer, decision_setters};

/// Counts all requests together: past its capacity, the service answers with 503, since it is not the caller's fault.
///
/// A [watermark](tower_quota_core::Watermark) on the axis raises an alert before it comes to that.
///
/// ```
/// use tower_quota::{GlobalCapacityLayer, Group, HOUR, MemoryStore, Quota, Watermark};
///
/// let items = Group::new("item", MemoryStore::new())?;
/// let capacity = items
///     .shared("capacity", Quota::fixed_window(3_000, HOUR))
///     .watermark(Watermark::percent(66).cleared_at(50))
///     .build()?;
/// let layer = GlobalCapacityLayer::new(&capacity);
/// # let _ = layer;
/// # Ok::<(), tower_quota::ConfigError>(())
/// ```
///
/// With a cost that stands in the request's head, and without the health checks:
///
/// ```
/// # use tower_quota::{GlobalCapacityLayer, Group, HOUR, MemoryStore, Quota};
/// # let items = Group::new("item", MemoryStore::new())?;
/// # let capacity = items.shared("capacity", Quota::fixed_window(3_000, HOUR)).build()?;
/// let layer = GlobalCapacityLayer::new(&capacity)
///     .cost(|parts| if parts.uri.path().ends_with("/refresh") { 5 } else { 1 })
///     .skip(|parts| parts.uri.path() == "/health");
/// # let _ = layer;
/// # Ok::<(), tower_quota::ConfigError>(())
/// ```
///
/// Each setter that concerns the decision makes a [`QuotaLayer`](crate::QuotaLayer) of it, and so does
/// [`and`](Self::and).
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing before it is applied"]
pub struct GlobalCapacityLayer(Measure<Parts>);

impl GlobalCapacityLayer {
    /// Counts requests on this axis.
    pub fn new(axis: &SharedAxis) -> Self {
        Self(Measure::from(axis))
    }
}

impl AxisLayer for GlobalCapacityLayer {}

impl crate::quota::IntoMeasure for GlobalCapacityLayer {
    fn into_measure(self) -> Measure<Parts> {
        self.0
    }
}

decision_setters!(GlobalCapacityLayer);
