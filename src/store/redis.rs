//! The shared store: counters in Redis.

mod breaker;
mod builder;
mod client;
#[cfg_attr(not(feature = "redis-cluster"), allow(dead_code, reason = "a cluster is a feature"))]
mod cluster;
mod connection;
mod episodes;
mod eviction;
mod fault;
mod names;
mod pool;
mod route;
mod script;
#[cfg(feature = "redis-sentinel")]
mod sentinel;

use std::fmt;
use std::sync::Arc;

use redis::Cmd;
use smallvec::SmallVec;

pub use self::builder::RedisStoreBuilder;
use self::client::Client;
#[cfg(fuzzing)]
pub use self::cluster::addresses_in;
use self::episodes::Episodes;
use self::script::{Circumstances, END, Findings, Found};
use crate::call_end::CallEnd;
use crate::config_error::ConfigError;
use crate::question::{Demand, Question, Terms};
use crate::settlement::Settlement;
use crate::store::contract::{Answer, Store, StoreError, StoreErrorKind};
use crate::verdict::Verdict;
use crate::watermark::Watermark;

#[doc = include_str!("redis/store.md")]
pub struct RedisStore {
    client: Arc<Client>,
    episodes: Arc<Episodes>,
}

impl RedisStore {
    /// A store in the Redis of this address, with default options: `redis://[user[:password]@]host[:port][/database]`,
    /// `rediss://` with feature `redis-tls`, `redis+unix://path`.
    ///
    /// Nothing is connected yet, so that it works anywhere and never waits: the first decision connects, on the tokio
    /// runtime that it is awaited on.
    ///
    /// # Errors
    ///
    /// `redis.url` of an address that cannot be used.
    pub fn connect(url: &str) -> Result<Self, ConfigError> {
        Self::builder(url).build()
    }

    /// A store in the Redis of this address, with options of its own.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::to(url)
    }

    /// A store in the Redis Cluster that these nodes belong to (feature `redis-cluster`): one that is there is enough to
    /// find the others. Credentials and TLS are those of the first address.
    ///
    /// All axes of a group live in one slot, by the group's name, and different groups spread over the slots. What a node
    /// says of a slot that has moved is followed within the deadline; a node that fails is waited for by the groups on it
    /// alone.
    #[cfg(feature = "redis-cluster")]
    pub fn cluster<'u>(urls: impl IntoIterator<Item = &'u str>) -> RedisStoreBuilder {
        RedisStoreBuilder::to_cluster(urls)
    }

    /// A store in the primary of this name, as these Sentinels tell it (feature `redis-sentinel`). They are asked anew
    /// for each connection, so that a promoted replica is followed; the deadline covers that.
    ///
    /// Credentials, the database and TLS are those of the first address, for Sentinels and primary alike.
    #[cfg(feature = "redis-sentinel")]
    pub fn sentinel<'u>(urls: impl IntoIterator<Item = &'u str>, name: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::to_sentinels(urls, name)
    }

    /// A store over a connection that the application made and looks after, such as a `ConnectionManager`: it is cloned
    /// for each decision, and never made anew. It must not send a command again by itself.
    pub fn over<C>(connection: C) -> RedisStoreBuilder
    where
        C: redis::aio::ConnectionLike + Clone + Send + Sync + 'static,
    {
        RedisStoreBuilder::over(connection)
    }
}

/// What is needed of a demand when its answer comes.
struct Asked {
    terms: Terms,
    watched: Option<(Watermark, String)>,
}

impl Asked {
    fn new(demand: &Demand<'_>, counter: &str) -> Self {
        let watched = demand.watermark.map(|watermark| (watermark.clone(), counter.to_owned()));
        Self { terms: demand.terms, watched }
    }
}

