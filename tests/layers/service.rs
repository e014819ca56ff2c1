//! What a quota layer does as a tower service.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Empty, Full};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_quota::testing::FakeClock;
use tower_quota::{
    AnswerBody, CountedBy, GlobalCapacityLayer, Group, HOUR, Key, Metered, MeteredFuture, OnStoreFailure, Quota,
    QuotaLayer, Rejection, RequestMeter, SECOND, UserQuotaLayer, key,
};
use tower_test::mock;

use crate::support::{Body, SlowStore, accepting, answer, group, header, request, status};

/// An account's quota and a capacity, in a group.
pub(super) fn layer(group: &Group, per_account: u64, in_all: u64) -> QuotaLayer {
    let account = group.per_key("account", Quota::fixed_window(per_account, HOUR)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(in_all, HOUR)).build().unwrap();
    let account = UserQuotaLayer::new(&account, key::header("x-account").unwrap());
    account.and(GlobalCapacityLayer::new(&capacity)).unwrap()
}

/// The same, over a store that answers later.
fn slow_layer(per_account: u64, in_all: u64) -> QuotaLayer {
    layer(&Group::new("test", SlowStore::new(FakeClock::new())).unwrap(), per_account, in_all)
}

#[tokio::test]
async fn an_account_at_its_limit_gets_429_even_while_the_service_is_full() {
    let service = layer(&group().0, 1, 2).layer(accepting());
    assert_eq!(status(&service, request("alice")).await, 202);
    assert_eq!(status(&service, request("alice")).await, 429);
    assert_eq!(status(&service, request("bob")).await, 202);
    assert_eq!(status(&service, request("alice")).await, 429);
    assert_eq!(status(&service, request("carol")).await, 503);
}

#[tokio::test]
async fn a_503_leaves_the_account_all_that_it_had() {
    let (group, clock) = group();
    let account = group.per_key("account", Quota::fixed_window(3, 2 * HOUR)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(5, HOUR)).build().unwrap();
    let account = UserQuotaLayer::new(&account, key::header("x-account").unwrap());
    let layer = account.and(GlobalCapacityLayer::new(&capacity)).unwrap();
    let service = layer.layer(accepting());
    for account in ["bob", "bob", "bob", "carol", "carol"] {
        assert_eq!(status(&service, request(account)).await, 202);
    }
    for _ in 0..100 {
        assert_eq!(status(&service, request("alice")).await, 503);
    }
    clock.advance(HOUR);
    for expected in [202, 202, 202, 429] {
        assert_eq!(status(&service, request("alice")).await, expected);
    }
}

#[tokio::test]
async fn each_layer_is_usable_alone() {
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(1, HOUR)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(1, HOUR)).build().unwrap();
    let user = UserQuotaLayer::new(&account, key::header("x-account").unwrap()).layer(accepting());
    let global = GlobalCapacityLayer::new(&capacity).layer(accepting());
    for (expected_of_user, expected_of_global) in [(202, 202), (429, 503)] {
        assert_eq!(status(&user, request("alice")).await, expected_of_user);
        assert_eq!(status(&global, request("alice")).await, expected_of_global);
    }
    assert_eq!(status(&user, request("bob")).await, 202);
}

#[tokio::test]
async fn the_cost_is_read_from_the_head_of_the_request() {
    let cost = |parts: &tower_quota::Parts| parts.uri.path().len();
    let service = layer(&group().0, 10, 100).cost(cost).layer(accepting());
    let of = |path: &str| Request::get(path).header("x-account", "alice").body(Body::default()).unwrap();
    assert_eq!(status(&service, of("/2345")).await, 202);
    assert_eq!(status(&service, of("/234567")).await, 429);
    assert_eq!(status(&service, of("/2345")).await, 202);
    assert_eq!(status(&service, of("/2345678901")).await, 422);
}

#[tokio::test]
async fn skipped_requests_are_not_counted_and_need_no_key() {
    let is_health = |parts: &tower_quota::Parts| parts.uri.path() == "/health";
    let service = layer(&group().0, 1, 1).skip(is_health).layer(accepting());
    for _ in 0..10 {
        assert_eq!(status(&service, Request::get("/health").body(Body::default()).unwrap()).await, 202);
    }
    assert_eq!(status(&service, request("alice")).await, 202);
    assert_eq!(status(&service, request("alice")).await, 429);
}

#[tokio::test]
async fn a_plan_chooses_the_quota() {
    let (group, _clock) = group();
    let axis = group.per_key("account", Quota::fixed_window(1, HOUR)).build().unwrap();
    let paid = axis.quota().with_limit(3).unwrap();
    let layer = UserQuotaLayer::new(&axis, key::header("x-account").unwrap())
        .quota_by(move |parts| parts.headers.contains_key("x-paid").then_some(paid));
    let service = layer.layer(accepting());
    let paying = || {
        let mut request = request("alice");
        request.headers_mut().insert("x-paid", "1".parse().unwrap());
        request
    };
    assert_eq!(status(&service, request("alice")).await, 202);
    assert_eq!(status(&service, request("alice")).await, 429);
    assert_eq!(status(&service, paying()).await, 202);
    assert_eq!(status(&service, paying()).await, 202);
    assert_eq!(status(&service, paying()).await, 429);
}

