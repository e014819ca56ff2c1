//! For tests of code that uses quotas, and of stores (feature `testing`).
//!
//! [`FakeClock`] is a clock that tests move by hand. [`conformance`] holds any [`Store`](crate::Store) to what the
//! contract promises, [`conformance_of_settlement`] one that settles charges to what that promises, and [`differential`] to
//! what the [`MemoryStore`](crate::MemoryStore) decides, step by random step:
//!
//! ```
//! use tower_quota_core::MemoryStore;
//! use tower_quota_core::testing::{conformance, conformance_of_settlement, differential};
//!
//! # fn block_on(future: impl Future) {
//! #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
//! #     assert!(std::pin::pin!(future).poll(&mut context).is_ready());
//! # }
//! # block_on(async {
//! // `MemoryStore` stands for a store of your own, on the clock that it is given.
//! conformance(|clock| MemoryStore::with_clock(clock)).await;
//! conformance_of_settlement(|clock| MemoryStore::with_clock(clock)).await;
//! differential(|clock| MemoryStore::with_clock(clock), 7, 1_000).await;
//! # });
//! ```

mod clock;
mod conformance;
mod differential;
mod random;
mod settlements;

pub use self::clock::FakeClock;
pub use self::conformance::conformance;
pub use self::differential::differential;
pub use self::settlements::conformance_of_settlement;
