//! The layers, in front of mock services and behind real listeners.

mod allocations;
mod answers;
mod backoff;
mod client_ip;
mod concurrency;
mod cooldown;
mod handler;
mod length;
mod limit_fields;
mod mounting;
mod order;
mod read_write_split;
mod readiness;
mod refunds;
mod service;
