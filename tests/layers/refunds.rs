//! Charges that are given back by the answer to their request, or corrected by its handler.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use http::{Request, Response};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_quota::testing::FakeClock;
use tower_quota::{
    BackoffLayer, GlobalCapacityLayer, Group, HOUR, Key, LimitFields, MINUTE, Meter, Quota, QuotaLayer, RedisStore,
    Rejection, RequestMeter, Store, UserQuotaLayer, key,
};

use crate::support::{Body, Server, SlowStore, answer, group, header, request, status};

/// An account's quota and the service's capacity, and a meter that looks at both.
struct Counted {
    layer: QuotaLayer,
    meter: Meter<str>,
}

impl Counted {
    fn in_group(group: &Group) -> Self {
        let account = group.per_key("account", Quota::fixed_window(3, HOUR)).build().unwrap();
        let capacity = group.shared("capacity", Quota::fixed_window(100, HOUR)).build().unwrap();
        let layer = UserQuotaLayer::new(&account, key::header("x-account").unwrap());
        let meter = Meter::new(account.by(|name: &str| Key::from(name))).and(&capacity).unwrap();
        Self { layer: layer.and(GlobalCapacityLayer::new(&capacity)).unwrap(), meter }
    }

    fn in_store(store: impl Store) -> Self {
        Self::in_group(&Group::new("test", store).unwrap())
    }

    /// Refunds what is answered with 429.
    fn refunding(self) -> Self {
        Self { layer: self.layer.refund_when(|answer| answer.status == 429), ..self }
    }

    async fn used(&self) -> [u64; 2] {
        let verdict = self.meter.charge("alice", 0).await.unwrap();
        [verdict.reports()[0].used(), verdict.reports()[1].used()]
    }

    async fn until_used(&self, expected: [u64; 2]) {
        let comes = async {
            while self.used().await != expected {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), comes).await.expect("it is given back");
    }
}

/// Answers with the status that the request asks for.
fn upstream()
-> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static {
    service_fn(async |request: Request<Body>| {
        let mut response = Response::new(Body::default());
        if let Some(status) = request.headers().get("x-status") {
            *response.status_mut() = status.to_str().unwrap().parse().unwrap();
            response.headers_mut().insert("retry-after", "30".parse().unwrap());
        }
        Ok(response)
    })
}

fn asking_for(status: &str) -> Request<Body> {
    let mut request = request("alice");
    request.headers_mut().insert("x-status", status.parse().unwrap());
    request
}

#[tokio::test]
async fn an_answer_that_is_named_gives_the_charge_back_on_all_axes() {
    let counted = Counted::in_group(&group().0).refunding();
    let service = counted.layer.layer(upstream());
    for _ in 0..10 {
        assert_eq!(status(&service, asking_for("429")).await, 429);
        assert_eq!(counted.used().await, [0, 0]);
    }
    for (number, kept) in ["200", "404", "500"].into_iter().enumerate() {
        assert_eq!(status(&service, asking_for(kept)).await.to_string(), kept);
        assert_eq!(counted.used().await, [number as u64 + 1; 2]);
    }
    // The layer's own refusals have charged nothing, and give nothing back.
    let refused = answer(&service, request("alice")).await;
    assert!(Rejection::of(&refused).is_some());
    assert_eq!(counted.used().await, [3, 3]);

    let keeping = Counted::in_group(&group().0);
    assert_eq!(status(&keeping.layer.layer(upstream()), asking_for("429")).await, 429);
    assert_eq!(keeping.used().await, [1, 1], "by default every charge stays");
}

#[tokio::test]
async fn a_store_that_takes_its_time_is_told_beside_the_answer() {
    let server = Server::start();
    let redis = RedisStore::builder(&server.url()).deadline(Duration::from_secs(10)).build().unwrap();
    for counted in [Counted::in_store(SlowStore::new(FakeClock::new())), Counted::in_store(redis)] {
        let counted = counted.refunding();
        let service = counted.layer.layer(upstream());
        assert_eq!(status(&service, request("alice")).await, 200);
        for _ in 0..5 {
            assert_eq!(status(&service, asking_for("429")).await, 429);
            counted.until_used([1, 1]).await;
        }
    }
}

