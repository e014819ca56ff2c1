//! At most so many requests at once.

mod body;
mod future;
mod gate;
mod layer;
mod permit;
mod place;
mod rules;
mod service;
mod word;

pub use self::body::PermitBody;
pub use self::future::ConcurrencyFuture;
pub use self::layer::ConcurrencyLayer;
pub use self::permit::Permit;
pub use self::service::Concurrency;
