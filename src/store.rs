//! Who counts.

mod contract;
pub(crate) mod memory;
#[cfg(feature = "redis")]
mod redis;

pub use self::contract::{Answer, PendingAnswer, Store, StoreError, StoreErrorKind};
pub use self::memory::MemoryStore;
#[cfg(all(fuzzing, feature = "redis"))]
pub use self::redis::addresses_in;
#[cfg(feature = "redis")]
pub use self::redis::{RedisStore, RedisStoreBuilder};
