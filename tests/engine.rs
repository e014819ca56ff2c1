//! The core: quotas, meters, the memory store.

mod bounds;
mod cooldown;
mod exactness;
mod failure;
mod foreign_store;
mod memory;
mod meter;
mod settlement;
mod waiting;
mod watermark;
