//! Whatever the server does, a decision ends within its deadline.

use std::time::{Duration, Instant};

use tower_quota::{ChargeError, CountedBy, OnStoreFailure, RedisStore, StoreErrorKind};

use super::Items;
use crate::support::{Log, Proxy, Server, Wire};

const DEADLINE: Duration = Duration::from_millis(50);
/// What a machine that is busy with other tests may add.
const SLACK: Duration = Duration::from_millis(500);

async fn timed(items: &Items) -> (CountedBy, Duration) {
    let started = Instant::now();
    let by = items.charge("alice").await.unwrap();
    (by, started.elapsed())
}

/// Charges at some 500 a second, one after the other, until the store counts again; how many it did not, and how long
/// that took.
async fn until_counted(items: &Items) -> (u32, Duration) {
    let started = Instant::now();
    let mut uncounted = 0;
    while items.charge("alice").await.unwrap() == CountedBy::Nobody {
        uncounted += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(started.elapsed() < Duration::from_secs(20), "it does not recover");
    }
    (uncounted, started.elapsed())
}

#[tokio::test]
async fn t44_a_server_that_hangs_costs_a_deadline_until_the_breaker_opens_and_then_nothing() {
    let log = Log::start();
    let server = Server::start();
    let items = Items::over(RedisStore::connect(&server.url()).unwrap(), 1_000_000, 1_000_000);
    items.charge("alice").await.unwrap();

    server.pause();
    for failure in 1..=20 {
        let (by, took) = timed(&items).await;
        assert_eq!(by, CountedBy::Nobody, "failure {failure}");
        assert!(took < DEADLINE + SLACK, "failure {failure} took {took:?}");
    }
    // The first of these is a probe; what comes after it does not wait.
    timed(&items).await;
    let started = Instant::now();
    let mut uncounted = 0_u32;
    while uncounted < 10_000 {
        assert_eq!(items.charge("alice").await, Ok(CountedBy::Nobody));
        uncounted += 1;
    }
    let each = started.elapsed() / uncounted;
    assert!(each < Duration::from_millis(1), "with the breaker open a decision took {each:?}");

    server.go_on();
    let (_, recovered) = until_counted(&items).await;
    assert!(recovered < Duration::from_secs(1) + SLACK, "it took {recovered:?} to recover");
    tokio::time::sleep(Duration::from_secs(1)).await;
    items.charge("alice").await.unwrap();
    let lines = log.lines("tower_quota::store");
    assert!((1..=5).contains(&lines.len()), "{lines:#?}");
    assert!(lines[0].contains("decisions without the store"), "{lines:#?}");
    assert!(lines.last().unwrap().contains("the store answers again"), "{lines:#?}");
}

#[tokio::test]
async fn a_wire_that_swallows_everything_costs_a_deadline_also_while_connecting() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    proxy.set(Wire::Vanishes);
    let items = Items::over(RedisStore::connect(&proxy.url()).unwrap(), 100, 100);
    for _ in 0..3 {
        let (by, took) = timed(&items).await;
        assert!(by == CountedBy::Nobody && took < DEADLINE + SLACK, "{took:?}");
    }
    proxy.set(Wire::Works);
    let (_, recovered) = until_counted(&items).await;
    assert!(recovered < Duration::from_secs(2), "{recovered:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_failure_at_once_and_the_process_starts_without_it() {
    let mut server = Server::start();
    server.stop();
    let items = Items::over(RedisStore::connect(&server.url()).unwrap(), 100, 100);
    for _ in 0..100 {
        let (by, took) = timed(&items).await;
        assert!(by == CountedBy::Nobody && took < DEADLINE + SLACK, "{took:?}");
    }
    server.start_again();
    let (_, recovered) = until_counted(&items).await;
    assert!(recovered < Duration::from_secs(1) + SLACK, "{recovered:?}");
}

