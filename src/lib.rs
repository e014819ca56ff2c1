//! What a quota is, who counts it, and what happens when the counter is down: the engine of `tower-quota`, without tower
//! and without HTTP.
//!
//! A [`Quota`] says how much in how long. A [`Group`] makes axes, each counted per key ([`PerKeyAxis`]) or shared by all
//! ([`SharedAxis`]). A [`Meter`] puts axes of one group in the order in which they are judged, and
//! [charges](Meter::charge) a subject on all of them in one atomic step, or on none. A [`Store`] counts: [`MemoryStore`]
//! in this process, `RedisStore` (feature `redis`) for instances that share one truth. When it cannot,
//! [`OnStoreFailure`] says what happens.
//!
//! With feature `waiting` a charge may wait until it fits, a `Cooldown` lets a key rest after so
//! many attempts or failures, and a `BackoffAxis` keeps the pauses that another side asks for.
//!
//! An HTTP service uses these through the layers of the `tower-quota` crate; a worker uses a meter directly.

mod algorithm;
mod axis;
#[cfg(feature = "waiting")]
mod backoff;
mod call_end;
mod charge;
mod charge_error;
mod clock;
mod config_error;
#[cfg(feature = "waiting")]
mod cooldown;
mod cost;
mod counts;
mod digest;
mod failure;
mod group;
mod health;
#[cfg(feature = "waiting")]
mod jitter;
mod key;
mod ledger;
#[cfg(feature = "waiting")]
mod lines;
mod measure;
mod meter;
mod name;
mod panel;
mod question;
mod quiet;
mod quota;
mod rate;
mod reservation;
mod seen;
mod settlement;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod throttle;
mod verdict;
#[cfg(feature = "waiting")]
mod waiting;
mod watermark;

pub use algorithm::Outcome;
pub use axis::{AxisBuilder, PerKeyAxis, SharedAxis};
#[cfg(feature = "waiting")]
pub use backoff::{BackoffAxis, BackoffBuilder, Paused};
pub use call_end::CallEnd;
pub use charge::{Asked, Charge, ChargeFuture, PendingCharge};
pub use charge_error::ChargeError;
#[cfg(feature = "waiting")]
pub use clock::Sleep;
pub use clock::{Clock, SystemClock};
pub use config_error::ConfigError;
#[cfg(feature = "waiting")]
pub use cooldown::{Attempts, Batch, Batches, Begin, Cooldown, CooldownAfter, CooldownAxis, CooldownBuilder};
pub use cost::Cost;
pub use failure::OnStoreFailure;
pub use group::{Group, GroupBuilder};
pub use key::{Key, KeyRead};
pub use measure::{Measure, MissingKey};
pub use meter::{BoundMeter, Meter};
pub use name::Axis;
pub use question::{Demand, Owner, Question, Terms};
pub use quota::{Algorithm, DAY, HOUR, MINUTE, Quota, SECOND};
pub use reservation::{AskedToReserve, PendingReservation, Reservation, Reserve, ReserveFuture};
pub use settlement::Settlement;
#[cfg(all(fuzzing, feature = "redis"))]
pub use store::addresses_in;
pub use store::{Answer, MemoryStore, PendingAnswer, Store, StoreError, StoreErrorKind};
#[cfg(feature = "redis")]
pub use store::{RedisStore, RedisStoreBuilder};
#[doc(hidden)]
pub use throttle::Throttle;
pub use verdict::{CountedBy, Finding, Report, Verdict};
pub use watermark::{Watermark, WatermarkEvent};
