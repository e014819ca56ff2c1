//! Cooldowns around services.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_quota::{
    AttemptOutcome, BackoffLayer, ConcurrencyLayer, Cooldown, CooldownAxis, CooldownLayer, CountedBy, Group, HOUR, Key,
    MINUTE, OnStoreFailure, Rejection, SECOND, UserQuotaLayer, key,
};

use crate::support::{Body, Log, Probe, SlowStore, accepting, account, answer, group, header, request, status};

/// A service that answers as it is told.
fn answering(
    respond: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone {
    service_fn(move |_: Request<Body>| {
        let response = respond();
        async { Ok(response) }
    })
}

fn with_status(status: u16) -> impl Fn() -> Response<Body> + Clone {
    move || Response::builder().status(status).body(Body::default()).unwrap()
}

fn after(status: u16, seconds: &'static str) -> impl Fn() -> Response<Body> + Clone {
    move || Response::builder().status(status).header("retry-after", seconds).body(Body::default()).unwrap()
}

async fn wait_of(axis: &CooldownAxis, name: &str) -> Option<Duration> {
    match axis.begin(&Key::from(name), 0).await.and(axis.begin(&Key::from(name), 1).await) {
        Err(tower_quota::ChargeError::Refused(verdict)) => Some(verdict.wait()),
        _ => None,
    }
}

#[tokio::test]
async fn a_client_rests_after_so_many_attempts_well_or_not() {
    let (group, clock) = group();
    let axis = group.cooldown("school", Cooldown::after_attempts(5).rest(3 * MINUTE)).build().unwrap();
    let layer = CooldownLayer::new(&axis, account());
    let works = layer.layer(accepting());
    let broken =
        layer.layer(service_fn(|_: Request<Body>| async { Err::<Response<Body>, _>(std::io::Error::other("broken")) }));
    for _ in 0..2 {
        assert_eq!(status(&works, request("a")).await, 202);
        assert!(broken.clone().oneshot(request("a")).await.is_err());
    }
    assert_eq!(status(&layer.layer(answering(with_status(500))), request("a")).await, 500);
    let refused = answer(&works, request("a")).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (429, Some("180")));
    assert_eq!(Rejection::of(&refused).unwrap().axis(), Some("school"));
    assert_eq!(status(&works, request("b")).await, 202);
    clock.advance(3 * MINUTE);
    assert_eq!(status(&works, request("a")).await, 202);
}

#[tokio::test]
async fn a_request_may_be_several_attempts_and_what_does_not_fit_starts_the_rest() {
    let (group, clock) = group();
    let axis = group.cooldown("school", Cooldown::after_attempts(10).rest(MINUTE)).build().unwrap();
    let count = |parts: &tower_quota::Parts| parts.headers["x-count"].to_str().unwrap().parse().unwrap();
    let service = CooldownLayer::new(&axis, account()).attempts(count).layer(accepting());
    let of = |count: &str| {
        let mut request = request("a");
        request.headers_mut().insert("x-count", count.parse().unwrap());
        request
    };
    assert_eq!(status(&service, of("7")).await, 202);
    assert_eq!(status(&service, of("4")).await, 429);
    clock.advance(10 * SECOND);
    let refused = answer(&service, of("1")).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (429, Some("50")));
    clock.advance(50 * SECOND);
    assert_eq!(status(&service, of("11")).await, 422);
    assert_eq!(status(&service, of("many")).await, 500);
    assert_eq!(status(&service, of("10")).await, 202);
}

#[tokio::test]
async fn a_provider_s_retry_after_makes_a_rest_longer_up_to_a_bound() {
    let (group, _clock) = group();
    let axis = group.cooldown("school", Cooldown::after_attempts(2).rest(MINUTE)).build().unwrap();
    let layer = CooldownLayer::new(&axis, account()).rest_at_most(10 * MINUTE);
    assert_eq!(status(&layer.layer(answering(after(429, "90"))), request("a")).await, 429);
    assert_eq!(wait_of(&axis, "a").await, Some(90 * SECOND));
    assert_eq!(status(&layer.layer(answering(after(503, "999999999"))), request("b")).await, 503);
    assert_eq!(wait_of(&axis, "b").await, Some(10 * MINUTE));
    assert_eq!(status(&layer.layer(answering(after(200, "90"))), request("c")).await, 200);
    assert_eq!(wait_of(&axis, "c").await, None);
}

