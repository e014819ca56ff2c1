//! The layers, in front of mock services and behind real listeners.

mod allocations;
mod answers;
mod concurrency;
mod handler;
mod mounting;
mod read_write_split;
mod service;
