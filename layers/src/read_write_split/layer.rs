//! Sets up separate budgets.

use std::sync::Arc;

use http::request::Parts;
use tower_layer::Layer;

use super::service::ReadWriteSplit;
use super::side::{Classifier, Side};
use crate::quota::QuotaLayer;

/// Sends reads through one layer and writes through another, so that neither uses up the budget of the other.
///
/// ```
/// use tower_quota::{GlobalCapacityLayer, Group, MemoryStore, ReadWriteSplitLayer, UserQuotaLayer, key};
///
/// let seats = Group::new("seats", MemoryStore::new())?;
/// let user_reads = seats.per_key("user-reads", "8/s").build()?;
/// let all_reads = seats.shared("reads", "20/s").build()?;
/// let user_writes = seats.per_key("user-writes", "1/s").build()?;
/// let all_writes = seats.shared("writes", "2/s").build()?;
/// let user = key::header("x-user")?;
///
/// // The user's limit is judged before that of all, and a refusal charges neither.
/// let layer = ReadWriteSplitLayer::new(
///     UserQuotaLayer::new(&user_reads, user.clone()).and(GlobalCapacityLayer::new(&all_reads))?,
///     UserQuotaLayer::new(&user_writes, user).and(GlobalCapacityLayer::new(&all_writes))?,
/// );
/// # let _ = layer;
/// # Ok::<(), tower_quota::ConfigError>(())
/// ```
///
/// `GET`, `HEAD` and `TRACE` are reads, `OPTIONS` (a preflight) is neither, and everything else is a write. A function
/// may say otherwise, and a table of gRPC methods, all of which HTTP sees as `POST`:
///
/// ```
/// use tower_quota::{ConcurrencyLayer, ReadWriteSplitLayer, Side};
///
/// let layer = ReadWriteSplitLayer::new(ConcurrencyLayer::new(100), ConcurrencyLayer::new(8))
///     .classify(|parts| if parts.uri.path().starts_with("/rpc/get") { Side::Read } else { Side::Write })
///     .grpc_reads(["/shop.v1.Shop/Get", "/shop.v1.Shop/List"]);
/// # let _ = layer;
/// ```
///
/// Any layers fit on either side, one layer for both as well. A total above both is one more axis of both decisions. A
/// request that is several reads and writes at once charges both budgets in one decision, by a
/// [`Meter`](crate::Meter) over both axes and a [`Cost`](crate::Cost) with a number for each.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing before it is applied"]
pub struct ReadWriteSplitLayer<R = QuotaLayer, W = R> {
    read: R,
    write: W,
    classifier: Classifier,
}

impl<R, W> ReadWriteSplitLayer<R, W> {
    /// Reads through one layer, writes through the other.
    pub fn new(read: R, write: W) -> Self {
        Self { read, write, classifier: Classifier::default() }
    }

    /// Tells the side of a request by this function instead of by its method. What it does not know should be a write; a
    /// panic of it is one.
    pub fn classify(mut self, side: impl Fn(&Parts) -> Side + Send + Sync + 'static) -> Self {
        self.classifier.classify = Some(Arc::new(side));
        self
    }

    /// gRPC requests are reads if their path, such as `/package.Service/Method`, is one of these, and writes if not.
    pub fn grpc_reads(mut self, methods: impl IntoIterator<Item = &'static str>) -> Self {
        self.classifier.grpc_reads = Some(Arc::new(methods.into_iter().collect()));
        self
    }
}

impl<S, R, W> Layer<S> for ReadWriteSplitLayer<R, W>
where
    R: Layer<S>,
    W: Layer<S>,
    S: Clone,
{
    type Service = ReadWriteSplit<S, R::Service, W::Service>;

    fn layer(&self, inner: S) -> Self::Service {
        let (read, write) = (self.read.layer(inner.clone()), self.write.layer(inner.clone()));
        ReadWriteSplit::new(inner, read, write, self.classifier.clone())
    }
}
