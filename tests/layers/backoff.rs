//! Pauses that an upstream asks for, around clients.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use tower::{Layer, Service, service_fn};
use tower_quota::testing::FakeClock;
use tower_quota::{
    BackoffLayer, Clock, Group, Key, MINUTE, MemoryStore, Reason, RedisStore, Rejection, SECOND, Store, key,
};

use crate::support::{Body, Server, account, answer, group, header, request, status};

/// A status, and what `Retry-After` says.
type Told = (u16, Option<String>);

/// An upstream that answers as it is told, and counts its calls.
#[derive(Clone, Default)]
struct Upstream {
    answer: Arc<Mutex<Vec<Told>>>,
    calls: Arc<AtomicUsize>,
}

impl Upstream {
    fn answers(&self, status: u16, retry_after: Option<&str>) {
        self.answer.lock().unwrap().push((status, retry_after.map(str::to_owned)));
    }

    fn service(
        &self,
    ) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + use<> {
        let upstream = self.clone();
        service_fn(move |_: Request<Body>| {
            upstream.calls.fetch_add(1, Ordering::SeqCst);
            let (status, retry_after) = upstream.answer.lock().unwrap().pop().unwrap_or((200, None));
            let mut response = Response::builder().status(status);
            if let Some(retry_after) = retry_after {
                response = response.header("retry-after", retry_after);
            }
            let response = response.body(Body::default()).unwrap();
            async { Ok(response) }
        })
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

async fn an_upstream_is_left_alone_as_long_as_it_asks(store: impl Store, clock: FakeClock) {
    let group = Group::new("upstream", store).unwrap();
    let axis = group.backoff("account").at_most(10 * MINUTE).build().unwrap();
    let upstream = Upstream::default();
    let layer = BackoffLayer::new(&axis, account());
    let service = layer.layer(upstream.service());
    let settle = || tokio::time::sleep(Duration::from_millis(30));
    for (status, retry_after, expected) in [
        (429, Some("30"), 30),
        (503, Some("7"), 7),
        (429, Some("0"), 1),
        (429, Some("999999"), 600),
        (429, None, 1),
        (429, Some("soon"), 1),
        (503, None, 0),
        (503, Some("soon"), 0),
        (500, Some("30"), 0),
        (200, Some("30"), 0),
    ] {
        upstream.answers(status, retry_after);
        let passed_on = answer(&service, request("a")).await;
        assert_eq!((passed_on.status().as_u16(), header(&passed_on, "retry-after")), (status, retry_after));
        assert!(Rejection::of(&passed_on).is_none(), "the upstream's own");
        settle().await;
        let called = upstream.calls();
        if expected > 0 {
            let paused = answer(&service, request("a")).await;
            let told = expected.to_string();
            assert_eq!(
                (paused.status().as_u16(), header(&paused, "retry-after")),
                (503, Some(&*told)),
                "{retry_after:?}"
            );
            assert_eq!(Rejection::of(&paused).unwrap().reason(), Reason::UpstreamPaused);
            assert_eq!(upstream.calls(), called, "it is not called");
            assert_eq!(answer(&service, request("b")).await.status(), 200, "other keys go on");
            clock.advance(Duration::from_secs(expected));
        }
        assert_eq!(answer(&service, request("a")).await.status(), 200, "{status} {retry_after:?}");
    }
    // A shorter pause does not end a longer one.
    axis.pause(&Key::from("a"), 20 * SECOND).await.unwrap();
    axis.pause(&Key::from("a"), 5 * SECOND).await.unwrap();
    assert_eq!(axis.paused_for(&Key::from("a")).await.unwrap(), 20 * SECOND);
}

#[tokio::test]
async fn an_upstream_is_left_alone_as_long_as_it_asks_in_memory() {
    let clock = FakeClock::new();
    an_upstream_is_left_alone_as_long_as_it_asks(MemoryStore::with_clock(clock.clone()), clock).await;
}

#[tokio::test]
async fn an_upstream_is_left_alone_as_long_as_it_asks_in_redis() {
    let (clock, server) = (FakeClock::new(), Server::start());
    let store = || RedisStore::builder(&server.url()).clock(clock.clone()).deadline(5 * SECOND).build().unwrap();
    an_upstream_is_left_alone_as_long_as_it_asks(store(), clock.clone()).await;
    // What one instance is told, the others keep to.
    let instance = || Group::new("upstream", store()).unwrap().backoff("account").build().unwrap();
    let (told, other) = (instance(), instance());
    let upstream = Upstream::default();
    upstream.answers(429, Some("30"));
    assert_eq!(status(&BackoffLayer::new(&told, account()).layer(upstream.service()), request("shared")).await, 429);
    tokio::time::sleep(Duration::from_millis(30)).await;
    clock.advance(10 * SECOND);
    assert_eq!(other.paused_for(&Key::from("shared")).await.unwrap(), 20 * SECOND);
    let paused = answer(&BackoffLayer::new(&other, account()).layer(upstream.service()), request("shared")).await;
    assert_eq!((paused.status().as_u16(), header(&paused, "retry-after")), (503, Some("20")));
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test]
async fn t27_those_who_wait_come_back_later_than_told_and_not_all_at_once() {
    let (group, clock) = group();
    let axis = group.backoff("upstream").build().unwrap();
    let upstream = Upstream::default();
    upstream.answers(429, Some("600"));
    let service = BackoffLayer::new(&axis, key::constant("all")).wait_up_to(20 * MINUTE).layer(upstream.service());
    assert_eq!(status(&service, request("a")).await, 429);
    let (started, back) = (clock.now(), Arc::new(Mutex::new(Vec::new())));
    let workers: Vec<_> = (0..20)
        .map(|_| {
            let (service, clock, back) = (service.clone(), clock.clone(), Arc::clone(&back));
            tokio::spawn(async move {
                assert_eq!(status(&service, request("a")).await, 200);
                back.lock().unwrap().push((clock.now() - started).as_secs());
            })
        })
        .collect();
    loop {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let Some(time) = clock.next_wake() else { break };
        clock.advance(time);
    }
    join_all(workers).await;
    let back = back.lock().unwrap().clone();
    assert!(back.iter().all(|second| (600..=630).contains(second)), "{back:?}");
    assert!(back.iter().collect::<HashSet<_>>().len() > 5, "{back:?}");
}

#[test]
fn a_pause_that_cannot_work_does_not_build() {
    let (group, _clock) = group();
    let short = group.backoff("a").at_most(SECOND / 2).build();
    assert_eq!(short.unwrap_err().field(), "test.a.at_most");
    assert_eq!(group.backoff("a b").build().unwrap_err().field(), "test.axis.name");
}
