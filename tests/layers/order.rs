//! The order of layers that the guide gives, and what goes wrong in another.

use std::convert::Infallible;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use tower::ServiceExt;
use tower_http::cors::{AllowOrigin, CorsLayer};
use tower_quota::{ConcurrencyLayer, HOUR, Key, LimitFields, Quota, QuotaLayer, RequestKey, UserQuotaLayer, key};

use crate::support::group;

const SHOP: &str = "https://shop.example";

/// The account, as authentication has found it.
#[derive(Clone)]
struct Account(String);

/// Lets through whoever knows the secret, and says who it is.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let token = request.headers().get("authorization").and_then(|token| token.to_str().ok()).unwrap_or_default();
    let Some(account) = token.strip_suffix(":secret").map(str::to_owned) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    request.extensions_mut().insert(Account(account));
    next.run(request).await
}

fn cors(fields: LimitFields) -> CorsLayer {
    let mut exposed: Vec<HeaderName> = fields.names();
    exposed.push(header::RETRY_AFTER);
    CorsLayer::new()
        .allow_origin(AllowOrigin::exact(HeaderValue::from_static(SHOP)))
        .allow_headers([header::AUTHORIZATION])
        .expose_headers(exposed)
}

fn quota(axis: &str, limit: u64, key: RequestKey) -> QuotaLayer {
    let axis = group().0.per_key(axis, Quota::fixed_window(limit, HOUR)).build().unwrap();
    UserQuotaLayer::new(&axis, key).limit_fields(LimitFields::draft_11())
}

fn of_address(limit: u64) -> QuotaLayer {
    quota("address", limit, key::header("x-address").unwrap())
}

fn of_account(limit: u64) -> QuotaLayer {
    quota("account", limit, key::extension(|Account(name)| Key::from(name.as_str())))
}

fn items() -> Router {
    Router::new().route("/", get(async || "items"))
}

fn request(method: Method) -> http::request::Builder {
    Request::builder().method(method).uri("/").header("origin", SHOP).header("x-address", "203.0.113.7")
}

fn preflight() -> http::request::Builder {
    request(Method::OPTIONS).header("access-control-request-method", "GET")
}

async fn send(app: &Router, request: http::request::Builder) -> Response {
    let answer: Result<_, Infallible> = app.clone().oneshot(request.body(axum::body::Body::empty()).unwrap()).await;
    answer.unwrap()
}

async fn statuses(app: &Router) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let preflight = send(app, preflight()).await;
        let call = send(app, request(Method::GET).header("authorization", "alice:secret")).await;
        statuses.extend([preflight.status().as_u16(), call.status().as_u16()]);
    }
    statuses
}

#[tokio::test]
async fn t24_preflights_cost_nothing_and_pages_can_read_a_refusal() {
    let cors = cors(LimitFields::draft_11());
    let right = items()
        .layer(ConcurrencyLayer::new(8))
        .layer(of_account(2))
        .layer(from_fn(authenticate))
        .layer(of_address(100))
        .layer(cors.clone());
    assert_eq!(statuses(&right).await, [200, 200, 200, 200, 200, 429]);
    let refused = send(&right, request(Method::GET).header("authorization", "alice:secret")).await;
    let told = |name: &str| refused.headers().get(name).unwrap().to_str().unwrap();
    assert_eq!(told("access-control-allow-origin"), SHOP);
    assert_eq!(told("access-control-expose-headers"), "ratelimit-policy,ratelimit,retry-after");
    assert_eq!(told("ratelimit"), r#""address";r=96;t=3600, "account";r=0;t=3600"#);

    // Quotas outside of CORS count preflights, and their refusals cannot be read.
    let wrong = items().layer(cors).layer(of_address(2));
    assert_eq!(statuses(&wrong).await, [200, 200, 429, 429, 429, 429]);
    let refused = send(&wrong, request(Method::GET)).await;
    assert!(!refused.headers().contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn preflights_can_be_skipped_where_no_cors_layer_answers_them() {
    let layer = of_address(2)
        .skip(|parts| parts.method == Method::OPTIONS && parts.headers.contains_key("access-control-request-method"));
    let app = items().layer(layer);
    assert_eq!(statuses(&app).await, [405, 200, 405, 200, 405, 429]);
    // Another OPTIONS counts, as HEAD does.
    assert_eq!(send(&app, request(Method::OPTIONS)).await.status(), 429);
    let head = send(&app, request(Method::HEAD)).await;
    assert_eq!((head.status().as_u16(), head.headers().contains_key("retry-after")), (429, true));
    assert!(axum::body::to_bytes(head.into_body(), 1_000).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_address_is_counted_before_authentication_and_an_account_after_it() {
    let guess = || request(Method::GET).header("authorization", "alice:guess");
    let real = || request(Method::GET).header("authorization", "alice:secret");

    let right = items().layer(of_account(2)).layer(from_fn(authenticate)).layer(of_address(5));
    for expected in [401, 401] {
        assert_eq!(send(&right, guess()).await.status(), expected);
    }
    // Guesses cost alice nothing, and the address its own quota.
    for expected in [200, 200, 429] {
        assert_eq!(send(&right, real()).await.status(), expected);
    }

    // Inside authentication nobody counts guesses; outside of it an account has no name yet.
    let uncounted = items().layer(of_address(2)).layer(from_fn(authenticate));
    for _ in 0..10 {
        assert_eq!(send(&uncounted, guess()).await.status(), 401);
    }
    let nameless = items().layer(from_fn(authenticate)).layer(of_account(2));
    assert_eq!(send(&nameless, real()).await.status(), 400);
}
