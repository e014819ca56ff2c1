//! What a refused request is answered.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};
use tower_quota::{
    GlobalCapacityLayer, HOUR, MINUTE, MissingKey, Quota, QuotaLayer, Reason, Rejection, UserQuotaLayer, key,
};

use crate::support::{Body, Log, accepting, answer, group, header, request, status, text};

fn user(quota: &str) -> UserQuotaLayer {
    let axis = group().0.per_key("account", quota).build().unwrap();
    UserQuotaLayer::new(&axis, key::header("x-account").unwrap())
}

async fn problem<B>(response: Response<B>) -> Value
where
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
{
    assert_eq!(header(&response, "content-type"), Some("application/problem+json"));
    serde_json::from_str(&text(response).await).unwrap()
}

#[tokio::test]
async fn a_refusal_is_a_problem_document() {
    let (group, clock) = group();
    let account = group.per_key("account", Quota::fixed_window(30, HOUR)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(40, MINUTE)).build().unwrap();
    let layer: QuotaLayer = UserQuotaLayer::new(&account, key::header("x-account").unwrap()).into();
    let layer = layer
        .and(GlobalCapacityLayer::new(&capacity))
        .unwrap()
        .cost(|parts| parts.headers.get("x-cost").map_or(1, |cost| cost.to_str().unwrap().parse::<u64>().unwrap()));
    let service = layer.layer(accepting());
    let costing = |account, cost: &str| {
        let mut request = request(account);
        request.headers_mut().insert("x-cost", cost.parse().unwrap());
        request
    };
    assert_eq!(status(&service, costing("alice", "28")).await, 202);
    clock.advance(MINUTE / 2);

    let refused = answer(&service, costing("alice", "29")).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "retry-after"), Some("3570"));
    assert_eq!(header(&refused, "cache-control"), Some("no-store"));
    assert_eq!(
        problem(refused).await,
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "The quota is used up",
            "status": 429,
            "axis": "account",
            "violated-policies": ["account", "capacity"],
            "limit": 30,
            "remaining": 2,
            "retry-after": 3570,
        })
    );

    let refused = answer(&service, costing("bob", "13")).await;
    assert_eq!(refused.status(), 503);
    assert_eq!(header(&refused, "retry-after"), Some("30"));
    let of_capacity = problem(refused).await;
    assert_eq!(of_capacity["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
    assert_eq!((&of_capacity["axis"], &of_capacity["violated-policies"]), (&json!("capacity"), &json!(["capacity"])));

    let never = answer(&service, costing("carol", "31")).await;
    assert_eq!((never.status().as_u16(), header(&never, "retry-after")), (422, None));
    assert_eq!(problem(never).await["axis"], "account");
}

#[tokio::test]
async fn a_refusal_tells_its_rejection_to_outer_layers() {
    let service = user("fixed 1/h").layer(accepting());
    assert!(Rejection::of(&answer(&service, request("alice")).await).is_none());
    let refused = answer(&service, request("alice")).await;
    let rejection = Rejection::of(&refused).unwrap();
    assert_eq!((rejection.reason(), rejection.axis()), (Reason::QuotaExceeded, Some("account")));
    assert_eq!((rejection.status().as_u16(), rejection.retry_after()), (429, Some(HOUR)));
    assert_eq!(rejection.verdict().unwrap().reports()[0].used(), 1);
    assert_eq!(rejection.to_string(), "The quota is used up (axis account)");
}

#[tokio::test]
async fn a_request_that_does_not_say_who_is_asking_gets_what_the_policy_says() {
    let log = Log::start();
    let anonymous = || Request::new(Body::default());
    let doubled = || {
        let mut request = request("alice");
        request.headers_mut().append("x-account", "bob".parse().unwrap());
        request
    };

    let refusing = user("fixed 1/h").layer(accepting());
    for _ in 0..3 {
        let refused = answer(&refusing, anonymous()).await;
        assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (400, None));
        assert_eq!(Rejection::of(&refused).unwrap().reason(), Reason::KeyMissing);
        assert_eq!(problem(refused).await["axis"], "account");
        assert_eq!(status(&refusing, request("")).await, 400);
    }
    let malformed = answer(&refusing, doubled()).await;
    assert_eq!(Rejection::of(&malformed).unwrap().reason(), Reason::KeyMalformed);
    assert_eq!(malformed.status(), 400);

    let quota = Quota::fixed_window(2, HOUR).unwrap();
    let sharing = user("fixed 1/h").missing_key(MissingKey::Anonymous(quota)).layer(accepting());
    for expected in [202, 202, 429, 429] {
        assert_eq!(status(&sharing, anonymous()).await, expected);
    }
    assert_eq!(status(&sharing, request("alice")).await, 202);
    assert_eq!(status(&sharing, doubled()).await, 400);

    let uncounted = user("fixed 1/h").missing_key(MissingKey::Uncounted).layer(accepting());
    for _ in 0..10 {
        assert_eq!(status(&uncounted, anonymous()).await, 202);
    }
    assert_eq!(status(&uncounted, doubled()).await, 400);

    let lines = log.lines("tower_quota::config");
    assert_eq!(lines.len(), 3, "told once for each layer: {lines:?}");
    assert!(lines[0].contains("the header x-account"));
}

