//! The same layer value, wherever a layer can be mounted, is one budget.

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_quota::{
    Backoff, BackoffFuture, BackoffLayer, Concurrency, ConcurrencyFuture, ConcurrencyLayer, Cooldown, CooldownLayer,
    Cooling, CoolingFuture, GlobalCapacityLayer, HOUR, Key, Metered, MeteredFuture, Quota, QuotaLayer, ReadWriteSplit,
    ReadWriteSplitLayer, SplitFuture, UserQuotaLayer, key,
};

use crate::support::{group, serve};

fn layer(limit: u64) -> QuotaLayer {
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(limit, HOUR)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(1_000, HOUR)).build().unwrap();
    let account = UserQuotaLayer::new(&account, key::header("x-account").unwrap());
    account.and(GlobalCapacityLayer::new(&capacity)).unwrap()
}

async fn ok() -> &'static str {
    "ok"
}

fn request(uri: &str) -> Request<Full<Bytes>> {
    Request::get(uri).header("x-account", "alice").body(Full::default()).unwrap()
}

#[tokio::test]
async fn one_layer_value_is_one_budget_under_every_mount_point() {
    let layer = layer(7);
    let nested = Router::new().route("/nested", get(ok)).route_layer(layer.clone());
    let merged = Router::new().route("/merged", get(ok)).layer(layer.clone());
    let app = Router::new()
        .route("/free", get(ok))
        .route("/method", get(ok).layer(layer.clone()))
        .route("/builder", get(ok).layer(ServiceBuilder::new().layer(layer.clone())))
        .nest("/under", nested)
        .merge(merged)
        .route_service(
            "/service",
            ServiceBuilder::new().layer(layer.clone()).service(service_fn(|_: Request<axum::body::Body>| async {
                Ok::<_, std::convert::Infallible>(Response::new(axum::body::Body::empty()))
            })),
        );
    let base = serve(app).await;
    let client = Client::builder(TokioExecutor::new()).build_http();

    let mut statuses = Vec::new();
    for path in ["/method", "/builder", "/under/nested", "/merged", "/service"] {
        statuses.push(client.request(request(&format!("{base}{path}"))).await.unwrap().status());
    }
    // And around a client: a request that is refused is never sent.
    let mut limited = ServiceBuilder::new().layer(layer.clone()).service(client.clone());
    for _ in 0..2 {
        let answer = limited.ready().await.unwrap().call(request(&format!("{base}/free"))).await.unwrap();
        statuses.push(answer.status());
    }
    assert_eq!(statuses, [StatusCode::OK; 7]);

    let refused = limited.ready().await.unwrap().call(request(&base)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"{\"type\":"));
    for path in ["/method", "/builder", "/under/nested", "/merged", "/service"] {
        let refused = client.request(request(&format!("{base}{path}"))).await.unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{path}");
    }
}

/// Mounts a layer everywhere, for seven requests, and around a client.
macro_rules! mounted_everywhere {
    ($layer:expr) => {{
        let layer = $layer;
        let nested = Router::new().route("/nested", get(ok)).route_layer(layer.clone());
        let app = Router::new()
            .route("/free", get(ok))
            .route("/method", get(ok).layer(layer.clone()))
            .route("/builder", get(ok).layer(ServiceBuilder::new().layer(layer.clone())))
            .nest("/under", nested)
            .merge(Router::new().route("/merged", get(ok)).layer(layer.clone()))
            .route_service(
                "/service",
                ServiceBuilder::new().layer(layer.clone()).service(service_fn(|_: Request<axum::body::Body>| async {
                    Ok::<_, std::convert::Infallible>(Response::new(axum::body::Body::empty()))
                })),
            );
        let base = serve(app).await;
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut statuses = Vec::new();
        for path in ["/method", "/builder", "/under/nested", "/merged", "/service"] {
            statuses.push(client.request(request(&format!("{base}{path}"))).await.unwrap().status().as_u16());
        }
        let mut around = ServiceBuilder::new().layer(layer).service(client);
        for _ in 0..2 {
            let answer = around.ready().await.unwrap().call(request(&format!("{base}/free"))).await.unwrap();
            statuses.push(answer.status().as_u16());
        }
        statuses
    }};
}

