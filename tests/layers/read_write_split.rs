//! Reads and writes on budgets of their own.

use std::time::Duration;

use http::{Method, Request};
use tower::{Layer, ServiceExt, service_fn};
use tower_quota::testing::FakeClock;
use tower_quota::{
    ConcurrencyLayer, Cost, GlobalCapacityLayer, Group, Key, LimitFields, MINUTE, MemoryStore, Meter, Quota,
    QuotaLayer, ReadWriteSplitLayer, RedisStore, Rejection, Side, Store, UserQuotaLayer, key,
};

use crate::support::{Body, Server, accepting, answer, group, header, status};

fn request(method: &str, path: &str) -> Request<Body> {
    Request::builder().method(method).uri(path).header("x-user", "alice").body(Body::default()).unwrap()
}

/// The budgets of a service that shows seats: read 20 a second in all and 8 for a user, write 2 and 1.
fn seats(store: impl Store) -> ReadWriteSplitLayer<QuotaLayer> {
    let group = Group::new("seats", store).unwrap();
    let side = |name: &str, user: &str, all: &str| {
        let user = group.per_key(&format!("user-{name}"), user).build().unwrap();
        let all = group.shared(name, all).build().unwrap();
        let user = UserQuotaLayer::new(&user, key::header("x-user").unwrap());
        user.and(GlobalCapacityLayer::new(&all)).unwrap()
    };
    ReadWriteSplitLayer::new(side("reads", "8/s", "20/s"), side("writes", "1/s", "2/s"))
}

#[tokio::test]
async fn t59_reads_and_writes_use_up_nothing_of_each_other() {
    let clock = FakeClock::new();
    let group = Group::new("api", MemoryStore::with_clock(clock)).unwrap();
    let reads = group.shared("reads", "100/m").build().unwrap();
    let writes = group.per_key("writes", "5/m").build().unwrap();
    let layer = ReadWriteSplitLayer::new(
        GlobalCapacityLayer::new(&reads),
        UserQuotaLayer::new(&writes, key::header("x-user").unwrap()),
    );
    let service = layer.layer(accepting());
    for _ in 0..5 {
        assert_eq!(status(&service, request("POST", "/")).await, 202);
    }
    for _ in 0..95 {
        assert_eq!(status(&service, request("GET", "/")).await, 202);
    }
    let refused = answer(&service, request("PUT", "/")).await;
    assert_eq!((refused.status().as_u16(), Rejection::of(&refused).unwrap().axis()), (429, Some("writes")));
    for _ in 0..5 {
        assert_eq!(status(&service, request("HEAD", "/")).await, 202);
    }
    assert_eq!(status(&service, request("GET", "/")).await, 503);
    assert_eq!(status(&service, request("OPTIONS", "/")).await, 202, "a preflight is neither");
}

#[tokio::test]
async fn the_method_decides_and_nothing_that_a_caller_says_beside_it() {
    let (reads, writes) = (ConcurrencyLayer::new(0), ConcurrencyLayer::new(10));
    let service = ReadWriteSplitLayer::new(reads, writes).layer(accepting());
    for (method, expected) in [
        ("GET", 503),
        ("HEAD", 503),
        ("TRACE", 503),
        ("OPTIONS", 202),
        ("POST", 202),
        ("PUT", 202),
        ("PATCH", 202),
        ("DELETE", 202),
        ("CONNECT", 202),
        ("PROPFIND", 202),
    ] {
        assert_eq!(status(&service, request(method, "/")).await, expected, "{method}");
    }
    let closed_writes =
        ReadWriteSplitLayer::new(ConcurrencyLayer::new(10), ConcurrencyLayer::new(0)).layer(accepting());
    let mut overridden = request("DELETE", "/");
    overridden.headers_mut().insert("x-http-method-override", "GET".parse().unwrap());
    assert_eq!(status(&closed_writes, overridden).await, 503);
}

