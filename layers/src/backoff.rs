//! Pauses that an upstream asks for.

mod future;
mod layer;
mod rules;
mod service;

pub use self::future::BackoffFuture;
pub use self::layer::BackoffLayer;
pub use self::service::Backoff;
