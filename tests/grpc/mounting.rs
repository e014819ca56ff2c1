//! The layers wherever tonic takes a layer: around a server, around one service, around a client.

use std::net::SocketAddr;

use tonic::Code;
use tonic::body::Body;
use tonic::service::{LayerExt, Routes};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tower::{Service, ServiceBuilder};
use tower_quota::{
    BackoffLayer, ConcurrencyLayer, Cooldown, CooldownLayer, HOUR, Key, Quota, QuotaLayer, ReadWriteSplitLayer,
    UserQuotaLayer, key,
};

use super::echo::Message;
use super::echo::echo_client::EchoClient;
use super::echo::echo_server::EchoServer;
use super::service::{Echoes, by};
use crate::support::group;

/// The codes of calls by way of a server that has the layer around all of it, of one that has it around its service, and
/// of a client that has it, two of each.
macro_rules! mounted_everywhere {
    ($layer:expr) => {{
        let layer = $layer;
        let whole = Server::builder().layer(layer.clone()).add_service(EchoServer::new(Echoes::at_once()));
        let one = Server::builder().add_routes(Routes::new(layer.named_layer(EchoServer::new(Echoes::at_once()))));
        let bare = Server::builder().add_service(EchoServer::new(Echoes::at_once()));
        let mut endpoints = Vec::new();
        for server in [incoming(), incoming(), incoming()] {
            endpoints
                .push((Endpoint::from_shared(format!("http://{}", server.local_addr().unwrap())).unwrap(), server));
        }
        let [(whole_at, at_whole), (one_at, at_one), (bare_at, at_bare)] = endpoints.try_into().unwrap();
        tokio::spawn(whole.serve_with_incoming(at_whole));
        tokio::spawn(one.serve_with_incoming(at_one));
        tokio::spawn(bare.serve_with_incoming(at_bare));

        let mut codes = Vec::new();
        for endpoint in [whole_at, one_at] {
            codes.extend(two_calls(EchoClient::new(endpoint.connect().await.unwrap())).await);
        }
        let client = ServiceBuilder::new().layer(layer).service(bare_at.connect().await.unwrap());
        codes.extend(two_calls(EchoClient::new(client)).await);
        codes
    }};
}

fn incoming() -> TcpIncoming {
    TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap()
}

async fn two_calls<C, B>(mut client: EchoClient<C>) -> [Code; 2]
where
    C: Service<http::Request<Body>, Response = http::Response<B>, Future: Send> + Send,
    C::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    let mut codes = [Code::Ok; 2];
    for code in &mut codes {
        let message = Message { text: "hello".to_owned(), repeat: 1 };
        *code = client.unary(by("alice", message)).await.map_or_else(|status| status.code(), |_| Code::Ok);
    }
    codes
}

fn of_account(limit: u64) -> QuotaLayer {
    let account = group().0.per_key("account", Quota::fixed_window(limit, HOUR)).build().unwrap();
    UserQuotaLayer::new(&account, key::header("x-account").unwrap()).into()
}

#[tokio::test]
async fn one_layer_value_is_one_budget_under_every_mount_point_of_tonic() {
    const OK: Code = Code::Ok;
    const EXHAUSTED: Code = Code::ResourceExhausted;
    assert_eq!(mounted_everywhere!(of_account(5)), [OK, OK, OK, OK, OK, EXHAUSTED]);
    assert_eq!(mounted_everywhere!(of_account(1)), [OK, EXHAUSTED, EXHAUSTED, EXHAUSTED, EXHAUSTED, EXHAUSTED]);

    let split = ReadWriteSplitLayer::new(of_account(1), of_account(3)).grpc_reads(["/echo.v1.Echo/ServerStream"]);
    assert_eq!(mounted_everywhere!(split), [OK, OK, OK, EXHAUSTED, EXHAUSTED, EXHAUSTED]);

    let (group, _clock) = group();
    let account = || key::header("x-account").unwrap();
    let rule = Cooldown::after_attempts(4).rest(HOUR);
    let cooldown = CooldownLayer::new(&group.cooldown("school", rule).build().unwrap(), account());
    assert_eq!(mounted_everywhere!(cooldown), [OK, OK, OK, OK, EXHAUSTED, EXHAUSTED]);

    let pauses = group.backoff("upstream").build().unwrap();
    let backoff = BackoffLayer::new(&pauses, account());
    assert_eq!(mounted_everywhere!(backoff.clone()), [OK; 6]);
    pauses.pause(&Key::from("alice"), HOUR).await.unwrap();
    assert_eq!(mounted_everywhere!(backoff), [Code::Unavailable; 6]);

    assert_eq!(mounted_everywhere!(ConcurrencyLayer::new(2)), [OK; 6]);
    assert_eq!(mounted_everywhere!(ConcurrencyLayer::new(0)), [Code::Unavailable; 6]);
}