#[tokio::test]
async fn a_function_and_a_table_of_grpc_methods_tell_more() {
    let layer = ReadWriteSplitLayer::new(ConcurrencyLayer::new(0), ConcurrencyLayer::new(10))
        .classify(|parts| match parts.uri.path() {
            "/rpc/get" => Side::Read,
            "/health" => Side::Neither,
            "/panic" => panic!("no side"),
            _ => Side::Write,
        })
        .grpc_reads(["/shop.v1.Shop/Get"]);
    let service = layer.layer(accepting());
    for (path, expected) in
        [("/rpc/get", 503), ("/health", 202), ("/rpc/set", 202), ("/panic", 202), ("/shop.v1.Shop/Get", 202)]
    {
        assert_eq!(status(&service, request("POST", path)).await, expected, "{path}");
    }
    for (path, content_type, is_read) in [
        ("/shop.v1.Shop/Get", "application/grpc", true),
        ("/shop.v1.Shop/Get", "application/grpc+proto", true),
        ("/shop.v1.Shop/Set", "application/grpc", false),
        ("/shop.v1.Shop/get", "application/grpc", false),
        ("/rpc/get", "application/grpc", false),
    ] {
        let mut request = request("POST", path);
        request.headers_mut().insert("content-type", content_type.parse().unwrap());
        let is_refused = Rejection::of(&answer(&service, request).await).is_some();
        assert_eq!(is_refused, is_read, "{path} {content_type}");
    }
}

#[tokio::test]
async fn t59_a_batch_of_both_is_charged_on_both_or_on_none() {
    let group = Group::new("batch", MemoryStore::with_clock(FakeClock::new())).unwrap();
    let reads = group.per_key("reads", "100/m").build().unwrap();
    let writes = group.per_key("writes", "5/m").build().unwrap();
    let user = |name: &str| Key::from(name);
    let meter = Meter::new(reads.by(user)).and(writes.by(user)).unwrap();
    let batch = || Cost::units(0).on(&reads, 3).on(&writes, 1);
    for _ in 0..5 {
        meter.charge("alice", batch()).await.unwrap();
    }
    assert!(meter.charge("alice", batch()).await.is_err());
    let verdict = meter.charge("alice", 0).await.unwrap();
    assert_eq!((verdict.of(&reads).unwrap().used(), verdict.of(&writes).unwrap().used()), (15, 5));
}

