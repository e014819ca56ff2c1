//! What tower-quota promises, one module for each subject, through the public API only.

#![allow(clippy::unwrap_used, clippy::unchecked_time_subtraction, reason = "a test that panics has failed")]

mod cases;
mod clients;
mod engine;
mod flow;
mod grpc;
mod layers;
mod metrics;
mod quickstart;
mod redis;
mod support;