/// Around a client whose upstream wants to be left alone.
#[tokio::test]
async fn what_an_upstream_turns_away_costs_nothing_if_that_is_the_policy() {
    for refunds in [true, false] {
        let (group, clock) = group();
        let counted = Counted::in_group(&group);
        let pauses = group.backoff("pauses").build().unwrap();
        let backoff = BackoffLayer::new(&pauses, key::header("x-account").unwrap());
        let layer = counted.layer.clone();
        let layer =
            if refunds { layer.refund_when(|answer| [429, 503].contains(&answer.status.as_u16())) } else { layer };
        let client = ServiceBuilder::new().layer(layer).layer(backoff).service(upstream());

        let throttled = answer(&client, asking_for("429")).await;
        assert_eq!((throttled.status().as_u16(), header(&throttled, "retry-after")), (429, Some("30")));
        assert!(Rejection::of(&throttled).is_none(), "it is the upstream's own");
        let paused = answer(&client, request("alice")).await;
        assert_eq!((paused.status().as_u16(), header(&paused, "retry-after")), (503, Some("30")));
        assert_eq!(counted.used().await, if refunds { [0, 0] } else { [2, 2] });
        clock.advance(Duration::from_secs(30));
        assert_eq!(status(&client, request("alice")).await, 200);
        assert_eq!(counted.used().await, if refunds { [1, 1] } else { [3, 3] });
    }
}

#[tokio::test]
async fn what_waits_is_given_back_too() {
    let clock = FakeClock::new();
    let counted = Counted::in_store(tower_quota::MemoryStore::with_clock(clock.clone()));
    let layer = counted.layer.clone().refund_when(|answer| answer.status == 429).wait_up_to(2 * HOUR);
    let service = layer.layer(upstream());
    for _ in 0..3 {
        assert_eq!(status(&service, request("alice")).await, 200);
    }
    let waiting = tokio::spawn(service.oneshot(asking_for("429")));
    tokio::task::yield_now().await;
    clock.advance(HOUR);
    assert_eq!(waiting.await.unwrap().unwrap().status(), 429);
    assert_eq!(counted.used().await, [0, 0]);
}

#[tokio::test]
async fn a_charge_stays_whose_request_may_come_again_or_was_not_answered() {
    let counted = Counted::in_group(&group().0).refunding();
    let layer = counted.layer.clone().request_id(|parts| Some(Key::from(parts.headers.get("x-id")?.to_str().ok()?)));
    let service = layer.layer(upstream());
    let again = || {
        let mut request = asking_for("429");
        request.headers_mut().insert("x-id", "7".parse().unwrap());
        request
    };
    for _ in 0..3 {
        assert_eq!(status(&service, again()).await, 429);
        assert_eq!(counted.used().await, [1, 1]);
    }
    assert_eq!(status(&service, asking_for("429")).await, 429);
    assert_eq!(counted.used().await, [1, 1], "one without an id is given back");

    let failing = counted.layer.layer(service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("no connection")));
    assert!(failing.oneshot(request("alice")).await.is_err());
    assert_eq!(counted.used().await, [2, 2]);
}

#[tokio::test]
async fn a_function_that_panics_gives_nothing_back_and_spoils_no_answer() {
    let counted = Counted::in_group(&group().0);
    let service = counted.layer.clone().refund_when(|_| panic!("no")).layer(upstream());
    assert_eq!(status(&service, asking_for("429")).await, 429);
    assert_eq!(counted.used().await, [1, 1]);
}

#[tokio::test]
async fn the_limits_are_told_as_they_were_when_it_was_charged() {
    let counted = Counted::in_group(&group().0).refunding();
    let service = counted.layer.clone().limit_fields(LimitFields::draft_11()).layer(upstream());
    for _ in 0..2 {
        let refunded = answer(&service, asking_for("429")).await;
        assert_eq!(header(&refunded, "ratelimit"), Some(r#""account";r=2;t=3600, "capacity";r=99;t=3600"#));
    }
}

#[tokio::test]
async fn a_handler_settles_what_it_reserves() {
    async fn complete(meter: RequestMeter, worth: String) -> Result<String, Rejection> {
        let estimate = meter.reserve(2_u32).wait_up_to(MINUTE).await?;
        estimate.settle(worth.parse::<u64>().unwrap()).await.unwrap();
        Ok(worth)
    }
    let counted = Counted::in_group(&group().0);
    let layer = counted.layer.clone().charged_by_handler().limit_fields(LimitFields::draft_11());
    let app = Router::new().route("/", post(complete)).route_layer(layer);
    for (worth, status, told, used) in [
        ("0", 200, r#""account";r=1;t=3600, "capacity";r=98;t=3600"#, [0, 0]),
        ("1", 200, r#""account";r=1;t=3600, "capacity";r=98;t=3600"#, [1, 1]),
        // More than was left: a debt.
        ("5", 200, r#""account";r=0;t=3600, "capacity";r=97;t=3600"#, [6, 6]),
        ("0", 429, r#""account";r=0;t=3600, "capacity";r=94;t=3600"#, [6, 6]),
    ] {
        let request = Request::post("/").header("x-account", "alice").body(axum::body::Body::from(worth)).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        assert_eq!((response.status().as_u16(), header(&response, "ratelimit")), (status, Some(told)), "{worth}");
        assert_eq!(counted.used().await, used, "{worth}");
    }
}
