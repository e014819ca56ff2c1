//! An account's quota.

use http::request::Parts;
use tower_quota_core::{Measure, MissingKey, PerKeyAxis, Quota};

use crate::key::RequestKey;
use crate::quota::{AxisLayer, decision_setters};

/// Counts each caller apart: past its quota, a caller is answered with 429.
///
/// ```
/// use tower_quota::{Group, HOUR, MemoryStore, Quota, UserQuotaLayer, key};
///
/// let items = Group::new("item", MemoryStore::new())?;
/// let account = items.per_key("account", Quota::fixed_window(30, HOUR)).build()?;
/// let layer = UserQuotaLayer::new(&account, key::header("x-account")?);
/// # let _ = layer;
/// # Ok::<(), tower_quota::ConfigError>(())
/// ```
///
/// With plans, and a shared bucket for callers without an account:
///
/// ```
/// use tower_quota::{Group, HOUR, MemoryStore, MissingKey, Quota, UserQuotaLayer, key};
///
/// #[derive(Clone)]
/// struct Account {
///     id: u64,
///     has_paid: bool,
/// }
///
/// let free = Quota::fixed_window(30, HOUR)?;
/// let paid = free.with_limit(300)?;
/// let items = Group::new("item", MemoryStore::new())?;
/// let account = items.per_key("account", free).build()?;
/// let layer = UserQuotaLayer::new(&account, key::extension(|account: &Account| account.id))
///     .quota_by(move |parts| parts.extensions.get::<Account>()?.has_paid.then_some(paid))
///     .missing_key(MissingKey::Anonymous(Quota::fixed_window(10, HOUR)?));
/// # let _ = layer;
/// # Ok::<(), tower_quota::ConfigError>(())
/// ```
///
/// What concerns the axis is set here. Each setter that concerns the decision (cost, skip, rejection) makes a
/// [`QuotaLayer`](crate::QuotaLayer) of it, and so does [`and`](Self::and).
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing before it is applied"]
pub struct UserQuotaLayer(Measure<Parts>);

impl UserQuotaLayer {
    /// Counts requests on this axis, under this key.
    pub fn new(axis: &PerKeyAxis, key: RequestKey) -> Self {
        Self(key.measure(axis))
    }

    /// Judges a caller by the quota that `plan` chooses from the request's head; `None` is the axis's own.
    ///
    /// Quotas of one algorithm and period share the caller's counter, so a change of plan keeps what is used.
    pub fn quota_by(self, plan: impl Fn(&Parts) -> Option<Quota> + Send + Sync + 'static) -> Self {
        Self(self.0.quota_by(plan))
    }

    /// What happens to a request without a key: it is answered with 400 by default.
    pub fn missing_key(self, policy: MissingKey) -> Self {
        Self(self.0.missing_key(policy))
    }
}

impl AxisLayer for UserQuotaLayer {}

impl crate::quota::IntoMeasure for UserQuotaLayer {
    fn into_measure(self) -> Measure<Parts> {
        self.0
    }
}

decision_setters!(UserQuotaLayer);
