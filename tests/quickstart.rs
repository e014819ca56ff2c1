//! The example `quickstart`, run as a user runs it.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::support::Server;

/// The example's program, which `cargo test` builds beside this one.
fn program() -> Command {
    let tests = std::env::current_exe().unwrap();
    let target: PathBuf = tests.ancestors().nth(2).unwrap().into();
    let program = target.join("examples").join("quickstart");
    assert!(program.exists(), "{} is missing: run `cargo build --example quickstart` first", program.display());
    let mut command = Command::new(program);
    command.env_clear().env("ADDR", "127.0.0.1:0").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The service, running; it is stopped when dropped.
struct Quickstart {
    process: Child,
    base: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Quickstart {
    fn start(environment: &[(&str, &str)]) -> Self {
        let mut process = program().envs(environment.iter().copied()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = lines.next().expect("it says where it listens").unwrap();
        let base = first.strip_prefix("Listening on ").unwrap().to_owned();
        let curls = lines.by_ref().take(3).filter(|line| line.as_ref().unwrap().contains("curl ")).count();
        assert_eq!(curls, 2, "it prints two lines to try");
        // Whatever it prints later is read, so that it never waits for us.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, base, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    async fn send(&self, method: &str, path: &str, account: Option<&str>, body: &str) -> Response<String> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(account) = account {
            request = request.header("x-account", account);
        }
        let request = request.header("content-type", "application/json").body(Full::from(body.to_owned())).unwrap();
        let (parts, body) = self.client.request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Response::from_parts(parts, String::from_utf8(body).unwrap())
    }

    async fn post(&self, path: &str, account: &str, images: usize) -> u16 {
        let body = serde_json::json!({ "images": vec!["a.jpg"; images] }).to_string();
        self.send("POST", path, Some(account), &body).await.status().as_u16()
    }

    /// Ctrl-C, and how the process ended.
    fn interrupt(&mut self) -> std::process::ExitStatus {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Quickstart {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const ITEMS: [&str; 3] = ["/wishlists", "/wishlists/7/refresh", "/tournaments/7/items/link"];
const BATCHES: [&str; 4] = [
    "/wishlists/images",
    "/wishlists/images/presigned",
    "/tournaments/7/items/images",
    "/tournaments/7/items/images/presigned",
];

#[tokio::test]
async fn an_account_has_30_items_an_hour_over_all_routes() {
    let service = Quickstart::start(&[]);
    for path in ITEMS {
        for _ in 0..4 {
            assert_eq!(service.post(path, "alice", 0).await, 202);
        }
    }
    for path in BATCHES {
        assert_eq!(service.post(path, "alice", 4).await, 202, "{path}");
    }
    // 28 are used: 3 would pass the limit in their middle, and are refused whole.
    for path in BATCHES {
        assert_eq!(service.post(path, "alice", 3).await, 429, "{path}");
    }
    assert_eq!(service.post("/wishlists/images", "alice", 2).await, 202);
    let refused = service.send("POST", "/wishlists", Some("alice"), "").await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["cache-control"], "no-store");
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((3_500..=3_600).contains(&wait), "{wait}");
    assert_eq!(service.post("/wishlists", "bob", 0).await, 202);
    assert_eq!(service.post("/wishlists/images", "bob", 31).await, 422);
}

#[tokio::test]
async fn a_full_service_is_503_and_costs_the_account_nothing() {
    let service = Quickstart::start(&[("ACCOUNT_PER_HOUR", "5"), ("CAPACITY_PER_HOUR", "8")]);
    assert_eq!(service.post("/wishlists/images", "alice", 5).await, 202);
    for _ in 0..10 {
        assert_eq!(service.post("/wishlists/images", "bob", 4).await, 503);
    }
    assert_eq!(service.post("/wishlists", "alice", 0).await, 429);
    assert_eq!(service.post("/wishlists/images", "bob", 3).await, 202);
    assert_eq!(service.post("/wishlists", "alice", 0).await, 429);
    assert_eq!(service.post("/wishlists", "bob", 0).await, 503);
}

#[tokio::test]
async fn what_parses_nothing_is_not_counted() {
    let service = Quickstart::start(&[("ACCOUNT_PER_HOUR", "1"), ("CAPACITY_PER_HOUR", "1")]);
    for _ in 0..3 {
        for (method, path, expected) in [
            ("GET", "/wishlists", 200),
            ("POST", "/wishlists/images/confirm", 202),
            ("POST", "/tournaments/7/items/wish", 202),
            ("GET", "/health", 200),
        ] {
            assert_eq!(service.send(method, path, None, "").await.status(), expected, "{method} {path}");
        }
    }
    assert_eq!(service.post("/wishlists/images", "alice", 0).await, 400);
    assert_eq!(service.send("POST", "/wishlists", None, "").await.status(), 400);
    assert_eq!(service.post("/wishlists", "alice", 0).await, 202);
}

#[tokio::test]
async fn another_method_is_not_counted() {
    let service = Quickstart::start(&[("ACCOUNT_PER_HOUR", "1"), ("CAPACITY_PER_HOUR", "1")]);
    for path in ITEMS.into_iter().skip(1).chain(BATCHES) {
        for method in ["GET", "OPTIONS", "DELETE"] {
            assert_eq!(service.send(method, path, Some("alice"), "").await.status(), 405, "{method} {path}");
        }
    }
    assert_eq!(service.post("/wishlists", "alice", 0).await, 202);
}

#[tokio::test]
async fn it_stops_cleanly_on_ctrl_c_under_load() {
    let mut service = Quickstart::start(&[]);
    let (client, uri) = (service.client.clone(), format!("{}/wishlists", service.base));
    let load: Vec<_> = (0..8)
        .map(|_| {
            let (client, uri) = (client.clone(), uri.clone());
            tokio::spawn(async move {
                let request = || Request::post(&uri).header("x-account", "a").body(Full::default()).unwrap();
                while client.request(request()).await.is_ok() {}
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let ended = tokio::task::spawn_blocking(move || service.interrupt()).await.unwrap();
    assert!(ended.success());
    for load in load {
        load.await.unwrap();
    }
}

#[tokio::test]
async fn it_stops_cleanly_on_ctrl_c_even_while_a_connection_is_open() {
    let mut service = Quickstart::start(&[]);
    assert_eq!(service.post("/wishlists", "alice", 0).await, 202);
    assert!(service.interrupt().success());
}

#[tokio::test]
async fn two_of_them_on_one_redis_are_one_service() {
    let server = Server::start();
    let url = server.url();
    let environment =
        |per_account| [("REDIS_URL", &*url), ("ACCOUNT_PER_HOUR", per_account), ("CAPACITY_PER_HOUR", "50")];
    let (one, other) = (Quickstart::start(&environment("30")), Quickstart::start(&environment("30")));
    let mut admitted = 0;
    for _ in 0..20 {
        admitted += u32::from(one.post("/wishlists", "alice", 0).await == 202);
        admitted += u32::from(other.post("/wishlists", "alice", 0).await == 202);
    }
    assert_eq!(admitted, 30);
    assert_eq!(other.post("/wishlists/images", "bob", 21).await, 503);
    assert_eq!(one.post("/wishlists/images", "bob", 20).await, 202);
    // One is started again with a lower limit, and what is used stays used.
    drop(one);
    let lower = Quickstart::start(&environment("10"));
    assert_eq!(lower.post("/wishlists", "bob", 0).await, 429);
    assert_eq!(other.post("/wishlists", "bob", 0).await, 503, "the other still allows bob more");
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.look()).unwrap();
    assert!(keys.len() == 3 && keys.iter().all(|key| !key.contains("alice") && !key.contains("bob")), "{keys:?}");
}

#[tokio::test]
async fn it_starts_and_serves_without_its_redis_as_it_is_told() {
    let mut server = Server::start();
    let url = server.url();
    server.stop();
    let start = |policy| {
        let environment = [("REDIS_URL", &*url), ("ON_STORE_ERROR", policy), ("ACCOUNT_PER_HOUR", "6")];
        Quickstart::start(&environment)
    };
    let (open, closed, local) = (start("open"), start("closed"), start("local"));
    for round in 0..10 {
        assert_eq!(open.post("/wishlists", "alice", 0).await, 202);
        let refused = closed.send("POST", "/wishlists", Some("alice"), "").await;
        assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"1".parse().unwrap()));
        assert_eq!(local.post("/wishlists", "alice", 0).await, if round < 3 { 202 } else { 429 });
    }
    server.start_again();
    for service in [&open, &closed, &local] {
        let deadline = Instant::now() + Duration::from_secs(10);
        while service.post("/wishlists/images", "carol", 7).await != 422 {
            assert!(Instant::now() < deadline, "it counts in Redis as soon as it is there");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    for service in [&open, &closed, &local] {
        assert_eq!(service.post("/wishlists/images", "bob", 2).await, 202);
    }
    for service in [&open, &closed, &local] {
        assert_eq!(service.post("/wishlists", "bob", 0).await, 429);
    }
}

#[test]
fn a_value_that_cannot_be_used_stops_the_start_and_names_its_variable() {
    let somebody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = somebody.local_addr().unwrap().to_string();
    for (variable, value) in [
        ("ACCOUNT_PER_HOUR", "many"),
        ("ACCOUNT_PER_HOUR", ""),
        ("ACCOUNT_PER_HOUR", "-1"),
        ("ACCOUNT_PER_HOUR", "1.5"),
        ("CAPACITY_PER_HOUR", "99999999999999999999"),
        ("CAPACITY_PER_HOUR", "5000000000000000"),
        ("ADDR", "localhost"),
        ("REDIS_URL", "127.0.0.1"),
        ("ON_STORE_ERROR", "maybe"),
        ("ADDR", &taken),
    ] {
        let mut process = program().env(variable, value).spawn().unwrap();
        let mut told = String::new();
        process.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        assert!(!process.wait().unwrap().success(), "{variable}={value}");
        assert!(told.starts_with(variable) && told.trim().lines().count() == 1, "{variable}={value}: {told}");
    }
}
