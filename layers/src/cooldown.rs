//! After so many attempts, or failures, rest.

mod future;
mod layer;
mod rules;
mod service;

pub use self::future::CoolingFuture;
pub use self::layer::CooldownLayer;
pub use self::rules::AttemptOutcome;
pub use self::service::Cooling;
