//! The combinator, and the one service behind all quota layers.

mod future;
mod layer;
mod meter;
mod rules;
mod service;
mod watched;

pub use self::future::MeteredFuture;
pub use self::layer::{AxisLayer, QuotaLayer};
pub(crate) use self::layer::{IntoMeasure, decision_setters};
pub use self::meter::{RequestCharge, RequestChargeFuture, RequestMeter, RequestReserve, RequestReserveFuture};
pub use self::service::Metered;
