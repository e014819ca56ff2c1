//! When services are ready, what they have reserved then, and that none is called before.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_quota::testing::FakeClock;
use tower_quota::{
    AnswerBody, BackoffLayer, ConcurrencyLayer, Cooldown, CooldownLayer, GlobalCapacityLayer, Group, HOUR, Key, Quota,
    SECOND, UserQuotaLayer, key,
};
use tower_test::mock;

use super::service::layer;
use crate::support::{Body, Probe, SlowStore, accepting, group, request, status};

#[tokio::test]
async fn poll_ready_only_asks_the_inner_service() {
    let (mut service, mut handle) = mock::spawn_layer::<Request<Body>, Response<Body>, _>(layer(&group().0, 1, 1));
    handle.allow(0);
    assert!(service.poll_ready().is_pending());
    handle.allow(1);
    assert!(service.poll_ready().is_ready());
    let response = service.call(request("alice"));
    let (_, respond) = handle.next_request().await.expect("the request is passed on");
    respond.send_response(Response::new(Body::default()));
    assert_eq!(response.await.unwrap().status(), 200);
    // Whether anything is left is nothing that readiness tells.
    handle.allow(1);
    assert!(service.poll_ready().is_ready());
    assert_eq!(service.call(request("alice")).await.unwrap().status(), 429);
}

/// Drives a layer around a service that panics when it is called unready, one request at a time and two at once.
async fn probe<L>(layer: L)
where
    L: Layer<Probe>,
    L::Service: Service<Request<Body>, Response = Response<AnswerBody<Body>>, Error = Infallible> + Clone,
{
    let probe = Probe::default();
    let calls = probe.calls();
    let mut service = layer.layer(probe);
    for _ in 0..3 {
        assert_eq!(service.ready().await.unwrap().call(request("alice")).await.unwrap().status(), 200);
        let clone = service.clone();
        assert_eq!(clone.oneshot(request("alice")).await.unwrap().status(), 200);
    }
    // Two under way at once: the service that was ready goes with its own request.
    let first = service.ready().await.unwrap().call(request("alice"));
    let second = service.ready().await.unwrap().call(request("alice"));
    let (first, second) = tokio::join!(first, second);
    assert_eq!((first.unwrap().status(), second.unwrap().status()), (StatusCode::OK, StatusCode::OK));
    assert_eq!(calls.load(Ordering::Relaxed), 8);
}

#[tokio::test]
async fn a_service_is_never_called_before_it_is_ready() {
    let slow = || Group::new("test", SlowStore::new(FakeClock::new())).unwrap();
    for group in [group().0, slow()] {
        let account = group.per_key("account", Quota::fixed_window(1_000, HOUR)).build().unwrap();
        let capacity = group.shared("capacity", Quota::fixed_window(1_000, HOUR)).build().unwrap();
        let user = UserQuotaLayer::new(&account, key::header("x-account").unwrap());
        let global = GlobalCapacityLayer::new(&capacity);
        let both = user.clone().and(global.clone()).unwrap();
        probe(user).await;
        probe(global).await;
        probe(both.clone().skip(|_| true)).await;
        probe(both.clone().charged_by_handler()).await;
        probe(both).await;
    }
}

/// A service that reserves one of so many slots when it becomes ready, for its next call.
struct Slots {
    free: Arc<AtomicUsize>,
    is_reserved: bool,
}

impl Clone for Slots {
    fn clone(&self) -> Self {
        Self { free: Arc::clone(&self.free), is_reserved: false }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.free.fetch_add(usize::from(self.is_reserved), Ordering::SeqCst);
    }
}

impl Service<Request<Body>> for Slots {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let take = |free: usize| free.checked_sub(1);
        if !self.is_reserved && self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.is_reserved = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_reserved), "called before it was ready");
        self.free.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Response::new(Body::default())))
    }
}

/// A request that waits has reserved nothing of the service behind, and gets it once it goes on.
async fn waits_without_a_slot<L, B>(layer: L, go_on: impl FnOnce())
where
    L: Layer<Slots>,
    L::Service: Service<Request<Body>, Response = Response<B>, Error = Infallible, Future: Send + 'static>,
    B: Send + 'static,
{
    let free = Arc::new(AtomicUsize::new(1));
    let mut service = layer.layer(Slots { free: Arc::clone(&free), is_reserved: false });
    let waiting = tokio::spawn(service.ready().await.unwrap().call(request("alice")));
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished());
    assert_eq!(free.load(Ordering::SeqCst), 1);
    go_on();
    assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
    assert_eq!(free.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn who_waits_reserves_nothing_of_the_service_behind() {
    let (group, clock) = group();
    let account = || key::header("x-account").unwrap();
    let advance = || clock.advance(20 * SECOND);

    let bucket = group.per_key("account", Quota::token_bucket(1, 1, 10 * SECOND)).build().unwrap();
    let quota = UserQuotaLayer::new(&bucket, account()).wait_up_to(HOUR);
    assert_eq!(status(&quota.layer(accepting()), request("alice")).await, 202);
    waits_without_a_slot(quota, advance).await;

    let school = group.cooldown("school", Cooldown::after_attempts(1).rest(10 * SECOND)).build().unwrap();
    let cooldown = CooldownLayer::new(&school, account()).wait_up_to(HOUR);
    assert_eq!(status(&cooldown.layer(accepting()), request("alice")).await, 202);
    waits_without_a_slot(cooldown, advance).await;

    let upstream = group.backoff("upstream").build().unwrap();
    upstream.pause(&Key::from("alice"), 10 * SECOND).await.unwrap();
    waits_without_a_slot(BackoffLayer::new(&upstream, account()).wait_up_to(HOUR), advance).await;

    let concurrency = ConcurrencyLayer::new(1).max_wait(HOUR);
    let endless = service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(http_body_util::StreamBody::new(futures_util::stream::pending::<
            Result<http_body::Frame<Bytes>, Infallible>,
        >())))
    });
    let held = concurrency.layer(endless).oneshot(request("bob")).await.unwrap();
    waits_without_a_slot(concurrency, move || drop(held)).await;
}
