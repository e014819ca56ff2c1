//! The example `flow`, and concurrency under real connections: slow bodies, callers who go, uploads on one HTTP/2 connection,
//! a web socket.

mod steered;

use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{SinkExt, StreamExt};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tower_quota::ConcurrencyLayer;

use crate::support::{Example, Server};

async fn in_flight(flow: &Example) -> (u64, u64) {
    let answer: serde_json::Value = serde_json::from_str(flow.send("GET", "/inflight", &[], "").await.body()).unwrap();
    (answer["in_flight"].as_u64().unwrap(), answer["queued"].as_u64().unwrap())
}

/// Waits until so many are in flight; how long that took.
async fn until_in_flight(flow: &Example, count: u64) -> Duration {
    let started = Instant::now();
    while in_flight(flow).await.0 != count {
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{:?} instead of {count} in flight",
            in_flight(flow).await
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    started.elapsed()
}

/// A connection that has sent a request and reads only what it is told to.
async fn raw(flow: &Example, path: &str) -> TcpStream {
    let address = flow.base.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn t32_requests_are_in_flight_until_their_bodies_end_or_their_callers_go() {
    let flow = Example::start("flow", &[("CONCURRENCY", "3")]);
    let streams = [raw(&flow, "/stream?chunks=1000&ms=20").await, raw(&flow, "/stream?chunks=1000&ms=20").await];
    until_in_flight(&flow, 2).await;
    let slow = flow.send("GET", "/slow?ms=200", &[], "");
    let (slow, ()) = tokio::join!(slow, async {
        until_in_flight(&flow, 3).await;
        let refused = flow.send("GET", "/slow?ms=0", &[], "").await;
        assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    });
    assert_eq!((slow.status().as_u16(), slow.body().as_str()), (200, "done\n"));
    // The heads have been sent long ago, and their bodies go on.
    assert_eq!(in_flight(&flow).await, (2, 0));
    let [mut first, second] = streams;
    let mut byte = [0];
    first.read_exact(&mut byte).await.unwrap();
    drop(first);
    let freed = until_in_flight(&flow, 1).await;
    assert!(freed < Duration::from_secs(2), "{freed:?} after its caller has gone");
    drop(second);
    until_in_flight(&flow, 0).await;
    assert_eq!(flow.send("GET", "/stream?chunks=3&ms=1", &[], "").await.body(), &"chunk\n".repeat(3));
    // A connection that is kept alive holds nothing.
    assert_eq!(in_flight(&flow).await, (0, 0));
}

#[tokio::test]
async fn those_who_wait_are_served_in_turn() {
    let flow = Example::start("flow", &[("CONCURRENCY", "2"), ("QUEUE", "3"), ("WAIT_MS", "5000")]);
    let requests = (0..6).map(|_| flow.send("GET", "/slow?ms=150", &[], ""));
    let mut statuses: Vec<_> = join_all(requests).await.into_iter().map(|answer| answer.status().as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 503], "two at once, three that wait, and one too many");
}

#[tokio::test]
async fn a_web_socket_is_in_flight_until_it_is_closed() {
    let flow = Example::start("flow", &[("CONCURRENCY", "1")]);
    let url = format!("ws://{}/ws", flow.base.strip_prefix("http://").unwrap());
    let (mut socket, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
    socket.send(Message::text("hello")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("hello"));
    assert_eq!(in_flight(&flow).await, (1, 0));
    assert_eq!(flow.send("GET", "/slow?ms=0", &[], "").await.status(), 503);
    socket.close(None).await.unwrap();
    drop(socket);
    until_in_flight(&flow, 0).await;
    assert_eq!(flow.send("GET", "/slow?ms=0", &[], "").await.status(), 200);
}

#[tokio::test]
async fn seats_pushes_and_an_upstream_answer_as_they_are_steered() {
    let server = Server::start();
    let url = server.url();
    for environment in [vec![], vec![("REDIS_URL", &*url)]] {
        let environment = [vec![("ATTEMPTS", "500"), ("REST_S", "100")], environment].concat();
        let flow = Example::start("flow", &environment);
        let user = [("x-user", "alice")];
        let mut statuses = Vec::new();
        for _ in 0..9 {
            statuses.push(flow.send("GET", "/seats", &user, "").await.status().as_u16());
        }
        // A second may end in between.
        assert!(statuses.iter().filter(|status| **status == 202).count() >= 8, "{statuses:?}");
        assert_eq!(flow.send("POST", "/seats", &user, "").await.status(), 202);
        assert_eq!(flow.send("GET", "/seats", &[], "").await.status(), 400);
        for (method, path) in [("DELETE", "/seats"), ("POST", "/slow?ms=1")] {
            assert_eq!(flow.send(method, path, &[], "").await.status(), 405, "it is not counted");
        }

        let school = [("x-school", "north")];
        let push = async |recipients: u64| {
            let answer = flow.send("POST", "/push", &school, &format!("{{\"recipients\": {recipients}}}")).await;
            (answer.status().as_u16(), answer.body().clone(), answer.headers().get("retry-after").cloned())
        };
        for (sent, left) in [(200, 50), (200, 50), (100, 150)] {
            assert_eq!(push(250).await.1, format!("{{\"sent\":{sent},\"left\":{left}}}"));
        }
        let (status, _, retry_after) = push(1).await;
        let wait: u64 = retry_after.unwrap().to_str().unwrap().parse().unwrap();
        assert!(status == 429 && (95..=100).contains(&wait), "{status}, {wait}");
        for nobody in [&[][..], &[("x-school", "")], &[("x-school", "north"), ("x-school", "south")]] {
            assert_eq!(flow.send("POST", "/push", nobody, "{\"recipients\": 1}").await.status(), 400, "{nobody:?}");
        }

        let upstream = async |query: &str| flow.send("GET", &format!("/upstream?{query}"), &[], "").await;
        for none in ["status=99", "status=1000", "status=70000", "status=x"] {
            assert_eq!(upstream(none).await.status(), 400, "{none}");
        }
        assert_eq!(upstream("status=200").await.status(), 200);
        let told = upstream("status=429&retry_after=2").await;
        assert_eq!((told.status().as_u16(), &told.headers()["retry-after"]), (429, &"2".parse().unwrap()));
        tokio::time::sleep(Duration::from_millis(100)).await;
        let paused = upstream("status=200").await;
        assert_eq!((paused.status().as_u16(), &paused.headers()["retry-after"]), (503, &"2".parse().unwrap()));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(upstream("status=200").await.status(), 200);
    }
}

/// Ten uploads of a megabyte on one HTTP/2 connection, whose window is 64 KiB, past a limit of two.
async fn uploads(layer: ConcurrencyLayer) -> Vec<(StatusCode, Duration)> {
    let app = Router::new().route(
        "/upload",
        post(|body: axum::body::Body| async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            body.collect().await.unwrap().to_bytes().len().to_string()
        })
        .route_layer(layer),
    );
    let app = app.layer(axum::extract::DefaultBodyLimit::disable());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let stream = TcpStream::connect(address).await.unwrap();
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (client, connection) = builder.handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let started = Instant::now();
    let calls = (0..10).map(|_| {
        let mut client = client.clone();
        tokio::spawn(async move {
            let body = Full::new(Bytes::from(vec![7; 1 << 20]));
            let request = Request::post(format!("http://{address}/upload")).body(body).unwrap();
            let response: Response<_> = client.send_request(request).await.unwrap();
            let status = response.status();
            let _ = response.into_body().collect().await;
            (status, started.elapsed())
        })
    });
    let ended = tokio::time::timeout(Duration::from_secs(5), join_all(calls)).await.expect("every call ends");
    connection.abort();
    server.abort();
    ended.into_iter().map(Result::unwrap).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t30_more_streams_than_permits_never_stop_a_connection() {
    for layer in [
        ConcurrencyLayer::new(2),
        ConcurrencyLayer::new(2).max_wait(Duration::from_millis(200)),
        ConcurrencyLayer::new(2).max_wait(Duration::from_secs(4)),
    ] {
        let ended = uploads(layer.clone()).await;
        assert!(ended.iter().filter(|(status, _)| *status == 200).count() >= 2, "{ended:?}");
        assert!(ended.iter().all(|(status, _)| [200, 503].contains(&status.as_u16())), "{ended:?}");
        assert_eq!((layer.in_flight(), layer.queued()), (0, 0));
    }
}
