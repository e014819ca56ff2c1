//! The example `quickstart`, run as a user runs it.

use std::io::Read;
use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body_util::Full;

use crate::support::{Cluster, Example, Server, Watched};

/// The wish-list service, running.
fn start(environment: &[(&str, &str)]) -> Example {
    Example::start("quickstart", environment)
}

/// What a post of so many images is answered.
async fn post(service: &Example, path: &str, account: &str, images: usize) -> u16 {
    let body = serde_json::json!({ "images": vec!["a.jpg"; images] }).to_string();
    send(service, "POST", path, Some(account), &body).await.status().as_u16()
}

async fn send(service: &Example, method: &str, path: &str, account: Option<&str>, body: &str) -> Response<String> {
    let headers: Vec<_> = account.map(|account| ("x-account", account)).into_iter().collect();
    service.send(method, path, &headers, body).await
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
    let service = start(&[]);
    for path in ITEMS {
        for _ in 0..4 {
            assert_eq!(post(&service, path, "alice", 0).await, 202);
        }
    }
    for path in BATCHES {
        assert_eq!(post(&service, path, "alice", 4).await, 202, "{path}");
    }
    // 28 are used: 3 would pass the limit in their middle, and are refused whole.
    for path in BATCHES {
        assert_eq!(post(&service, path, "alice", 3).await, 429, "{path}");
    }
    assert_eq!(post(&service, "/wishlists/images", "alice", 2).await, 202);
    let refused = send(&service, "POST", "/wishlists", Some("alice"), "").await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["cache-control"], "no-store");
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((3_500..=3_600).contains(&wait), "{wait}");
    assert_eq!(post(&service, "/wishlists", "bob", 0).await, 202);
    assert_eq!(post(&service, "/wishlists/images", "bob", 31).await, 422);
}

