//! A group on a clock that the test moves, whichever store counts.

use std::time::Duration;

use tower_quota::testing::FakeClock;
use tower_quota::{Clock, Cooldown, CooldownAxis, Group, MINUTE, MemoryStore, RedisStore, SECOND, Store};

use crate::support::Server;

/// Lets all tasks go on until they wait for something; a store over a network takes a moment.
async fn settle(is_remote: bool) {
    for _ in 0..if is_remote { 5 } else { 0 } {
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Runs a scenario over a store in memory, and over one in Redis.
macro_rules! in_memory_and_in_redis {
    ($scenario:ident) => {
        mod $scenario {
            use super::*;

            #[tokio::test]
            async fn in_memory() {
                $scenario(Relay::in_memory()).await;
            }

            #[tokio::test]
            async fn in_redis() {
                $scenario(Relay::in_redis()).await;
            }
        }
    };
}
pub(super) use in_memory_and_in_redis;

/// A group on a clock, and what is the same whichever store counts.
pub(super) struct Relay {
    pub(super) group: Group,
    pub(super) clock: FakeClock,
    server: Option<Server>,
}

impl Relay {
    pub(super) fn over(store: impl Store, clock: &FakeClock, server: Option<Server>) -> Self {
        let group = Group::new("relay", store).unwrap();
        Self { group, clock: clock.clone(), server }
    }

    pub(super) fn in_memory() -> Self {
        let clock = FakeClock::new();
        Self::over(MemoryStore::with_clock(clock.clone()), &clock, None)
    }

    pub(super) fn in_redis() -> Self {
        let (clock, server) = (FakeClock::new(), Server::start());
        let store = RedisStore::builder(&server.url()).clock(clock.clone()).deadline(5 * SECOND).build().unwrap();
        Self::over(store, &clock, Some(server))
    }

    pub(super) fn push(&self) -> CooldownAxis {
        self.group.cooldown("school", Cooldown::after_attempts(5_000).rest(3 * MINUTE)).build().unwrap()
    }

    pub(super) async fn settle(&self) {
        settle(self.server.is_some()).await;
    }

    /// Asks the server, and goes away before it answers.
    pub(super) async fn abandon(&self, future: impl Future) {
        let server = self.server.as_ref().expect("a store in memory answers at once");
        server.pause();
        let answer = tokio::time::timeout(Duration::from_millis(20), future).await;
        server.go_on();
        assert!(answer.is_err(), "the server did not hang");
        self.settle().await;
    }

    /// Moves the clock from one sleeper's time to the next until nobody sleeps; how long that took by the clock.
    pub(super) async fn run(&self) -> Duration {
        let started = self.clock.now();
        self.settle().await;
        while let Some(time) = self.clock.next_wake() {
            self.clock.advance(time);
            self.settle().await;
        }
        self.clock.now() - started
    }
}