#[tokio::test]
async fn failures_are_told_by_the_status_a_function_or_the_handler() {
    let (group, _clock) = group();
    let rule = Cooldown::after_failures(2).within(15 * MINUTE).rest(15 * MINUTE);
    let axis = group.cooldown("account", rule).build().unwrap();
    let by_status = CooldownLayer::new(&axis, account());
    let by_function = by_status.clone().failed_when(|response| response.status == StatusCode::UNAUTHORIZED);
    let told = |outcome: AttemptOutcome| {
        answering(move || {
            let mut response = with_status(if outcome == AttemptOutcome::Failed { 200 } else { 401 })();
            response.extensions_mut().insert(outcome);
            response
        })
    };
    // One failure and a success, in each way of telling: it never locks.
    for _ in 0..3 {
        assert_eq!(status(&by_status.layer(answering(with_status(401))), request("a")).await, 401);
        assert_eq!(status(&by_status.layer(answering(with_status(200))), request("a")).await, 200);
        assert_eq!(status(&by_function.layer(answering(with_status(401))), request("a")).await, 401);
        assert_eq!(status(&by_function.layer(answering(with_status(404))), request("a")).await, 404);
        assert_eq!(status(&by_status.layer(told(AttemptOutcome::Failed)), request("a")).await, 200);
        assert_eq!(status(&by_status.layer(told(AttemptOutcome::Succeeded)), request("a")).await, 401);
    }
    let panics = by_status.clone().failed_when(|_| panic!("no outcome"));
    assert_eq!(status(&panics.layer(answering(with_status(200))), request("a")).await, 200);
    // A caller who goes in the middle has failed.
    let hangs =
        by_status.layer(service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>()));
    assert!(tokio::time::timeout(Duration::from_millis(20), hangs.oneshot(request("a"))).await.is_err());
    let refused = answer(&by_status.layer(accepting()), request("a")).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (429, Some("900")));
    let own = by_status
        .reject_with(|rejection, _| Response::builder().status(418).body(Body::from(rejection.to_string())).unwrap());
    assert_eq!(status(&own.layer(accepting()), request("a")).await, 418);
}

#[tokio::test]
async fn a_call_of_grpc_has_failed_by_the_status_in_its_head() {
    let (group, _clock) = group();
    let axis = group.cooldown("account", Cooldown::after_failures(2).rest(MINUTE)).build().unwrap();
    let layer = CooldownLayer::new(&axis, account());
    for (code, told) in [("16", 200), ("0", 200), ("16", 200), ("7", 200), ("0", 429)] {
        let respond = move || Response::builder().header("grpc-status", code).body(Body::default()).unwrap();
        assert_eq!(status(&layer.layer(answering(respond)), request("a")).await, told, "{code}");
    }
}

#[tokio::test]
async fn an_answer_tells_that_not_the_store_has_counted() {
    for (policy, told) in
        [(OnStoreFailure::Open, CountedBy::Nobody), (OnStoreFailure::Local { percent: 50 }, CountedBy::LocalShare)]
    {
        let group = Group::builder("test").on_store_failure(policy).build(SlowStore::failing()).unwrap();
        let axis = group.cooldown("school", Cooldown::after_attempts(2).rest(MINUTE)).build().unwrap();
        let service = CooldownLayer::new(&axis, account()).layer(accepting());
        for _ in 0..2 {
            let answer = answer(&service, request("a")).await;
            assert_eq!(answer.extensions().get(), Some(&told), "{}", answer.status());
        }
    }
}

/// A try to log in, from an address.
fn login(name: &str, address: &str, password: &str) -> Request<Body> {
    let mut request = request(name);
    request.headers_mut().insert("x-address", address.parse().unwrap());
    request.headers_mut().insert("x-password", password.parse().unwrap());
    request
}

async fn wrong_from_fifty_addresses<S, B>(logins: &S) -> Vec<u16>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone,
{
    let mut statuses = Vec::new();
    for host in 0..50 {
        statuses.push(status(logins, login("victim", &format!("10.0.0.{host}"), "wrong")).await);
    }
    statuses
}

#[tokio::test]
async fn t56_strangers_lock_an_account_unless_it_is_counted_together_with_their_address() {
    let (group, _clock) = group();
    let guard = |name: &str, failures: u64, key: tower_quota::RequestKey| {
        let rule = Cooldown::after_failures(failures).within(15 * MINUTE).rest(15 * MINUTE).kept_on_success();
        CooldownLayer::new(&group.cooldown(name, rule).build().unwrap(), key)
    };
    let address = || key::header("x-address").unwrap();
    let check = service_fn(|request: Request<Body>| async move {
        Ok::<_, Infallible>(with_status(if request.headers()["x-password"] == "right" { 200 } else { 401 })())
    });

    let by_account = guard("account", 10, account()).layer(check);
    assert_eq!(wrong_from_fifty_addresses(&by_account).await, [[401; 10].as_slice(), &[429; 40]].concat());
    assert_eq!(status(&by_account, login("victim", "192.0.2.7", "right")).await, 429, "its owner is locked out");

    // Each stranger has tries of its own, beside a bound for the address alone.
    let by_pair = guard("pair", 5, account().with(address())).layer(check);
    let by_both = guard("address", 10, address()).layer(by_pair);
    assert_eq!(wrong_from_fifty_addresses(&by_both).await, [401; 50]);
    assert_eq!(status(&by_both, login("victim", "192.0.2.7", "right")).await, 200, "its owner is let in");
    for expected in [401, 401, 401, 401, 429] {
        assert_eq!(status(&by_both, login("victim", "10.0.0.1", "wrong")).await, expected);
    }
    for other in ["a", "b", "c", "d", "e"] {
        assert_eq!(status(&by_both, login(other, "10.0.0.1", "wrong")).await, 401);
    }
    assert_eq!(
        status(&by_both, login("f", "10.0.0.1", "right")).await,
        429,
        "so many failures, whatever the account is"
    );
}

