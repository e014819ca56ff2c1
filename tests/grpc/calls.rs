//! What calls and their streams cost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::sync::Semaphore;
use tonic::Code;
use tower::Layer;
use tower_quota::key::TrustedProxies;
use tower_quota::{ConcurrencyLayer, HOUR, LimitFields, Quota, UserQuotaLayer, key};

use super::echo::Message;
use super::service::{Client, Echoes, behind, by};
use crate::support::group;

fn message(repeat: u32) -> Message {
    Message { text: "hello".to_owned(), repeat }
}

#[tokio::test]
async fn a_stream_costs_one_however_many_messages_it_has() {
    let account = group().0.per_key("account", Quota::fixed_window(3, HOUR)).build().unwrap();
    let layer = UserQuotaLayer::new(&account, key::header("x-account").unwrap()).limit_fields(LimitFields::draft_11());
    let mut client = behind(layer, Echoes::at_once()).await;

    let messages = stream::iter((0..25).map(|_| message(1)));
    assert_eq!(client.client_stream(by("alice", messages)).await.unwrap().into_inner().repeat, 25);

    let answer = client.server_stream(by("alice", message(10_000))).await.unwrap();
    assert_eq!(answer.metadata().get_all("ratelimit").iter().collect::<Vec<_>>(), [r#""account";r=1;t=3600"#]);
    let mut messages = answer.into_inner();
    let mut count = 0;
    while messages.message().await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 10_000);
    assert!(messages.trailers().await.unwrap().is_none_or(|trailers| !trailers.contains_key("ratelimit")));

    client.bidi(by("alice", stream::iter([message(1), message(2)]))).await.unwrap();
    let refused = client.bidi(by("alice", stream::pending())).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}

/// Whether the answer came to its end.
async fn make(kind: &str, mut client: Client) -> bool {
    let messages = || stream::iter([message(2), message(2)]);
    match kind {
        "unary" => client.unary(message(1)).await.is_ok(),
        "client stream" => client.client_stream(messages()).await.is_ok(),
        "server stream" => ends(client.server_stream(message(2)).await.unwrap().into_inner()).await,
        _ => ends(client.bidi(messages()).await.unwrap().into_inner()).await,
    }
}

async fn ends(mut messages: tonic::Streaming<Message>) -> bool {
    let mut count = 0;
    while let Some(message) = messages.message().await.unwrap() {
        assert_eq!(message.text, "hello");
        count += 1;
    }
    count == 2
}

async fn until(condition: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    waited.await.expect("it comes about");
}

#[tokio::test]
async fn each_kind_of_call_holds_a_permit_until_its_end() {
    let layer = ConcurrencyLayer::new(1);
    let may_end = Arc::new(Semaphore::new(0));
    let mut client = behind(layer.clone(), Echoes::when(&may_end)).await;
    for kind in ["unary", "client stream", "server stream", "bidi"] {
        let call = tokio::spawn(make(kind, client.clone()));
        until(|| layer.in_flight() == 1).await;
        assert_eq!(client.unary(message(1)).await.unwrap_err().code(), Code::Unavailable, "{kind}");
        may_end.add_permits(1);
        assert!(call.await.unwrap(), "{kind}");
        until(|| layer.in_flight() == 0).await;

        // A client that leaves gives its permit back.
        let call = tokio::spawn(make(kind, client.clone()));
        until(|| layer.in_flight() == 1).await;
        call.abort();
        until(|| layer.in_flight() == 0).await;
    }
}

#[tokio::test]
async fn tonic_tells_the_address_of_the_peer() {
    let client_ip = group().0.per_key("address", Quota::fixed_window(2, HOUR)).build().unwrap();
    let layer = UserQuotaLayer::new(&client_ip, key::client_ip(TrustedProxies::hops(0)));
    let mut client = behind(layer, Echoes::at_once()).await;
    for expected in [Code::Ok, Code::Ok, Code::ResourceExhausted] {
        let code = client.unary(message(1)).await.map_or_else(|status| status.code(), |_| Code::Ok);
        assert_eq!(code, expected);
    }
}

#[tokio::test]
async fn a_layer_fits_around_one_service() {
    let account = group().0.per_key("account", Quota::fixed_window(1, HOUR)).build().unwrap();
    let layer = UserQuotaLayer::new(&account, key::header("x-account").unwrap());
    let inner = tower::layer::layer_fn(move |routes: tonic::service::Routes| {
        let _ = routes;
        let echoes = super::echo::echo_server::EchoServer::new(Echoes::at_once());
        tonic::service::Routes::new(tonic::service::LayerExt::named_layer(&layer, echoes))
    });
    let _ = &inner as &dyn Layer<_, Service = tonic::service::Routes>;
    let mut client = behind(inner, Echoes::at_once()).await;
    client.unary(by("alice", message(1))).await.unwrap();
    assert_eq!(client.unary(by("alice", message(1))).await.unwrap_err().code(), Code::ResourceExhausted);
}
