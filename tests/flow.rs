//! The example `flow`, and concurrency under real connections: slow bodies, callers who go, uploads on one HTTP/2 connection,
//! a web socket.

mod steered;

use std::convert::Infallible;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;
use tower::{Layer, service_fn};
use tower_quota::{ConcurrencyLayer, SECOND};

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

/// Uploads of a megabyte on one HTTP/2 connection, whose window is 64 KiB, to a handler that reads nothing before it is let
/// go on.
struct Uploads {
    client: SendRequest<Full<Bytes>>,
    go_on: watch::Sender<bool>,
}

impl Uploads {
    async fn past(layer: &ConcurrencyLayer) -> Self {
        const WINDOW: u32 = 65_535;
        let (go_on, may_go_on) = watch::channel(false);
        let service = layer.layer(service_fn(move |request: Request<Incoming>| {
            let mut may_go_on = may_go_on.clone();
            async move {
                may_go_on.wait_for(|may| *may).await.unwrap();
                let length = request.into_body().collect().await.unwrap().to_bytes().len();
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(length.to_string()))))
            }
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            server
                .initial_connection_window_size(WINDOW)
                .initial_stream_window_size(WINDOW)
                .max_concurrent_streams(100);
            server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await
        });
        let stream = TcpStream::connect(address).await.unwrap();
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (client, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { client, go_on }
    }

    /// Starts so many; their statuses, and what each answer says, as they come.
    fn start(&self, count: usize) -> FuturesUnordered<impl Future<Output = (StatusCode, Bytes)>> {
        let upload = |_| {
            let mut client = self.client.clone();
            async move {
                let body = Full::new(Bytes::from(vec![7; 1 << 20]));
                let response = client.send_request(Request::post("http://a/upload").body(body).unwrap()).await.unwrap();
                let status = response.status();
                (status, response.into_body().collect().await.unwrap().to_bytes())
            }
        };
        (0..count).map(upload).collect()
    }
}

/// The next so many answers, which are all of this status.
async fn answers(uploads: &mut FuturesUnordered<impl Future<Output = (StatusCode, Bytes)>>, status: u16, count: usize) {
    for _ in 0..count {
        let (told, text) = uploads.next().await.unwrap();
        assert!(told == status && (status != 200 || text == "1048576"), "{told} {text:?}");
    }
}

#[tokio::test]
async fn t30_more_streams_than_permits_never_stop_a_connection() {
    const WAIT: Duration = Duration::from_millis(500);
    let limit = ConcurrencyLayer::new(2);
    for (layer, at_once, later) in
        [(limit.clone(), 8, 0), (limit.clone().max_wait(WAIT), 0, 8), (limit.clone().max_wait(WAIT).max_queue(3), 5, 3)]
    {
        let uploads = Uploads::past(&layer).await;
        let everything = async {
            let (mut ended, started) = (uploads.start(10), Instant::now());
            // All of these are answered though two others stand still in the middle.
            answers(&mut ended, 503, at_once).await;
            assert!(at_once == 0 || (layer.in_flight(), layer.queued()) == (2, later));
            answers(&mut ended, 503, later).await;
            assert!(later == 0 || started.elapsed() >= WAIT);
            assert_eq!((layer.in_flight(), layer.queued()), (2, 0));
            // And what they have sent, which nobody reads, is not in the way of these.
            uploads.go_on.send_replace(true);
            answers(&mut ended, 200, 2).await;
        };
        tokio::time::timeout(5 * SECOND, everything).await.expect("every call ends");
        assert_eq!((layer.in_flight(), layer.queued()), (0, 0));
    }
}

#[tokio::test]
async fn t30_uploads_that_wait_for_each_other_s_window_wait_no_longer_than_they_may() {
    let layer = ConcurrencyLayer::new(2).max_wait(SECOND / 2).max_queue(3);
    let uploads = Uploads::past(&layer).await;
    uploads.go_on.send_replace(true);
    let ended = tokio::time::timeout(5 * SECOND, uploads.start(10).collect::<Vec<_>>()).await.expect("every call ends");
    let with = |status: u16| ended.iter().filter(|(told, _)| *told == status).count();
    assert!((2..=5).contains(&with(200)) && with(200) + with(503) == 10, "{ended:?}");
    assert_eq!((layer.in_flight(), layer.queued()), (0, 0));
}
