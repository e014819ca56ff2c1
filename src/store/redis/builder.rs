//! Sets up the shared store.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use redis::aio::ConnectionLike;

use super::RedisStore;
use super::breaker::Breakers;
use super::client::Client;
#[cfg(feature = "redis-cluster")]
use super::cluster::Cluster;
use super::connection::{Connector, Given, Single};
use super::episodes::Episodes;
use super::names::{Callers, Names};
use super::pool::Pool;
use super::route::Route;
#[cfg(feature = "redis-sentinel")]
use super::sentinel::Sentinels;
use crate::clock::Clock;
use crate::config_error::ConfigError;
use crate::quota::DAY;

/// Sets up a [`RedisStore`]. Made by [`RedisStore::builder`] and [`RedisStore::over`].
#[must_use = "a store exists once it is built"]
pub struct RedisStoreBuilder {
    servers: Result<Servers, ConfigError>,
    connections: usize,
    deadline: Duration,
    break_after: u32,
    requests_kept: Duration,
    prefix: String,
    secret: Option<Vec<u8>>,
    callers: Callers,
    clock: Option<Box<dyn Clock>>,
}

/// Where the counters are.
enum Servers {
    One(Arc<dyn Connector>),
    #[cfg(feature = "redis-cluster")]
    Cluster(Vec<Single>),
}

impl RedisStoreBuilder {
    pub(super) fn to(url: &str) -> Self {
        Self::with(Single::new(url).map(|single| Servers::One(Arc::new(single))))
    }

    #[cfg(feature = "redis-cluster")]
    pub(super) fn to_cluster<'u>(urls: impl IntoIterator<Item = &'u str>) -> Self {
        Self::with(urls.into_iter().map(Single::of_cluster).collect::<Result<_, _>>().map(Servers::Cluster))
    }

    #[cfg(feature = "redis-sentinel")]
    pub(super) fn to_sentinels<'u>(urls: impl IntoIterator<Item = &'u str>, name: &str) -> Self {
        let servers = || {
            let urls: Vec<&str> = urls.into_iter().collect();
            let first =
                urls.first().ok_or_else(|| ConfigError::new("redis.urls", "are none: name at least one Sentinel"))?;
            let primary = Single::new(first)?;
            let sentinels = urls.iter().map(|url| Single::of_sentinel(url)).collect::<Result<_, _>>()?;
            Ok(Servers::One(Arc::new(Sentinels::new(sentinels, name, primary))))
        };
        Self::with(servers())
    }

    pub(super) fn over<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::with(Ok(Servers::One(Arc::new(Given(connection)))))
    }

    fn with(servers: Result<Servers, ConfigError>) -> Self {
        Self {
            servers,
            connections: 1,
            deadline: Duration::from_millis(50),
            break_after: 20,
            requests_kept: Duration::from_secs(60),
            prefix: String::new(),
            secret: None,
            callers: Callers::Digested,
            clock: None,
        }
    }

    /// How long a decision may take, connecting and everything else included: 50 ms by default. After that the group's
    /// [failure policy](crate::OnStoreFailure) decides.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How many connections are used, in turn: 1 by default, which many decisions share at once. More help where one
    /// client of this process cannot fill the server. A connection that was [given](RedisStore::over) is one.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// After how many failures in a row decisions no longer wait for the server: 20 by default. From then on one decision
    /// at a time goes through as a probe, one a second at most, and the first that succeeds ends it.
    pub fn break_after(mut self, failures: u32) -> Self {
        self.break_after = failures;
        self
    }

    /// How long an admitted request is remembered by its [id](crate::Charge::request_id): a minute by default, at least a
    /// millisecond, at most a day.
    pub fn remember_requests(mut self, time: Duration) -> Self {
        self.requests_kept = time;
        self
    }

    /// Puts a name before all names in Redis, such as that of the application: 1 to 64 ASCII letters, digits, `-`, `_`
    /// or `.`.
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// Digests callers under a secret, the same for all instances: 16 random bytes or more. Without one, whoever can read
    /// the names in Redis can find out a caller by trying. Another secret finds other counters.
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(secret.as_ref().to_vec());
        self
    }

    /// Names callers by themselves instead of by a digest, so that an operator can read them in Redis: those of up to 64
    /// bytes, letters, digits and `-_.@` as they are, all else as `%41`. Longer ones are digested nevertheless.
    pub fn readable_callers(mut self) -> Self {
        self.callers = Callers::Readable;
        self
    }

    /// Takes the time from this clock instead of the server's: for tests, and for servers that refuse `TIME` in a script.
    ///
    /// The clocks of all instances have to agree: by as much as one is ahead, counters are. Counters are then kept for at
    /// least a minute by the server's clock. Times past the year 2112 are cut to it.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// The store.
    ///
    /// # Errors
    ///
    /// `redis.url` or `redis.urls`, `redis.deadline` of 0, `redis.connections` of 0, `redis.break_after` of 0,
    /// `redis.remember_requests`, `redis.prefix.name`, an empty `redis.secret`.
    pub fn build(self) -> Result<RedisStore, ConfigError> {
        let Self { servers, connections, deadline, break_after, requests_kept, prefix, secret, callers, clock } = self;
        let servers = servers?;
        let not_0 = |field: &str, is_0: bool, cure: &str| {
            if is_0 { Err(ConfigError::new(format!("redis.{field}"), format!("is 0: use {cure}"))) } else { Ok(()) }
        };
        not_0("deadline", deadline.is_zero(), "some milliseconds")?;
        not_0("connections", connections == 0, "at least 1")?;
        not_0("break_after", break_after == 0, "at least 1")?;
        if !(Duration::from_millis(1)..=DAY).contains(&requests_kept) {
            let reason = format!("{requests_kept:?} is not between a millisecond and a day");
            return Err(ConfigError::new("redis.remember_requests", reason));
        }
        let random = || RandomState::new().build_hasher().finish();
        let client = Client {
            names: Names::new(&prefix, secret.as_deref(), callers)?,
            route: match servers {
                Servers::One(connector) => Route::One(Pool::new(connector, connections)),
                #[cfg(feature = "redis-cluster")]
                Servers::Cluster(seeds) => Route::Cluster(Arc::new(Cluster::new(seeds, connections)?)),
            },
            breakers: Breakers::new(break_after),
            instance: random(),
            clock,
            deadline,
            requests_kept,
            serial: AtomicU64::new(random()),
        };
        Ok(RedisStore { client: Arc::new(client), episodes: Arc::new(Episodes::default()) })
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { servers, connections, deadline, break_after, requests_kept, prefix, secret, callers, clock } = self;
        f.debug_struct("RedisStoreBuilder")
            .field("servers", &servers.as_ref().map(drop))
            .field("connections", connections)
            .field("deadline", deadline)
            .field("break_after", break_after)
            .field("remember_requests", requests_kept)
            .field("prefix", prefix)
            .field("has_secret", &secret.is_some())
            .field("callers", callers)
            .field("has_clock", &clock.is_some())
            .finish()
    }
}