#[tokio::test]
async fn clients_are_told_of_both_limits_and_may_be_told_apart_by_their_addresses() {
    let service = start(&[("KEY", "client_ip"), ("TRUSTED_PROXIES", " 127.0.0.0/8,::1"), ("ACCOUNT_PER_HOUR", "2")]);
    for (client, expected, left) in [("1", 202, 1), ("2", 202, 1), ("1", 202, 0), ("1", 429, 0), ("2", 202, 0)] {
        let from = format!("198.51.100.9, 203.0.113.{client}");
        let response = service.send("POST", "/wishlists", &[("x-forwarded-for", &from)], "").await;
        assert_eq!(response.status(), expected);
        let told = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(told("ratelimit-policy"), r#""account";q=2;w=3600, "capacity";q=3000;w=3600"#);
        assert!(told("ratelimit").starts_with(&format!(r#""account";r={left};t="#)), "{}", told("ratelimit"));
    }
}

#[tokio::test]
async fn a_full_service_is_503_and_costs_the_account_nothing() {
    let service = start(&[("ACCOUNT_PER_HOUR", "5"), ("CAPACITY_PER_HOUR", "8")]);
    assert_eq!(post(&service, "/wishlists/images", "alice", 5).await, 202);
    for _ in 0..10 {
        assert_eq!(post(&service, "/wishlists/images", "bob", 4).await, 503);
    }
    assert_eq!(post(&service, "/wishlists", "alice", 0).await, 429);
    assert_eq!(post(&service, "/wishlists/images", "bob", 3).await, 202);
    assert_eq!(post(&service, "/wishlists", "alice", 0).await, 429);
    assert_eq!(post(&service, "/wishlists", "bob", 0).await, 503);
}

#[tokio::test]
async fn an_operator_is_told_while_there_is_still_room() {
    let service = start(&[("CAPACITY_PER_HOUR", "3")]);
    assert_eq!(post(&service, "/wishlists", "alice", 0).await, 202);
    assert_eq!(post(&service, "/wishlists", "bob", 0).await, 202);
    let log = service.into_log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("usage has passed its watermark")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("WARN") && lines[0].contains("used=2 limit=3"), "{log}");
}

#[tokio::test]
async fn what_parses_nothing_is_not_counted() {
    let service = start(&[("ACCOUNT_PER_HOUR", "1"), ("CAPACITY_PER_HOUR", "1")]);
    for _ in 0..3 {
        for (method, path, expected) in [
            ("GET", "/wishlists", 200),
            ("POST", "/wishlists/images/confirm", 202),
            ("POST", "/tournaments/7/items/wish", 202),
            ("GET", "/health", 200),
        ] {
            assert_eq!(send(&service, method, path, None, "").await.status(), expected, "{method} {path}");
        }
    }
    assert_eq!(post(&service, "/wishlists/images", "alice", 0).await, 400);
    assert_eq!(send(&service, "POST", "/wishlists", None, "").await.status(), 400);
    assert_eq!(post(&service, "/wishlists", "alice", 0).await, 202);
}

#[tokio::test]
async fn another_method_is_not_counted() {
    let service = start(&[("ACCOUNT_PER_HOUR", "1"), ("CAPACITY_PER_HOUR", "1")]);
    for path in ITEMS.into_iter().skip(1).chain(BATCHES) {
        for method in ["GET", "OPTIONS", "DELETE"] {
            assert_eq!(send(&service, method, path, Some("alice"), "").await.status(), 405, "{method} {path}");
        }
    }
    assert_eq!(post(&service, "/wishlists", "alice", 0).await, 202);
}

#[tokio::test]
async fn it_stops_cleanly_on_ctrl_c_under_load() {
    let mut service = start(&[]);
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
    let mut service = start(&[]);
    assert_eq!(post(&service, "/wishlists", "alice", 0).await, 202);
    assert!(service.interrupt().success());
}

#[tokio::test]
async fn two_of_them_on_one_redis_are_one_service() {
    let server = Server::start();
    let url = server.url();
    let environment =
        |per_account| [("REDIS_URL", &*url), ("ACCOUNT_PER_HOUR", per_account), ("CAPACITY_PER_HOUR", "50")];
    let (one, other) = (start(&environment("30")), start(&environment("30")));
    let mut admitted = 0;
    for _ in 0..20 {
        admitted += u32::from(post(&one, "/wishlists", "alice", 0).await == 202);
        admitted += u32::from(post(&other, "/wishlists", "alice", 0).await == 202);
    }
    assert_eq!(admitted, 30);
    assert_eq!(post(&other, "/wishlists/images", "bob", 21).await, 503);
    assert_eq!(post(&one, "/wishlists/images", "bob", 20).await, 202);
    // One is started again with a lower limit, and what is used stays used.
    drop(one);
    let lower = start(&environment("10"));
    assert_eq!(post(&lower, "/wishlists", "bob", 0).await, 429);
    assert_eq!(post(&other, "/wishlists", "bob", 0).await, 503, "the other still allows bob more");
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.look()).unwrap();
    assert!(keys.len() == 3 && keys.iter().all(|key| !key.contains("alice") && !key.contains("bob")), "{keys:?}");
}

#[tokio::test]
async fn a_cluster_and_a_primary_behind_sentinels_serve_as_well() {
    let cluster = Cluster::start(std::path::Path::new("redis-server"), 3, 0);
    let watched = Watched::start();
    let (nodes, sentinels) = (cluster.urls().join(","), watched.urls().join(", "));
    for environment in
        [vec![("REDIS_URL", &*nodes)], vec![("REDIS_URL", &*sentinels), ("REDIS_SENTINEL", Watched::NAME)]]
    {
        let environment = [environment, vec![("ON_STORE_ERROR", "closed")]].concat();
        let (one, other) = (start(&environment), start(&environment));
        for account in ["alice", "{bob}", "}{"] {
            let mut statuses = Vec::new();
            for service in [&one, &other].repeat(16) {
                statuses.push(post(service, "/wishlists", account, 0).await);
            }
            assert_eq!(statuses, [vec![202; 30], vec![429; 2]].concat(), "{account}");
        }
    }
}

#[tokio::test]
async fn it_starts_and_serves_without_its_redis_as_it_is_told() {
    let mut server = Server::start();
    let url = server.url();
    server.stop();
    let start = |policy| {
        let environment = [("REDIS_URL", &*url), ("ON_STORE_ERROR", policy), ("ACCOUNT_PER_HOUR", "6")];
        start(&environment)
    };
    let (open, closed, local) = (start("open"), start("closed"), start("local"));
    for round in 0..10 {
        assert_eq!(post(&open, "/wishlists", "alice", 0).await, 202);
        let refused = send(&closed, "POST", "/wishlists", Some("alice"), "").await;
        assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"1".parse().unwrap()));
        assert_eq!(post(&local, "/wishlists", "alice", 0).await, if round < 3 { 202 } else { 429 });
    }
    server.start_again();
    for service in [&open, &closed, &local] {
        let deadline = Instant::now() + Duration::from_secs(10);
        while post(service, "/wishlists/images", "carol", 7).await != 422 {
            assert!(Instant::now() < deadline, "it counts in Redis as soon as it is there");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    for service in [&open, &closed, &local] {
        assert_eq!(post(service, "/wishlists/images", "bob", 2).await, 202);
    }
    for service in [&open, &closed, &local] {
        assert_eq!(post(service, "/wishlists", "bob", 0).await, 429);
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
        ("REDIS_SENTINEL", "main"),
        ("KEY", "address"),
        ("TRUSTED_PROXIES", "10.0.0.0/8, proxy"),
        ("FORWARDED", "x-real-ip"),
        ("ADDR", &taken),
    ] {
        assert_stops(&[(variable, value)]);
    }
    for (variable, value) in [("TRUSTED_PROXIES", "10.0.0.0/33"), ("FORWARDED", "")] {
        assert_stops(&[(variable, value), ("KEY", "client_ip")]);
    }
}

/// The first variable is told of.
fn assert_stops(environment: &[(&str, &str)]) {
    let (variable, value) = environment[0];
    let mut process = Example::program("quickstart").envs(environment.iter().copied()).spawn().unwrap();
    let mut told = String::new();
    process.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(!process.wait().unwrap().success(), "{variable}={value}");
    assert!(told.starts_with(variable) && told.trim().lines().count() == 1, "{variable}={value}: {told}");
}