#[tokio::test]
async fn a_key_may_come_from_an_extension_or_a_function() {
    #[derive(Clone)]
    struct Account(u64);
    let (group, _clock) = group();
    let axis = group.per_key("account", Quota::fixed_window(1, HOUR)).build().unwrap();
    let by_extension = UserQuotaLayer::new(&axis, key::extension(|account: &Account| account.0)).layer(accepting());
    let of = |account| {
        let mut request = request("");
        request.extensions_mut().insert(Account(account));
        request
    };
    assert_eq!(status(&by_extension, of(1)).await, 202);
    assert_eq!(status(&by_extension, of(1)).await, 429);
    assert_eq!(status(&by_extension, of(2)).await, 202);
    assert_eq!(status(&by_extension, request("")).await, 400);

    let last = |parts: &tower_quota::Parts| parts.uri.path().rsplit('/').next().map(tower_quota::Key::from);
    let by_path = UserQuotaLayer::new(&axis, key::from_fn(last)).layer(accepting());
    let at = |path: &str| Request::get(path).body(Body::default()).unwrap();
    assert_eq!(status(&by_path, at("/a/x")).await, 202);
    assert_eq!(status(&by_path, at("/b/x")).await, 429);
}

#[tokio::test]
async fn a_request_is_passed_on_unchanged_and_an_error_too() {
    let layer = UserQuotaLayer::new(
        &group().0.per_key("account", "5/h").build().unwrap(),
        key::from_fn(|_| tower_quota::Key::from("all")),
    );
    let (service, mut handle) = mock::pair::<Request<&'static str>, Response<Body>>();
    let mut service = layer.layer(service);
    handle.allow(1);
    let response = service.ready().await.unwrap().call(Request::post("/path").body("body").unwrap());
    let answering = async {
        let (request, respond) = handle.next_request().await.unwrap();
        assert_eq!((request.uri().path(), *request.body()), ("/path", "body"));
        respond.send_error("broken");
    };
    let (response, ()) = tokio::join!(response, answering);
    assert_eq!(response.unwrap_err().to_string(), "broken");
}

#[tokio::test]
async fn a_closed_axis_refuses_as_its_kind_does_and_for_as_long_as_it_says() {
    let (group, _clock) = group();
    let account = group.per_key("account", "fixed 0/h").retry_when_closed(7 * SECOND).build().unwrap();
    let capacity = group.shared("capacity", "fixed 0/h").build().unwrap();
    let user = UserQuotaLayer::new(&account, key::header("x-account").unwrap()).layer(accepting());
    let global = GlobalCapacityLayer::new(&capacity).layer(accepting());
    let refused = answer(&user, request("alice")).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (429, Some("7")));
    let refused = answer(&global, request("alice")).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (503, Some("60")));
}

#[tokio::test]
async fn a_store_that_answers_later_decides_alike() {
    let service = slow_layer(2, 3).layer(accepting());
    for (account, expected) in
        [("alice", 202), ("alice", 202), ("alice", 429), ("bob", 202), ("bob", 503), ("alice", 429)]
    {
        assert_eq!(status(&service, request(account)).await, expected);
    }
}

#[tokio::test]
async fn a_store_that_cannot_answer_is_answered_by_the_failure_policy() {
    let local = OnStoreFailure::Local { percent: 50 };
    for (policy, expected, counted_by) in [
        (OnStoreFailure::Open, [202, 202, 202], Some(CountedBy::Nobody)),
        (OnStoreFailure::Closed, [503, 503, 503], None),
        (local, [202, 202, 429], Some(CountedBy::LocalShare)),
    ] {
        let group = Group::builder("test").on_store_failure(policy).build(SlowStore::failing()).unwrap();
        let layer = layer(&group, 4, 100);
        let service = layer.clone().layer(accepting());
        for expected in expected {
            let answer = answer(&service, request("alice")).await;
            assert_eq!(answer.status(), expected, "{policy:?}");
            assert_eq!(answer.extensions().get::<CountedBy>().copied(), counted_by, "{policy:?}");
        }
        let handler = service_fn(|request: Request<Body>| async move {
            let meter = request.extensions().get::<RequestMeter>().unwrap();
            Ok::<_, std::convert::Infallible>(match meter.charge(1).await {
                Ok(_) => Response::new(Full::default()),
                Err(rejection) => rejection.to_response(),
            })
        });
        let by_handler = layer.charged_by_handler().layer(handler);
        let answer = answer(&by_handler, request("bob")).await;
        assert_eq!(answer.extensions().get::<CountedBy>().copied(), counted_by, "{policy:?}, by the handler");
    }
}

