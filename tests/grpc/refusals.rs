//! What a refused call is answered.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body as _;
use tonic::{Code, Status};
use tower::{Layer, service_fn};
use tower_quota::{
    BackoffLayer, ConcurrencyLayer, Cooldown, CooldownLayer, GlobalCapacityLayer, Group, HOUR, Key, LimitFields,
    MINUTE, OnStoreFailure, Quota, QuotaLayer, Reason, Rejection, UserQuotaLayer, key,
};

use super::echo::Message;
use super::service::{Echoes, behind, by};
use super::told;
use crate::support::{Body, SlowStore, accepting, answer, group, header};

fn per_account(quota: Quota) -> QuotaLayer {
    let account = group().0.per_key("account", quota).build().unwrap();
    UserQuotaLayer::new(&account, key::header("x-account").unwrap()).into()
}

fn call(content_type: &str) -> Request<Body> {
    Request::post("/echo.v1.Echo/Unary")
        .header("content-type", content_type)
        .header("x-account", "alice")
        .body(Body::default())
        .unwrap()
}

fn message(repeat: u32) -> Message {
    Message { text: "hello".to_owned(), repeat }
}

#[tokio::test]
async fn an_account_is_told_how_long_to_wait_and_for_what() {
    let millis = Duration::from_millis(1_200);
    let mut client = behind(per_account(Quota::fixed_window(1, millis).unwrap()), Echoes::at_once()).await;
    client.unary(by("alice", message(1))).await.unwrap();
    let refused = client.unary(by("alice", message(1))).await.unwrap_err();
    assert_eq!(told(&refused), (Code::ResourceExhausted, Some(millis), vec!["account".to_owned()]));
    assert_eq!(refused.message(), "The quota is used up");
    assert!(refused.metadata().get("grpc-retry-pushback-ms").is_none());
    client.unary(by("bob", message(1))).await.unwrap();
    let nobody = client.unary(message(1)).await.unwrap_err();
    assert_eq!(told(&nobody), (Code::InvalidArgument, None, vec![]));
}

#[tokio::test]
async fn a_full_service_is_unavailable() {
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(10, HOUR)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(1, HOUR)).build().unwrap();
    let layer: QuotaLayer = UserQuotaLayer::new(&account, key::header("x-account").unwrap()).into();
    let layer = layer.and(GlobalCapacityLayer::new(&capacity)).unwrap();
    let mut client = behind(layer, Echoes::at_once()).await;
    client.unary(by("alice", message(1))).await.unwrap();
    let refused = client.unary(by("bob", message(1))).await.unwrap_err();
    assert_eq!(told(&refused), (Code::Unavailable, Some(HOUR), vec!["capacity".to_owned()]));

    let mut client = behind(ConcurrencyLayer::new(0), Echoes::at_once()).await;
    let busy = client.unary(message(1)).await.unwrap_err();
    assert_eq!(told(&busy), (Code::Unavailable, Some(Duration::from_secs(1)), vec![]));
}

#[tokio::test]
async fn a_store_that_fails_closed_is_unavailable() {
    let group = Group::builder("test").on_store_failure(OnStoreFailure::Closed).build(SlowStore::failing()).unwrap();
    let account = group.per_key("account", Quota::fixed_window(10, HOUR)).build().unwrap();
    let layer = UserQuotaLayer::new(&account, key::header("x-account").unwrap());
    let mut client = behind(layer, Echoes::at_once()).await;
    let refused = client.unary(by("alice", message(1))).await.unwrap_err();
    assert_eq!(told(&refused), (Code::Unavailable, Some(Duration::from_secs(1)), vec![]));
}

