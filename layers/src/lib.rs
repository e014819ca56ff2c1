#![doc = include_str!("../docs/crate.md")]

mod answer;
mod backoff;
mod callee;
mod concurrency;
mod content_type;
mod cooldown;
mod counts;
mod gated;
mod global_capacity;
pub mod key;
mod limit_fields;
mod quota;
mod read_write_split;
mod rejection;
mod retry_after;
mod user_quota;
mod wrapped;

pub use answer::{AnswerBody, AnyBody};
pub use backoff::{Backoff, BackoffFuture, BackoffLayer};
pub use concurrency::{Concurrency, ConcurrencyFuture, ConcurrencyLayer, Permit, PermitBody};
pub use cooldown::{AttemptOutcome, CooldownLayer, Cooling, CoolingFuture};
pub use global_capacity::GlobalCapacityLayer;
pub use http::request::Parts;
pub use key::RequestKey;
pub use limit_fields::{LimitFields, ResetFormat};
pub use quota::{
    AxisLayer, Metered, MeteredFuture, QuotaLayer, RequestCharge, RequestChargeFuture, RequestMeter, RequestReserve,
    RequestReserveFuture,
};
pub use read_write_split::{ReadWriteSplit, ReadWriteSplitLayer, Side, SplitBody, SplitFuture};
pub use rejection::{Reason, Rejection};
pub use tower_quota_core::*;
pub use user_quota::UserQuotaLayer;

/// What the README shows compiles.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../README.md")]
struct Readme;
