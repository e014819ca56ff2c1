//! Where the counters live, and for how long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tower_quota::testing::FakeClock;
use tower_quota::{GlobalCapacityLayer, Group, Key, MemoryStore, Meter, Quota, SECOND};

use crate::support::{MILLI, charge, group};

/// 1,500 requests over 1,500 connections within a second, at 5 a second: exactly 5 are admitted.
#[tokio::test]
async fn t35_the_limit_is_not_per_connection() {
    let (group, _clock) = group();
    let axis = group.shared("axis", Quota::per_second(5)).build().unwrap();
    let app = Router::new().route("/", get(|| async { "ok" })).route_layer(GlobalCapacityLayer::new(&axis));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, app).into_future());

    let mut requests = JoinSet::new();
    for _ in 0..1_500 {
        requests.spawn(async move {
            let mut connection = TcpStream::connect(address).await.unwrap();
            connection.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            connection.read_to_end(&mut answer).await.unwrap();
            answer.starts_with(b"HTTP/1.1 200 OK\r\n")
        });
    }
    let admitted = requests.join_all().await.into_iter().filter(|admitted| *admitted).count();
    assert_eq!(admitted, 5);
}

/// 10 million addresses seen once within a minute, by a window of 10 s: memory stays within its bound, and is given back.
#[test]
fn t48_a_flood_of_keys_does_not_stay() {
    const ADDRESSES: u64 = 10_000_000;
    let clock = FakeClock::new();
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let group = Group::new("test", Arc::clone(&store)).unwrap();
    let axis = group.per_key("axis", Quota::fixed_window(10, 10 * SECOND)).build().unwrap();
    let meter = Meter::new(axis.by(|address: &u64| Key::from(*address)));
    let mut most = 0;
    for address in 0..ADDRESSES {
        if address % 1_000 == 0 {
            clock.advance(6 * MILLI);
            most = most.max(store.states());
        }
        let _ = charge(&meter, &address, 1);
    }
    assert!(most <= 1_000_000, "{most} counters were held");
    clock.advance(60 * SECOND);
    charge(&meter, &0, 1).unwrap_or_else(|_| panic!("there is room again"));
    for _ in 0..1_000 {
        if store.states() <= 1 {
            return;
        }
        clock.advance(10 * MILLI);
        charge(&meter, &0, 0).unwrap();
    }
    panic!("{} counters stayed", store.states());
}

/// Counters are forgotten in small steps, so no decision waits long for it.
#[test]
fn t48_forgetting_a_million_counters_stops_nobody() {
    let clock = FakeClock::new();
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let group = Group::new("test", Arc::clone(&store)).unwrap();
    let axis = group.per_key("axis", Quota::fixed_window(10, SECOND)).build().unwrap();
    let meter = Meter::new(axis.by(|address: &u64| Key::from(*address)));
    for address in 0..1_000_000 {
        charge(&meter, &address, 1).unwrap();
    }
    clock.advance(60 * SECOND);
    let mut forgotten = Vec::new();
    while store.states() > 1 {
        let before = store.states();
        charge(&meter, &0, 1).unwrap_or_else(|_| panic!("one key has room"));
        clock.advance(SECOND);
        forgotten.push(before - store.states().min(before));
        assert!(forgotten.len() < 10_000, "{} counters stay", store.states());
    }
    let most = forgotten.iter().max().unwrap();
    assert!(*most <= 10_000, "{most} counters in one decision");
}

/// A limiter that is dropped leaves nothing behind: there is no thread to stop.
#[test]
fn t48_no_thread_belongs_to_a_store() {
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let started = Instant::now();
    // Other tests start and end threads meanwhile: look until it is quiet, for a while.
    while started.elapsed() < Duration::from_secs(20) {
        let before = threads();
        let store = Arc::new(MemoryStore::new());
        let group = Group::new("test", Arc::clone(&store)).unwrap();
        let meter = Meter::new(group.per_key("axis", "5/s").build().unwrap().by(|(): &()| Key::from("a")));
        let _ = charge(&meter, &(), 1);
        let after = threads();
        drop((meter, group));
        assert_eq!(Arc::strong_count(&store), 1, "something still holds the store");
        if before == after {
            return;
        }
    }
    panic!("the number of threads never stood still");
}
