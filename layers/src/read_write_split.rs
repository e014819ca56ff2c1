//! Separate budgets for reads and writes.

mod body;
mod future;
mod layer;
mod service;
mod side;

pub use self::body::SplitBody;
pub use self::future::SplitFuture;
pub use self::layer::ReadWriteSplitLayer;
pub use self::service::ReadWriteSplit;
pub use self::side::Side;