/// What a layer further in refuses never reached the other side.
#[tokio::test]
async fn a_refusal_of_our_own_is_neither_a_failure_nor_an_upstream_s_wish() {
    let (group, _clock) = group();
    let busy = ConcurrencyLayer::new(0);
    let logins = group.cooldown("login", Cooldown::after_failures(3).within(HOUR).rest(HOUR)).build().unwrap();
    let guard = CooldownLayer::new(&logins, account());
    let refused = guard.layer(busy.layer(accepting()));
    let wrong = guard.layer(answering(with_status(401)));
    let told = guard.layer(busy.layer(accepting()).map_response(|mut response| {
        response.extensions_mut().insert(AttemptOutcome::Failed);
        response
    }));
    for _ in 0..2 {
        assert_eq!(status(&wrong, request("a")).await, 401);
    }
    for _ in 0..5 {
        assert_eq!(status(&refused, request("a")).await, 503, "neither locked nor counted");
    }
    // Nor were the two before forgotten; and what a handler says goes before.
    assert_eq!(status(&told, request("a")).await, 503);
    assert_eq!(status(&wrong, request("a")).await, 429);

    let pauses = BackoffLayer::new(&group.backoff("upstream").build().unwrap(), key::constant("upstream"));
    let account_axis = group.per_key("account", tower_quota::Quota::fixed_window(1, HOUR)).build().unwrap();
    let outbound = pauses.layer(UserQuotaLayer::new(&account_axis, account()).layer(accepting()));
    assert_eq!(status(&outbound, request("alice")).await, 202);
    assert_eq!(status(&outbound, request("alice")).await, 429);
    assert_eq!(status(&outbound, request("bob")).await, 202, "the upstream is not paused for alice's quota");
}

#[tokio::test]
async fn a_call_waits_for_the_rest_to_end_if_it_may() {
    let (group, clock) = group();
    let axis = group.cooldown("school", Cooldown::after_attempts(1).rest(MINUTE)).build().unwrap();
    let service = CooldownLayer::new(&axis, account()).wait_up_to(2 * MINUTE).layer(accepting());
    assert_eq!(status(&service, request("a")).await, 202);
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { status(&service, request("a")).await })
        })
        .collect();
    for _ in 0..10 {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        if let Some(time) = clock.next_wake() {
            clock.advance(time);
        }
    }
    let mut statuses: Vec<_> = join_all(waiting).await.into_iter().map(Result::unwrap).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 202, 429]);
}

#[tokio::test]
async fn whoever_has_no_key_is_told_so_and_services_are_called_when_they_are_ready() {
    let (group, _clock) = group();
    let axis = group.cooldown("school", Cooldown::after_attempts(100).rest(MINUTE)).build().unwrap();
    let pauses = group.backoff("upstream").build().unwrap();
    let cooldown = CooldownLayer::new(&axis, account());
    let backoff = BackoffLayer::new(&pauses, account());
    let nobody = || {
        let mut nobody = request("a");
        nobody.headers_mut().remove("x-account");
        nobody
    };
    let log = Log::start();
    for _ in 0..2 {
        assert_eq!(status(&cooldown.layer(accepting()), nobody()).await, 400);
        assert_eq!(status(&backoff.layer(accepting()), nobody()).await, 400);
    }
    let told = log.lines("a request has no key");
    assert!(told.len() == 2 && told[0].contains("school") && told[1].contains("upstream"), "once each: {told:?}");
    let mut twice = request("a");
    twice.headers_mut().append("x-account", "b".parse().unwrap());
    assert_eq!(status(&backoff.layer(accepting()), twice).await, 400);
    let mut cooling = cooldown.layer(Probe::default());
    let mut backing = backoff.layer(Probe::default());
    for _ in 0..3 {
        assert_eq!(cooling.ready().await.unwrap().call(request("a")).await.unwrap().status(), 200);
        assert_eq!(backing.ready().await.unwrap().call(request("a")).await.unwrap().status(), 200);
        assert_eq!(cooling.clone().oneshot(request("a")).await.unwrap().status(), 200);
        assert_eq!(backing.clone().oneshot(request("a")).await.unwrap().status(), 200);
    }
}