#[tokio::test]
async fn what_the_store_counted_says_nothing_more() {
    let service = layer(&group().0, 1, 10).layer(accepting());
    for expected in [202, 429] {
        let answer = answer(&service, request("alice")).await;
        assert_eq!((answer.status().as_u16(), answer.extensions().get::<CountedBy>()), (expected, None));
    }
}

#[tokio::test]
async fn a_request_with_an_id_is_charged_once() {
    let slow = Group::new("test", SlowStore::new(FakeClock::new())).unwrap();
    for group in [group().0, slow] {
        let id = |parts: &tower_quota::Parts| Some(Key::new(parts.headers.get("idempotency-key")?));
        let service = layer(&group, 2, 10).request_id(id).layer(accepting());
        let with_id = |id: &str| {
            let mut request = request("alice");
            request.headers_mut().insert("idempotency-key", id.parse().unwrap());
            request
        };
        for (id, expected) in [("one", 202), ("one", 202), ("two", 202), ("one", 202), ("three", 429)] {
            assert_eq!(status(&service, with_id(id)).await, expected, "{id}");
        }
        assert_eq!(status(&service, request("bob")).await, 202, "without one");
    }
}

#[tokio::test]
async fn a_closed_store_is_a_failure_of_the_service_and_no_refusal_of_the_caller() {
    let closed = Group::builder("test").on_store_failure(OnStoreFailure::Closed).build(SlowStore::failing()).unwrap();
    let service = layer(&closed, 1, 1).layer(accepting());
    let answer = answer(&service, request("alice")).await;
    assert_eq!((answer.status().as_u16(), header(&answer, "retry-after")), (503, Some("1")));
    assert_eq!(Rejection::of(&answer).unwrap().reason(), tower_quota::Reason::StoreFailed);
}

#[tokio::test]
async fn a_refused_request_never_reaches_the_service() {
    let calls = AtomicUsize::new(0);
    let service = service_fn(|_: Request<Body>| {
        calls.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, std::convert::Infallible>(Response::new(Body::default())) }
    });
    let service = layer(&group().0, 2, 10).layer(service);
    for _ in 0..20 {
        status(&service, request("alice")).await;
    }
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

/// A service that counts how often it is cloned.
struct CountsClones<S> {
    inner: S,
    clones: Arc<AtomicUsize>,
}

impl<S: Clone> Clone for CountsClones<S> {
    fn clone(&self) -> Self {
        self.clones.fetch_add(1, Ordering::Relaxed);
        Self { inner: self.inner.clone(), clones: Arc::clone(&self.clones) }
    }
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for CountsClones<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        self.inner.call(request)
    }
}

#[tokio::test]
async fn the_inner_service_is_cloned_only_for_a_request_that_has_to_wait() {
    for (layer, expected) in [(layer(&group().0, 3, 5), 0), (slow_layer(3, 5), 10)] {
        let clones = Arc::new(AtomicUsize::new(0));
        let mut service = layer.layer(CountsClones { inner: accepting(), clones: Arc::clone(&clones) });
        for (account, status) in [("alice", 202), ("alice", 202), ("alice", 202), ("alice", 429), ("alice", 429)]
            .into_iter()
            .chain([("bob", 202), ("bob", 202), ("bob", 503), ("carol", 503), ("alice", 429)])
        {
            let answer = service.ready().await.unwrap().call(request(account)).await.unwrap();
            assert_eq!(answer.status(), status, "{account}");
        }
        assert_eq!(clones.load(Ordering::Relaxed), expected);
    }
}

/// What users rely on to name and to store these types; it holds if it compiles.
#[test]
fn types_are_nameable_and_bodies_may_be_of_any_kind() {
    struct Client<S> {
        service: Metered<S>,
    }

    fn send<T: Send>(_: &T) {}
    fn send_and_sync<T: Send + Sync>() {}
    fn default<T: Default>() {}
    fn nameable<S: Service<Request<B>>, B>(_: MeteredFuture<S, B>) {}

    // The request's body is no `Body` at all, the response's is another type.
    let service =
        service_fn(|_: Request<u8>| async { Ok::<_, std::convert::Infallible>(Response::new(Empty::<Bytes>::new())) });
    let client = Client { service: layer(&group().0, 1, 1).layer(service) };
    let mut service: Metered<_> = client.service;
    let response = service.call(Request::new(7));
    send(&response);
    nameable(response);

    send_and_sync::<AnswerBody<Full<Bytes>>>();
    default::<AnswerBody<Full<Bytes>>>();
    send_and_sync::<QuotaLayer>();
    send_and_sync::<Metered<()>>();
    send_and_sync::<Rejection>();
}

#[test]
fn services_give_access_to_what_is_inside() {
    let mut service = layer(&group().0, 1, 1).layer(7);
    *service.get_mut() += 1;
    assert_eq!((*service.get_ref(), service.into_inner()), (8, 8));
}
