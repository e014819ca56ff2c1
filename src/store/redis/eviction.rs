//! A server that evicts counters gives callers a fresh start; whoever runs it should know.

use std::collections::HashMap;

use redis::aio::MultiplexedConnection;

/// Warns of a server that evicts. One that does not tell is left alone.
pub(super) async fn warn_of_eviction(mut connection: MultiplexedConnection) {
    let asked = redis::cmd("CONFIG").arg("GET").arg("maxmemory*").query_async(&mut connection).await;
    let Ok(settings): Result<HashMap<String, String>, _> = asked else { return };
    let of = |name: &str| settings.get(name).map(String::as_str).unwrap_or_default();
    let (memory, policy) = (of("maxmemory"), of("maxmemory-policy"));
    if memory != "0" && policy != "noeviction" {
        tracing::warn!(
            target: "tower_quota::store",
            maxmemory = memory,
            maxmemory_policy = policy,
            "Redis evicts counters when its memory is full, which gives callers a fresh start: set maxmemory-policy to \
             noeviction"
        );
    }
}