#[tokio::test]
async fn every_other_layer_can_be_mounted_everywhere_too() {
    let (group, _clock) = group();
    let account = || key::header("x-account").unwrap();
    let concurrency = ConcurrencyLayer::new(1);
    assert_eq!(mounted_everywhere!(concurrency.clone()), [200; 7]);
    concurrency.set_limit(0);
    assert_eq!(mounted_everywhere!(concurrency), [503; 7]);
    let split = ReadWriteSplitLayer::new(layer(4), layer(4));
    assert_eq!(mounted_everywhere!(split), [200, 200, 200, 200, 429, 429, 429]);
    let rule = Cooldown::after_attempts(5).rest(HOUR);
    let cooldown = CooldownLayer::new(&group.cooldown("school", rule).build().unwrap(), account());
    assert_eq!(mounted_everywhere!(cooldown), [200, 200, 200, 200, 200, 429, 429]);
    let pauses = group.backoff("upstream").build().unwrap();
    let backoff = BackoffLayer::new(&pauses, account());
    assert_eq!(mounted_everywhere!(backoff.clone()), [200; 7]);
    pauses.pause(&Key::from("alice"), HOUR).await.unwrap();
    assert_eq!(mounted_everywhere!(backoff), [503; 7]);
}

/// What users rely on to name and to store these types; it holds if it compiles.
#[test]
fn services_and_futures_have_names() {
    struct Stored<S> {
        _quota: Metered<S>,
        _concurrency: Concurrency<S>,
        _cooldown: Cooling<S>,
        _backoff: Backoff<S>,
        _split: ReadWriteSplit<S, Metered<S>, Concurrency<S>>,
    }
    fn shared<T: Clone + Send + Sync + 'static>() {}
    fn send<T: Send>() {}
    type Inner = tower::util::BoxCloneSyncService<Request<Full<Bytes>>, Response<Full<Bytes>>, std::io::Error>;
    shared::<Metered<Inner>>();
    shared::<Concurrency<Inner>>();
    shared::<Cooling<Inner>>();
    shared::<Backoff<Inner>>();
    shared::<ReadWriteSplit<Inner>>();
    send::<Stored<Inner>>();
    send::<MeteredFuture<Inner, Full<Bytes>>>();
    send::<ConcurrencyFuture<Inner, Full<Bytes>>>();
    send::<CoolingFuture<Inner, Full<Bytes>>>();
    send::<BackoffFuture<Inner, Full<Bytes>>>();
    send::<SplitFuture<Inner, Metered<Inner>, Concurrency<Inner>, Full<Bytes>>>();
}

#[tokio::test]
async fn two_layer_values_are_two_budgets() {
    let app = Router::new().route("/a", get(ok).layer(layer(1))).route("/b", get(ok).layer(layer(1)));
    for path in ["/a", "/b"] {
        for expected in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
            let request = Request::get(path).header("x-account", "alice").body(axum::body::Body::empty()).unwrap();
            assert_eq!(app.clone().oneshot(request).await.unwrap().status(), expected);
        }
    }
}

/// A refusal is a response like any other to the layers outside.
#[tokio::test]
async fn outer_layers_see_a_refusal_as_a_response() {
    let outer = axum::middleware::map_response(|mut response: axum::response::Response| async move {
        let status = response.status().as_str().parse().unwrap();
        response.headers_mut().insert("x-seen", status);
        response
    });
    let app = Router::new().route("/", get(ok)).layer(layer(1)).layer(outer);
    for expected in ["200", "429"] {
        let request = Request::get("/").header("x-account", "alice").body(axum::body::Body::empty()).unwrap();
        assert_eq!(app.clone().oneshot(request).await.unwrap().headers()["x-seen"], expected);
    }
}
