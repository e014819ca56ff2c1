//! The layers in front of tonic services, called by a real client.

mod calls;
mod example;
mod generated;
mod mounting;
mod refusals;
pub(crate) mod service;
mod transparency;

#[allow(clippy::all, clippy::pedantic, missing_docs, unreachable_pub, rust_2018_idioms, reason = "generated")]
mod echo {
    include!("../examples/proto/echo.v1.rs");
}

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt;

/// What a status tells a client that can act on it: the delay, and the axes.
fn told(status: &Status) -> (Code, Option<Duration>, Vec<String>) {
    let details = status.get_error_details();
    let delay = details.retry_info().and_then(|info| info.retry_delay);
    let quota = details.quota_failure().into_iter().flat_map(|failure| &failure.violations);
    let never = details.precondition_failure().into_iter().flat_map(|failure| &failure.violations);
    let axes = quota.map(|violation| &violation.subject).chain(never.map(|violation| &violation.subject));
    (status.code(), delay, axes.cloned().collect())
}
