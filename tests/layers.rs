//! The layers, in front of mock services and behind real listeners.

mod allocations;
mod answers;
mod concurrency;
mod handler;
mod mounting;
mod service;