#[tokio::test]
async fn a_refusal_may_be_answered_in_the_application_s_own_form() {
    let layer = user("fixed 1/h").reject_with(|rejection, parts| {
        let seconds = rejection.retry_after().unwrap().as_secs();
        let bubble = format!("data: {{\"path\":\"{}\",\"retry\":{seconds}}}\n\n", parts.uri.path());
        Response::builder().header("content-type", "text/event-stream").body(bubble).unwrap()
    });
    let service = layer.layer(accepting());
    assert_eq!(status(&service, request("alice")).await, 202);
    let bubble = answer(&service, request("alice")).await;
    assert_eq!((bubble.status().as_u16(), header(&bubble, "content-type")), (200, Some("text/event-stream")));
    assert_eq!(header(&bubble, "retry-after"), None);
    assert!(Rejection::of(&bubble).is_some());
    assert_eq!(bubble.body().size_hint().exact(), Some(33));
    assert_eq!(text(bubble).await, "data: {\"path\":\"/\",\"retry\":3600}\n\n");
}

#[tokio::test]
async fn a_function_of_the_application_that_panics_is_a_500_and_charges_nothing() {
    let log = Log::start();
    let layer = user("fixed 1/h");
    let panicking = layer.clone().cost(|parts| -> u64 { panic!("no cost for {}", parts.uri) }).layer(accepting());
    let refused = answer(&panicking, request("alice")).await;
    assert_eq!(refused.status(), 500);
    assert_eq!(Rejection::of(&refused).unwrap().reason(), Reason::Misconfigured);
    assert_eq!(log.lines("no cost for /").len(), 1);

    let service = layer.clone().layer(accepting());
    assert_eq!(status(&service, request("alice")).await, 202);
    let speechless = layer.reject_with(|_, _| -> Response<Full<Bytes>> { panic!("nothing to say") }).layer(accepting());
    let refused = answer(&speechless, request("alice")).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(problem(refused).await["axis"], "account");
}

#[tokio::test]
async fn refusals_are_logged_once_a_second_and_without_keys() {
    let log = Log::start();
    let service = user("fixed 1/h").layer(accepting());
    for _ in 0..1_000 {
        status(&service, request("alice")).await;
    }
    let lines = log.lines("tower_quota::refusal");
    assert!((1..=2).contains(&lines.len()), "{lines:?}");
    assert!(lines[0].contains("INFO") && lines[0].contains("axis=\"account\"") && lines[0].contains("limit=1"));
    assert!(log.lines("alice").is_empty());
}

/// A body passes through frame by frame, trailers included, with its length and its end.
#[tokio::test]
async fn the_body_of_an_admitted_answer_is_the_inner_one() {
    let with_trailers = service_fn(|_: Request<Body>| async {
        let trailers = HeaderMap::from_iter([(HeaderName::from_static("x-sum"), HeaderValue::from_static("7"))]);
        let frames = [Ok::<_, Infallible>(Frame::data(Bytes::from("data"))), Ok(Frame::trailers(trailers))];
        Ok::<_, Infallible>(Response::new(StreamBody::new(stream::iter(frames))))
    });
    let body = user("fixed 1/h").layer(with_trailers).oneshot(request("alice")).await.unwrap().into_body();
    assert!(!body.is_end_stream());
    assert_eq!(body.size_hint().exact(), None);
    let collected = body.collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-sum"], "7");
    assert_eq!(collected.to_bytes(), "data");

    let whole = |text: &'static str| {
        service_fn(move |_: Request<Body>| async move { Ok::<_, Infallible>(Response::new(Body::from(text))) })
    };
    let body = user("fixed 1/h").layer(whole("")).oneshot(request("alice")).await.unwrap().into_body();
    assert!(body.is_end_stream());
    let body = user("fixed 1/h").layer(whole("12345")).oneshot(request("alice")).await.unwrap().into_body();
    assert!(!body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(5));
}

#[tokio::test]
async fn the_body_of_a_refusal_tells_its_length_and_its_end() {
    let own = |text: &'static str| user("fixed 0/h").reject_with(move |_, _| Response::new(Body::from(text)));
    for (layer, length) in [(user("fixed 0/h").into(), None), (own("12345"), Some(5)), (own(""), Some(0))] {
        let layer: QuotaLayer = layer;
        let mut body = answer(&layer.layer(accepting()), request("alice")).await.into_body();
        assert_eq!(body.is_end_stream(), length == Some(0));
        let told = body.size_hint().exact().unwrap();
        assert_eq!(told, length.unwrap_or(told));
        let mut received = 0;
        while let Some(frame) = body.frame().await {
            received += frame.unwrap().into_data().unwrap().len() as u64;
        }
        assert_eq!(received, told);
        assert!(body.is_end_stream());
    }
}
