//! Handlers that charge by themselves, because the cost stands in the body.

use axum::routing::post;
use axum::{Json, Router};
use http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_quota::{GlobalCapacityLayer, HOUR, Quota, QuotaLayer, Rejection, RequestMeter, UserQuotaLayer, key};

use crate::support::{Body, answer, group, header, request, status, text};

fn layer(per_account: u64, in_all: u64) -> QuotaLayer {
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(per_account, HOUR)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(in_all, HOUR)).build().unwrap();
    let account = UserQuotaLayer::new(&account, key::header("x-account").unwrap());
    account.and(GlobalCapacityLayer::new(&capacity)).unwrap()
}

async fn images(meter: RequestMeter, Json(images): Json<Vec<String>>) -> Result<StatusCode, Rejection> {
    meter.charge(images.len()).await?;
    Ok(StatusCode::ACCEPTED)
}

fn batch(account: &str, images: usize) -> Request<axum::body::Body> {
    let body = serde_json::to_vec(&vec!["a.jpg"; images]).unwrap();
    let request = Request::post("/images").header("x-account", account).header("content-type", "application/json");
    request.body(body.into()).unwrap()
}

async fn send(app: &Router, request: Request<axum::body::Body>) -> Response<axum::body::Body> {
    app.clone().oneshot(request).await.unwrap()
}

#[tokio::test]
async fn a_batch_is_charged_whole_or_refused_whole() {
    let app = Router::new().route("/images", post(images)).route_layer(layer(10, 15).charged_by_handler());
    assert_eq!(send(&app, batch("alice", 8)).await.status(), 202);
    let refused = send(&app, batch("alice", 3)).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "retry-after"), Some("3600"));
    assert!(Rejection::of(&refused).is_some());
    assert!(text(refused).await.contains("\"remaining\":2"));
    assert_eq!(send(&app, batch("alice", 2)).await.status(), 202);
    assert_eq!(send(&app, batch("bob", 6)).await.status(), 503);
    assert_eq!(send(&app, batch("bob", 5)).await.status(), 202);
    assert_eq!(send(&app, batch("bob", 11)).await.status(), 422);
}

#[tokio::test]
async fn requests_and_batches_draw_on_one_budget() {
    let layer = layer(3, 100);
    let links = Router::new().route("/link", post(|| async { StatusCode::ACCEPTED })).route_layer(layer.clone());
    let batches = Router::new().route("/images", post(images)).route_layer(layer.charged_by_handler());
    let app = links.merge(batches);
    let link = || Request::post("/link").header("x-account", "alice").body(axum::body::Body::empty()).unwrap();
    assert_eq!(send(&app, link()).await.status(), 202);
    assert_eq!(send(&app, batch("alice", 2)).await.status(), 202);
    assert_eq!(send(&app, link()).await.status(), 429);
    assert_eq!(send(&app, batch("alice", 1)).await.status(), 429);
}

#[tokio::test]
async fn a_handler_s_refusal_is_answered_in_the_layer_s_own_form() {
    let own = |rejection: &Rejection, parts: &tower_quota::Parts| {
        let axis = rejection.axis().unwrap_or_default();
        Response::new(format!("{} {axis}", parts.uri.path()))
    };
    let layer = layer(1, 100).charged_by_handler().reject_with(own);
    let app = Router::new().route("/images", post(images)).route_layer(layer);
    assert_eq!(text(send(&app, batch("alice", 2)).await).await, "/images account");
    // An answer of the handler's own stays.
    assert_eq!(send(&app, batch("alice", 1)).await.status(), 202);
}

/// An inner layer's refusal is not the outer layer's to replace.
#[tokio::test]
async fn a_refusal_of_another_layer_stays_as_it_is() {
    let outer = layer(100, 100).charged_by_handler().reject_with(|_, _| Response::new(String::from("outer")));
    let app = Router::new().route("/images", post(images)).layer(layer(1, 1).charged_by_handler()).layer(outer);
    assert_eq!(send(&app, batch("alice", 2)).await.status(), 422);
}

#[tokio::test]
async fn a_meter_peeks_and_needs_no_axum() {
    let handler = service_fn(|request: Request<Body>| async move {
        let meter = request.extensions().get::<RequestMeter>().unwrap();
        let before = meter.peek().await.unwrap().reports()[0].remaining();
        Ok(match meter.charge(2).await {
            Ok(_) => Response::new(Body::from(format!("{before} were left"))),
            Err(rejection) => rejection.to_response(),
        })
    });
    let service = layer(5, 100).charged_by_handler().layer(handler);
    assert_eq!(text(answer(&service, request("alice")).await).await, "5 were left");
    assert_eq!(text(answer(&service, request("alice")).await).await, "3 were left");
    assert_eq!(status(&service, request("alice")).await, 429);
    assert_eq!(status(&service, request("bob")).await, 200);
}

#[tokio::test]
async fn a_handler_that_charges_without_a_meter_is_told() {
    let log = crate::support::Log::start();
    let app = Router::new().route("/images", post(images)).route_layer(layer(100, 100));
    for _ in 0..100 {
        assert_eq!(send(&app, batch("alice", 1)).await.status(), 500);
    }
    let lines = log.lines("takes a RequestMeter");
    assert!((1..=2).contains(&lines.len()), "one line a second: {lines:?}");
    assert!(lines[0].contains("held_back=0") && !lines[0].contains("/images"), "{lines:?}");
}

#[tokio::test]
async fn a_request_without_a_key_never_reaches_a_handler_that_charges() {
    let reached = async |_: Json<Vec<String>>| -> StatusCode { panic!("the handler was reached") };
    let app = Router::new().route("/images", post(reached)).route_layer(layer(5, 5).charged_by_handler());
    let mut nobody = batch("alice", 1);
    nobody.headers_mut().remove("x-account");
    assert_eq!(send(&app, nobody).await.status(), 400);
    let mut doubled = batch("alice", 1);
    doubled.headers_mut().append("x-account", "bob".parse().unwrap());
    assert_eq!(send(&app, doubled).await.status(), 400);
}

#[tokio::test]
async fn a_skipped_request_has_a_meter_that_counts_nothing() {
    let is_staff = |parts: &tower_quota::Parts| parts.headers.contains_key("x-staff");
    let app = Router::new().route("/images", post(images)).route_layer(layer(1, 1).charged_by_handler().skip(is_staff));
    for _ in 0..5 {
        let mut staff = batch("alice", 9);
        staff.headers_mut().insert("x-staff", "1".parse().unwrap());
        staff.headers_mut().remove("x-account");
        assert_eq!(send(&app, staff).await.status(), 202);
    }
    assert_eq!(send(&app, batch("alice", 1)).await.status(), 202);
    assert_eq!(send(&app, batch("alice", 1)).await.status(), 429);
}

#[tokio::test]
async fn two_meters_for_one_handler_are_told() {
    let log = crate::support::Log::start();
    let app = Router::new()
        .route("/images", post(images))
        .layer(layer(1, 1).charged_by_handler())
        .layer(layer(9, 9).charged_by_handler());
    assert_eq!(send(&app, batch("alice", 1)).await.status(), 202);
    assert_eq!(log.lines("two layers around one handler").len(), 1);
}