#[tokio::test]
async fn a_name_that_is_none_and_a_port_that_speaks_otherwise_are_failures_too() {
    let other = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let silent = format!("redis://127.0.0.1:{}/", other.local_addr().unwrap().port());
    for url in ["redis://no-such-host.invalid/", &silent, "redis+unix:///no/such/socket"] {
        let items = Items::over(RedisStore::connect(url).unwrap(), 100, 100);
        let (by, took) = timed(&items).await;
        assert!(by == CountedBy::Nobody && took < DEADLINE + SLACK, "{url}: {took:?}");
    }
}

#[tokio::test]
async fn a_server_that_restarts_under_load_is_found_again() {
    let mut server = Server::start();
    let items = Items::over(RedisStore::connect(&server.url()).unwrap(), 1_000_000, 1_000_000);
    for _ in 0..3 {
        for _ in 0..50 {
            assert_eq!(items.charge("alice").await, Ok(CountedBy::Store));
        }
        server.stop();
        for _ in 0..50 {
            items.charge("alice").await.unwrap();
        }
        server.start_again();
        let (_, recovered) = until_counted(&items).await;
        assert!(recovered < Duration::from_secs(1) + SLACK, "{recovered:?}");
    }
}

#[tokio::test]
async fn an_idle_connection_that_was_ended_is_made_anew_before_it_is_used() {
    let server = Server::start();
    let items = Items::over(RedisStore::connect(&server.url()).unwrap(), 100, 100);
    for _ in 0..20 {
        assert_eq!(items.charge("alice").await, Ok(CountedBy::Store));
        let ended: u64 = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").query(&mut server.look()).unwrap();
        assert!(ended >= 1);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_options_are_what_they_say() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let store = RedisStore::builder(&proxy.url())
        .deadline(Duration::from_millis(300))
        .break_after(2)
        .connections(3)
        .build()
        .unwrap();
    let items = Items::with_policy(store, 100, 100, OnStoreFailure::Closed);
    for _ in 0..6 {
        assert_eq!(items.charge("alice").await, Ok(CountedBy::Store));
    }
    assert_eq!(proxy.connections(), 3, "connections");
    proxy.set(Wire::SwallowsReplies);
    let mut reasons = Vec::new();
    for failure in 1..=2 {
        let started = Instant::now();
        let Err(ChargeError::Store(error)) = items.charge("alice").await else { panic!("closed") };
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(started.elapsed() >= Duration::from_millis(300), "deadline, failure {failure}");
        reasons.push(error.to_string());
    }
    let probe = items.charge("alice").await.unwrap_err().to_string();
    let Err(ChargeError::Store(error)) = items.charge("alice").await else { panic!("closed") };
    assert!(reasons.iter().all(|reason| reason.contains("no answer within the deadline")), "{reasons:?}");
    assert!(probe.contains("no answer within the deadline"), "{probe}");
    assert!(error.to_string().contains("has not answered for a while"), "break_after: {error}");
}

#[test]
fn a_store_outlives_a_runtime() {
    let server = Server::start();
    // Made outside of any, and used in one after the other.
    let items = Items::over(RedisStore::connect(&server.url()).unwrap(), 100, 100);
    for round in 1..=3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let verdict = runtime.block_on(async {
            // The connection of the runtime before has ended with it.
            let _ = items.charge("bob").await;
            items.both.charge("alice", 1).await.unwrap()
        });
        assert_eq!(verdict.reports()[0].used(), round);
    }
}

#[test]
fn outside_of_a_runtime_a_decision_is_a_failure_that_says_so() {
    let store = RedisStore::connect("redis://127.0.0.1:1/").unwrap();
    let items = Items::with_policy(store, 1, 1, OnStoreFailure::Closed);
    let outcome = futures_util::future::FutureExt::now_or_never(items.both.charge("a", 1).into_future());
    match outcome {
        Some(Err(ChargeError::Store(error))) => assert!(error.to_string().contains("tokio runtime"), "{error}"),
        other => panic!("{other:?}"),
    }
}
