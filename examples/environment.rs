//! What the examples read from their environment.

use std::env;
use std::error::Error;
use std::fmt::Display;
use std::str::FromStr;

use tower_quota::{ConfigError, Group, MemoryStore, OnStoreFailure};

/// A group that counts in Redis, if there is an address of one, else in this process.
pub(crate) fn group(name: &str) -> Result<Group, Box<dyn Error>> {
    let group = Group::builder(name).on_store_failure(match &*variable("ON_STORE_ERROR", "open".to_owned())? {
        "open" => OnStoreFailure::Open,
        "closed" => OnStoreFailure::Closed,
        "local" => OnStoreFailure::Local { percent: 50 },
        other => return Err(format!("ON_STORE_ERROR: {other:?} cannot be used: it is open, closed or local").into()),
    });
    let url: String = variable("REDIS_URL", String::new())?;
    if url.is_empty() {
        if !variable("REDIS_SENTINEL", String::new())?.is_empty() {
            return Err("REDIS_SENTINEL cannot be used alone: set REDIS_URL to the addresses of the Sentinels".into());
        }
        return Ok(group.build(MemoryStore::new())?);
    }
    #[cfg(feature = "redis")]
    return Ok(group.build(redis(&url)?)?);
    #[cfg(not(feature = "redis"))]
    return Err("REDIS_URL cannot be used: run this example with --features redis".into());
}

/// A Redis, a cluster of them, or one behind Sentinels.
#[cfg(feature = "redis")]
fn redis(url: &str) -> Result<tower_quota::RedisStore, Box<dyn Error>> {
    use tower_quota::RedisStore;
    let urls = || url.split(',').map(str::trim);
    let primary: String = variable("REDIS_SENTINEL", String::new())?;
    let builder = match (primary.is_empty(), urls().count()) {
        (true, 1) => RedisStore::builder(url),
        #[cfg(feature = "redis-cluster")]
        (true, _) => RedisStore::cluster(urls()),
        #[cfg(feature = "redis-sentinel")]
        (false, _) => RedisStore::sentinel(urls(), &primary),
        #[cfg(not(all(feature = "redis-cluster", feature = "redis-sentinel")))]
        _ => return Err("REDIS_URL: a cluster needs --features redis-cluster, Sentinels redis-sentinel".into()),
    };
    Ok(builder.build().map_err(of_variable("REDIS_URL"))?)
}

/// The value of an environment variable, if it is set to one.
pub(crate) fn variable<T: FromStr<Err: Display> + Display>(name: &str, default: T) -> Result<T, String> {
    match env::var(name) {
        Ok(value) => value
            .parse()
            .map_err(|error| format!("{name}: {value:?} cannot be used: {error}; without it, it is {default}")),
        Err(env::VarError::NotPresent) => Ok(default),
        Err(error @ env::VarError::NotUnicode(_)) => Err(format!("{name} cannot be used: {error}")),
    }
}

/// A quota's error, told of the variable that it came from.
pub(crate) fn of_variable(name: &str) -> impl Fn(ConfigError) -> ConfigError {
    move |error| ConfigError::new(name, error.reason())
}
