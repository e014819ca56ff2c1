//! What a real server of HTTP/1 makes of a body whose length is known, behind our layers.

use std::convert::Infallible;
use std::future::{Ready, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::util::ServiceFn;
use tower::{Layer, Service, service_fn};
use tower_quota::{
    BackoffLayer, ConcurrencyLayer, Cooldown, CooldownLayer, LimitFields, MINUTE, Quota, QuotaLayer,
    ReadWriteSplitLayer, UserQuotaLayer, key,
};

use crate::support::group;

type Answering = ServiceFn<fn(Request<Incoming>) -> Ready<Result<Response<Full<Bytes>>, Infallible>>>;

fn five_bytes(_: Request<Incoming>) -> Ready<Result<Response<Full<Bytes>>, Infallible>> {
    ready(Ok(Response::new(Full::from("12345"))))
}

/// The head and the body of an answer, as they are on the wire.
async fn on_the_wire<S, B>(service: &S, method: &str) -> (String, String)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    let service = TowerToHyperService::new(service.clone());
    tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(server), service));
    let request = format!("{method} / HTTP/1.1\r\nhost: a\r\nx-account: alice\r\nconnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

async fn keeps_the_length<L, B>(layer: L)
where
    L: Layer<Answering>,
    L::Service:
        Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let service = layer.layer(service_fn(five_bytes));
    for (method, expected) in [("GET", "12345"), ("HEAD", ""), ("POST", "12345")] {
        let (head, body) = on_the_wire(&service, method).await;
        assert!(head.starts_with("http/1.1 200") && head.contains("\r\ncontent-length: 5"), "{method}: {head}");
        assert!(!head.contains("transfer-encoding"), "{method}: {head}");
        assert_eq!(body, expected, "{method}");
    }
}

#[tokio::test]
async fn t29_a_length_that_is_known_is_told_on_http_1_behind_every_layer() {
    let (group, _clock) = group();
    let account = || key::header("x-account").unwrap();
    let quota = |name: &str| {
        let axis = group.per_key(name, Quota::fixed_window(10, MINUTE)).build().unwrap();
        QuotaLayer::from(UserQuotaLayer::new(&axis, account())).limit_fields(LimitFields::draft_11())
    };
    keeps_the_length(ConcurrencyLayer::new(1)).await;
    keeps_the_length(quota("account")).await;
    keeps_the_length(ReadWriteSplitLayer::new(quota("reads"), ConcurrencyLayer::new(1))).await;
    let school = group.cooldown("school", Cooldown::after_attempts(10).rest(MINUTE)).build().unwrap();
    keeps_the_length(CooldownLayer::new(&school, account())).await;
    keeps_the_length(BackoffLayer::new(&group.backoff("upstream").build().unwrap(), account())).await;
}