impl Store for RedisStore {
    fn decide(&self, question: &Question<'_>) -> Answer<Verdict> {
        let demands = question.demands();
        if demands.is_empty() {
            return Answer::Ready(Ok(Verdict::from_reports([])));
        }
        let client = &self.client;
        let slot = client.route.slot_of(demands[0].terms.group());
        let admission = match client.admit(slot) {
            Ok(admission) => admission,
            Err(blocked) => return Answer::Ready(Err(blocked)),
        };
        let counters: Vec<String> = demands.iter().map(|demand| client.names.counter(demand)).collect();
        let asked: SmallVec<[Asked; 4]> =
            demands.iter().zip(&counters).map(|(demand, counter)| Asked::new(demand, counter)).collect();
        let record =
            question.request_id().map(|id| (client.names.request(id, demands, &counters), client.requests_kept));
        let has_request_id = record.is_some();
        let serial = client.next_serial();
        let call = script::decide(demands, counters, Circumstances { serial, now: client.now(), record });

        let (client, episodes) = (Arc::clone(client), Arc::clone(&self.episodes));
        Answer::Pending(Box::pin(async move {
            let count = asked.len();
            let read = move |reply: &redis::Value| script::read(reply, serial, count);
            let decided = Arc::clone(&client).decide(slot, call, has_request_id, admission, read).await;
            let found = decided.map_err(|error| named(error, &asked))?;
            let Findings { at, found } = found;
            for (asked, found) in asked.iter().zip(&found) {
                if let Some((watermark, counter)) = &asked.watched {
                    episodes.look(&client, slot, counter, watermark, asked.terms, *found);
                }
            }
            let report = |(asked, found): (&Asked, &Found)| found.report(&asked.terms);
            Ok(Verdict::from_all(asked.iter().zip(&found).map(report).collect(), at))
        }))
    }

    fn settle(&self, settlement: &Settlement<'_>) -> Answer<Verdict> {
        let client = &self.client;
        let demands = settlement.charged.demands();
        let slot = client.route.slot_of(demands.first().map_or("", |demand| demand.terms.group()));
        if demands.is_empty() {
            return Answer::Ready(Ok(Verdict::from_reports([])));
        }
        if client.breakers.of(slot).is_open() {
            return Answer::Ready(Err(client::blocked()));
        }
        let counters: Vec<String> = demands.iter().map(|demand| client.names.counter(demand)).collect();
        let look = |demand: &Demand<'_>, counter: &String| {
            let mut asked = Asked::new(demand, counter);
            asked.terms.units = 0;
            asked
        };
        let asked: SmallVec<[Asked; 4]> =
            demands.iter().zip(&counters).map(|(demand, counter)| look(demand, counter)).collect();
        let serial = client.next_serial();
        let call = script::settle(settlement, &counters, serial, client.now());
        let client = Arc::clone(client);
        Answer::Pending(Box::pin(async move {
            let settled = client.settle(slot, call, |reply| script::read(reply, serial, asked.len())).await;
            let Findings { at, found } = settled.map_err(|error| named(error, &asked))?;
            let report = |(asked, found): (&Asked, &Found)| found.report(&asked.terms);
            Ok(Verdict::from_all(asked.iter().zip(&found).map(report).collect(), at))
        }))
    }

    fn reset(&self, question: &Question<'_>) -> Answer<()> {
        let mut delete: Cmd = redis::cmd("DEL");
        for demand in question.demands() {
            delete.arg(self.client.names.counter(demand));
        }
        let client = Arc::clone(&self.client);
        let slot = client.route.slot_of(question.demands().first().map_or("", |demand| demand.terms.group()));
        Answer::Pending(Box::pin(async move { client.send(slot, delete).await.map(drop) }))
    }

    fn end(&self, end: &CallEnd<'_>) -> Answer<()> {
        let call = script::end(end, self.client.names.counter(&end.demand), self.client.now());
        let client = Arc::clone(&self.client);
        let slot = client.route.slot_of(end.demand.terms.group());
        Answer::Pending(Box::pin(async move { client.call(slot, &END, Arc::new(call)).await.map(drop) }))
    }

    #[cfg(feature = "waiting")]
    fn clock(&self) -> &dyn crate::clock::Clock {
        self.client.clock.as_deref().unwrap_or(&crate::clock::Stopwatch)
    }
}

/// An error about one counter, with the axis that it belongs to: the script knows only its number.
fn named(error: StoreError, asked: &[Asked]) -> StoreError {
    if error.kind() != StoreErrorKind::Corrupt {
        return error;
    }
    let number = error.to_string().split_once("CORRUPT ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    let axis = number.and_then(|number: usize| asked.get(number.checked_sub(1)?));
    match axis {
        Some(Asked { terms, .. }) => error.because(format!(
            "a counter of axis {} has a value of another type or shape, as if something else wrote there: a reset of \
             the key clears it",
            terms.label.field()
        )),
        None => error,
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("deadline", &self.client.deadline).finish_non_exhaustive()
    }
}