#[tokio::test]
async fn t59_the_limit_fields_show_the_budget_that_was_used() {
    let (group, _clock) = group();
    let side = |name: &str, limit| {
        let axis = group.shared(name, Quota::fixed_window(limit, MINUTE)).build().unwrap();
        QuotaLayer::from(GlobalCapacityLayer::new(&axis)).limit_fields(LimitFields::draft_11())
    };
    let service = ReadWriteSplitLayer::new(side("reads", 100), side("writes", 5)).layer(accepting());
    for (method, told) in [
        ("GET", Some(r#""reads";r=99;t=60"#)),
        ("POST", Some(r#""writes";r=4;t=60"#)),
        ("HEAD", Some(r#""reads";r=98;t=60"#)),
        ("DELETE", Some(r#""writes";r=3;t=60"#)),
        ("OPTIONS", None),
    ] {
        assert_eq!(header(&answer(&service, request(method, "/")).await, "ratelimit"), told, "{method}");
    }
}

#[tokio::test]
async fn another_limit_for_reads_leaves_writes_as_they_are() {
    let (group, _clock) = group();
    let reads = group.shared("reads", Quota::fixed_window(2, MINUTE)).build().unwrap();
    let writes = group.shared("writes", Quota::fixed_window(2, MINUTE)).build().unwrap();
    let layer = ReadWriteSplitLayer::new(GlobalCapacityLayer::new(&reads), GlobalCapacityLayer::new(&writes));
    let service = layer.layer(accepting());
    for (method, expected) in [("GET", 202), ("GET", 202), ("GET", 503), ("POST", 202)] {
        assert_eq!(status(&service, request(method, "/")).await, expected, "{method}");
    }
    reads.set_quota(Quota::fixed_window(4, MINUTE)).unwrap();
    for (method, expected) in [("GET", 202), ("GET", 202), ("GET", 503), ("POST", 202), ("POST", 503)] {
        assert_eq!(status(&service, request(method, "/")).await, expected, "{method}");
    }
}

#[tokio::test]
async fn a_total_above_both_is_one_more_axis_of_each() {
    let (group, _clock) = group();
    let total = group.shared("total", Quota::fixed_window(6, MINUTE)).build().unwrap();
    let side = |name: &str, limit| {
        let axis = group.shared(name, Quota::fixed_window(limit, MINUTE)).build().unwrap();
        QuotaLayer::from(GlobalCapacityLayer::new(&axis)).and(GlobalCapacityLayer::new(&total)).unwrap()
    };
    let service = ReadWriteSplitLayer::new(side("reads", 5), side("writes", 4)).layer(accepting());
    let refused_by = async |method: &str| {
        let answer = answer(&service, request(method, "/")).await;
        Rejection::of(&answer).map(|rejection| rejection.axis().unwrap().to_owned())
    };
    for method in ["GET", "POST", "GET", "POST", "GET", "POST"] {
        assert_eq!(refused_by(method).await, None, "{method}");
    }
    for method in ["GET", "POST"] {
        assert_eq!(refused_by(method).await.as_deref(), Some("total"), "so many of both together");
    }
    // What the total has refused used up neither side.
    total.set_quota(Quota::fixed_window(100, MINUTE)).unwrap();
    for (method, expected) in
        [("GET", None), ("GET", None), ("GET", Some("reads")), ("POST", None), ("POST", Some("writes"))]
    {
        assert_eq!(refused_by(method).await.as_deref(), expected, "{method}");
    }
}

/// One click reads six rooms. (Figures of a team that had one limit of 2 a second for everything.)
#[tokio::test]
async fn a_fan_out_of_six_reads_passes_for_one_user_on_two_instances() {
    let server = Server::start();
    let clock = FakeClock::new();
    let store =
        || RedisStore::builder(&server.url()).clock(clock.clone()).deadline(Duration::from_secs(5)).build().unwrap();
    let instances = [seats(store()).layer(accepting()), seats(store()).layer(accepting())];
    let of = |user: &str, method: Method| {
        let mut request = request(method.as_str(), "/seats");
        request.headers_mut().insert("x-user", user.parse().unwrap());
        request
    };
    for read in 1..=8 {
        assert_eq!(status(&instances[read % 2], of("alice", Method::GET)).await, 202, "read {read}");
    }
    let ninth = answer(&instances[0], of("alice", Method::GET)).await;
    assert_eq!((ninth.status().as_u16(), Rejection::of(&ninth).unwrap().axis()), (429, Some("user-reads")));
    assert_eq!(status(&instances[1], of("alice", Method::POST)).await, 202, "writes are untouched");
    assert_eq!(status(&instances[0], of("alice", Method::POST)).await, 429);
    // What was refused for alice took nothing of all: 12 more of others pass, and the 21st in all does not.
    for _ in 0..20 {
        assert_eq!(status(&instances[0], of("alice", Method::GET)).await, 429);
    }
    for user in 0..12 {
        assert_eq!(status(&instances[user % 2], of(&format!("user-{user}"), Method::GET)).await, 202);
    }
    assert_eq!(status(&instances[1], of("bob", Method::GET)).await, 503);
    assert_eq!(status(&instances[1], of("bob", Method::POST)).await, 202);
    assert_eq!(status(&instances[1], of("carol", Method::POST)).await, 503);
}

#[tokio::test]
async fn the_sides_are_made_ready_by_the_request_that_goes_there() {
    let layer = ReadWriteSplitLayer::new(ConcurrencyLayer::new(5), ConcurrencyLayer::new(5));
    let mut service = layer.layer(crate::support::Probe::default());
    for method in ["GET", "POST", "OPTIONS"] {
        let response = tower::Service::call(service.ready().await.unwrap(), request(method, "/")).await.unwrap();
        assert_eq!(response.status(), 200, "{method}");
    }
    let broken =
        service_fn(|_: Request<Body>| async { Err::<http::Response<Body>, _>(std::io::Error::other("broken")) });
    assert!(layer.layer(broken).oneshot(request("GET", "/")).await.is_err());
}