#[tokio::test]
async fn what_a_handler_charges_refuses_its_call() {
    let layer = per_account(Quota::fixed_window(10, HOUR).unwrap()).charged_by_handler();
    let mut client = behind(layer.grpc_pushback().limit_fields(LimitFields::draft_11()), Echoes::at_once()).await;
    let admitted = client.unary(by("alice", message(6))).await.unwrap();
    assert_eq!(admitted.metadata().get("ratelimit").unwrap(), r#""account";r=4;t=3600"#);
    let refused = client.unary(by("alice", message(5))).await.unwrap_err();
    assert_eq!(told(&refused), (Code::ResourceExhausted, Some(HOUR), vec!["account".to_owned()]));
    assert_eq!(refused.metadata().get("ratelimit").unwrap(), r#""account";r=4;t=3600"#);
    let never = client.unary(by("alice", message(11))).await.unwrap_err();
    assert_eq!(told(&never), (Code::FailedPrecondition, None, vec!["account".to_owned()]));
    client.unary(by("alice", message(4))).await.unwrap();
}

#[tokio::test]
async fn retry_policies_are_told_when_to_try_again_if_that_is_wanted() {
    let quota = Quota::fixed_window(1, Duration::from_micros(1_200_001)).unwrap();
    let costing = |cost: u64| per_account(quota).cost(move |_| cost).grpc_pushback();
    let service = costing(1).layer(accepting());
    answer(&service, call("application/grpc")).await;
    let refused = answer(&service, call("application/grpc")).await;
    assert_eq!(header(&refused, "grpc-retry-pushback-ms"), Some("1201"));
    let never = answer(&costing(2).layer(accepting()), call("application/grpc")).await;
    assert_eq!((header(&never, "grpc-status"), header(&never, "grpc-retry-pushback-ms")), (Some("9"), Some("-1")));
    let relay = group().0;
    let school = relay.cooldown("school", Cooldown::after_attempts(1).rest(HOUR)).build().unwrap();
    let resting = CooldownLayer::new(&school, key::header("x-account").unwrap()).grpc_pushback().layer(accepting());
    answer(&resting, call("application/grpc")).await;
    let refused = answer(&resting, call("application/grpc")).await;
    assert_eq!(
        (header(&refused, "grpc-status"), header(&refused, "grpc-retry-pushback-ms")),
        (Some("8"), Some("3600000"))
    );
    let upstream = relay.backoff("upstream").build().unwrap();
    upstream.pause(&Key::from("alice"), MINUTE).await.unwrap();
    let paused = BackoffLayer::new(&upstream, key::header("x-account").unwrap()).grpc_pushback().layer(accepting());
    let refused = answer(&paused, call("application/grpc")).await;
    assert_eq!(
        (header(&refused, "grpc-status"), header(&refused, "grpc-retry-pushback-ms")),
        (Some("14"), Some("60000"))
    );
    let busy = answer(&ConcurrencyLayer::new(0).grpc_pushback().layer(accepting()), call("application/grpc")).await;
    assert_eq!((header(&busy, "grpc-status"), header(&busy, "grpc-retry-pushback-ms")), (Some("14"), Some("1000")));
}

#[tokio::test]
async fn the_answer_is_of_the_kind_of_the_request() {
    let service = per_account(Quota::fixed_window(1, HOUR).unwrap()).layer(accepting());
    answer(&service, call("application/grpc")).await;
    for (asked, answered) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc+proto", "application/grpc"),
        ("application/grpc-web+proto", "application/grpc-web+proto"),
    ] {
        let refused = answer(&service, call(asked)).await;
        assert_eq!(refused.status(), 200);
        assert_eq!(header(&refused, "content-type"), Some(answered));
        assert_eq!(header(&refused, "grpc-status"), Some("8"));
        assert_eq!(header(&refused, "grpc-message"), Some("The%20quota%20is%20used%20up"));
        assert_eq!(header(&refused, "retry-after"), None);
        assert!(refused.body().is_end_stream());
        assert_eq!(Rejection::of(&refused).unwrap().reason(), Reason::QuotaExceeded);
    }
    let refused = answer(&service, call("application/json")).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "grpc-status")), (429, None));
    assert_eq!(header(&refused, "content-type"), Some("application/problem+json"));
}

#[tokio::test]
async fn an_answer_of_the_application_reaches_calls_only_if_it_is_one_of_grpc() {
    let layer = per_account(Quota::fixed_window(1, HOUR).unwrap()).reject_with(|_, parts| {
        let of_grpc = parts.headers.contains_key("x-teapot");
        let kind = if of_grpc { "application/grpc" } else { "text/plain" };
        Response::builder().header("content-type", kind).header("grpc-status", "10").body(Body::default()).unwrap()
    });
    let service = layer.layer(accepting());
    answer(&service, call("application/grpc")).await;
    assert_eq!(header(&answer(&service, call("application/grpc")).await, "grpc-status"), Some("8"));
    let mut teapot = call("application/grpc");
    teapot.headers_mut().insert("x-teapot", "1".parse().unwrap());
    assert_eq!(header(&answer(&service, teapot).await, "grpc-status"), Some("10"));
    assert_eq!(header(&answer(&service, call("text/plain")).await, "content-type"), Some("text/plain"));
}

#[tokio::test]
async fn the_rejection_that_a_handler_returns_as_a_status_is_found_by_outer_layers() {
    let inner = service_fn(|_: Request<Body>| async {
        let status = Status::from(Rejection::from(tower_quota::ChargeError::MissingKey { axis: "account" }));
        Ok::<_, Infallible>(status.into_http::<Body>())
    });
    let response = answer(&inner, call("application/grpc")).await;
    let rejection = Rejection::of(&response).unwrap();
    assert_eq!((rejection.reason(), rejection.axis()), (Reason::KeyMissing, Some("account")));
}
