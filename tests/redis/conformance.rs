//! The suite that every store passes, over memory and every server that is supported; and the two stores side by side.

use std::thread;
use std::time::Duration;

use tower_quota::testing::{FakeClock, conformance, conformance_of_settlement, differential};
use tower_quota::{MemoryStore, RedisStore};

use crate::support::Server;

fn store(server: &Server, clock: FakeClock) -> RedisStore {
    RedisStore::builder(&server.url()).clock(clock).deadline(Duration::from_secs(10)).build().unwrap()
}

async fn redis_conforms(server: Server) {
    conformance(|clock| store(&server, clock)).await;
    conformance_of_settlement(|clock| store(&server, clock)).await;
}

#[tokio::test]
async fn the_memory_store_conforms() {
    conformance(MemoryStore::with_clock).await;
    conformance_of_settlement(MemoryStore::with_clock).await;
}

#[tokio::test]
async fn debians_redis_conforms() {
    redis_conforms(Server::start()).await;
}

#[tokio::test]
async fn redis_8_2_conforms() {
    redis_conforms(Server::other("redis-8.2")).await;
}

#[tokio::test]
async fn redis_6_2_conforms() {
    redis_conforms(Server::other("redis-6.2")).await;
}

#[tokio::test]
async fn valkey_8_1_conforms() {
    redis_conforms(Server::other("valkey-8.1")).await;
}

#[tokio::test]
async fn valkey_9_1_conforms() {
    redis_conforms(Server::other("valkey-9.1")).await;
}

/// A million operations, on eight threads.
#[test]
fn memory_and_redis_decide_alike() {
    const THREADS: u64 = 8;
    const RUNS: u64 = 25;
    const STEPS: u64 = 5_000;
    let server = Server::start();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let server = &server;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                for run in 0..RUNS {
                    let seed = thread * RUNS + run;
                    runtime.block_on(differential(|clock| store(server, clock), seed, STEPS));
                }
            });
        }
    });
}
