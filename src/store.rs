//! Who counts.

mod contract;
pub(crate) mod memory;

pub use self::contract::{Answer, PendingAnswer, Store, StoreError, StoreErrorKind};
pub use self::memory::MemoryStore;
