//! Clients told apart by their addresses, behind a real listener.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower_quota::key::{self, PeerAddr, TrustedProxies};
use tower_quota::{Quota, RequestKey, UserQuotaLayer};

use crate::support::{Counted, Log, group};

struct Served {
    base: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Served {
    async fn start(key: RequestKey, limit: u64, tells_peers: bool) -> Self {
        let (group, _clock) = group();
        let axis = group.per_key("address", Quota::per_hour(limit)).build().unwrap();
        let app = Router::new().route("/", get(|| async { "ok" })).layer(UserQuotaLayer::new(&axis, key));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/", listener.local_addr().unwrap());
        if tells_peers {
            let app = app.into_make_service_with_connect_info::<SocketAddr>();
            tokio::spawn(axum::serve(listener, app).into_future());
        } else {
            tokio::spawn(axum::serve(listener, app).into_future());
        }
        Self { base, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    async fn get(&self, headers: &[(&str, String)]) -> u16 {
        let mut request = Request::get(&self.base);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        self.client.request(request.body(Full::default()).unwrap()).await.unwrap().status().as_u16()
    }
}

fn forwarded_for(value: impl Into<String>) -> [(&'static str, String); 1] {
    [("x-forwarded-for", value.into())]
}

#[tokio::test]
async fn t17_what_a_client_puts_before_the_proxy_s_entry_makes_no_new_bucket() {
    let trusted = TrustedProxies::networks(["127.0.0.0/8"]).unwrap();
    let served = Served::start(key::client_ip(trusted), 20, true).await;
    for number in 0..20 {
        assert_eq!(served.get(&forwarded_for(format!("198.51.100.{number}, 203.0.113.7"))).await, 200);
    }
    assert_eq!(served.get(&forwarded_for("198.51.100.99, 203.0.113.7:4711")).await, 429);
    assert_eq!(served.get(&forwarded_for("203.0.113.8")).await, 200, "another client");
}

#[tokio::test]
async fn t17_a_peer_that_is_not_trusted_speaks_for_itself_alone() {
    let served = Served::start(key::client_ip(TrustedProxies::networks(["10.0.0.0/8"]).unwrap()), 5, true).await;
    for number in 0..5 {
        assert_eq!(served.get(&forwarded_for(format!("203.0.113.{number}"))).await, 200);
    }
    assert_eq!(served.get(&forwarded_for("203.0.113.99")).await, 429);
}

#[tokio::test]
async fn t19_a_host_s_many_addresses_are_one_client() {
    let trusted = TrustedProxies::networks(["127.0.0.0/8"]).unwrap();
    let served = Served::start(key::client_ip(trusted), 10, true).await;
    let mut admitted = 0;
    for number in 0..200 {
        admitted += u32::from(served.get(&forwarded_for(format!("2001:db8:1:1::{number:x}"))).await == 200);
    }
    assert_eq!(admitted, 10);
    assert_eq!(served.get(&forwarded_for("2001:db8:1:2::1")).await, 200);
}

#[tokio::test]
async fn t21_a_server_that_tells_no_peers_is_found_out_at_the_first_request_and_told_once() {
    let log = Log::start();
    let served = Served::start(key::client_ip(TrustedProxies::none()), 10, false).await;
    for _ in 0..3 {
        assert_eq!(served.get(&[]).await, 400);
    }
    let lines = log.lines("a request has no key");
    assert!(lines.len() == 1 && lines[0].contains("into_make_service_with_connect_info"), "{lines:#?}");
}

#[tokio::test]
async fn t18_a_proxy_that_names_no_address_is_told_of() {
    let (log, counted) = (Log::start(), Counted::default());
    let _recorder = metrics::set_default_local_recorder(&counted);
    let served = Served::start(key::client_ip(TrustedProxies::networks(["127.0.0.0/8"]).unwrap()), 3, true).await;
    for (entry, expected) in [("203.0.113.7:", 200), ("unknown", 200), ("1.2.3", 200), ("203.0.113.7:+80", 429)] {
        assert_eq!(served.get(&forwarded_for(entry)).await, expected, "{entry}");
    }
    assert_eq!(served.get(&forwarded_for("203.0.113.7:80")).await, 200);
    let lines = log.lines("names something that is no address");
    assert!((1..=2).contains(&lines.len()) && !lines[0].contains("127.0.0.1"), "{lines:#?}");
    assert!(counted.all().contains(&("tower_quota_unreadable_addresses_total".to_owned(), 4)), "{:?}", counted.all());
}

/// One request over a Unix socket; its status.
#[cfg(unix)]
async fn get_over(socket: &std::path::Path) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::UnixStream::connect(socket).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[cfg(unix)]
#[tokio::test]
async fn t21_over_a_unix_socket_a_peer_is_who_the_application_says() {
    let folder = std::env::temp_dir().join(format!("tower-quota-socket-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let says = |peer: [u8; 4]| {
        axum::middleware::map_request(move |mut request: axum::extract::Request| async move {
            request.extensions_mut().insert(PeerAddr(peer.into()));
            request
        })
    };
    let (group, _clock) = group();
    let axis = group.per_key("address", Quota::per_hour(2)).build().unwrap();
    let layer = UserQuotaLayer::new(&axis, key::client_ip(TrustedProxies::none()));
    let counted = Router::new().route("/", get(|| async { "ok" })).layer(layer);
    let apps = [counted.clone(), counted.clone().layer(says([192, 0, 2, 1])), counted.layer(says([192, 0, 2, 2]))];
    for (number, (app, expected)) in apps.into_iter().zip([[400; 3], [200, 200, 429], [200, 200, 429]]).enumerate() {
        let socket = folder.join(number.to_string());
        let _ = std::fs::remove_file(&socket);
        tokio::spawn(axum::serve(tokio::net::UnixListener::bind(&socket).unwrap(), app).into_future());
        for status in expected {
            assert_eq!(get_over(&socket).await, status, "{number}");
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn an_account_is_counted_as_such_and_everybody_else_by_address() {
    let key = key::header("x-account").unwrap().or(key::client_ip(TrustedProxies::none()));
    let served = Served::start(key, 2, true).await;
    let account = |name: &str| [("x-account", name.to_owned())];
    for expected in [200, 200, 429] {
        assert_eq!(served.get(&account("alice")).await, expected);
        assert_eq!(served.get(&[]).await, expected);
    }
    assert_eq!(served.get(&account("127.0.0.1")).await, 200, "an account that is called like an address is none");
}
