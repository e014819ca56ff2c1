//! Logins, mail, a fan-out, and an instance that is killed in a call.

use std::time::{Duration, Instant};

use crate::support::{Example, Server};

#[tokio::test]
async fn three_wrong_passwords_lock_an_account() {
    let flow = Example::start("flow", &[("REST_S", "100")]);
    let log_in = async |account: &str, password: &str| {
        let path = format!("/login?password={password}");
        flow.send("POST", &path, &[("x-account", account)], "").await.status().as_u16()
    };
    for password in ["1", "2", "right", "3", "4", "5"] {
        assert_eq!(log_in("alice", password).await, if password == "right" { 200 } else { 401 });
    }
    assert_eq!(log_in("alice", "right").await, 429, "it is locked");
    assert_eq!(log_in("bob", "right").await, 200);
}

#[tokio::test]
async fn mail_that_comes_too_soon_waits() {
    let flow = Example::start("flow", &[]);
    let started = Instant::now();
    for _ in 0..4 {
        assert_eq!(flow.send("POST", "/mail", &[("x-account", "alice")], "").await.status(), 202);
    }
    // Two at once, and one in each half second.
    assert!(started.elapsed() >= Duration::from_millis(900), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_fan_out_keeps_its_order_and_its_limit() {
    let flow = Example::start("flow", &[("CONCURRENCY", "12")]);
    let started = Instant::now();
    let answer = flow.send("GET", "/fanout?calls=500&ms=10", &[], "").await;
    let results: Vec<String> = serde_json::from_str(answer.body()).unwrap();
    assert!(results.iter().enumerate().all(|(number, result)| *result == number.to_string()), "{results:?}");
    assert_eq!(results.len(), 500);
    // In 42 rounds of 12.
    assert!(started.elapsed() >= Duration::from_millis(410), "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_instance_that_is_killed_in_the_call_at_the_limit_lifts_nothing() {
    let server = Server::start();
    let url = server.url();
    let instance = || Example::start("flow", &[("REDIS_URL", &url), ("ATTEMPTS", "200"), ("REST_S", "100")]);
    let (killed, other) = (instance(), instance());
    let push =
        async |flow: &Example, message: &str| flow.send("POST", "/push", &[("x-school", "north")], message).await;
    let mut call = Box::pin(push(&killed, "{\"recipients\": 200, \"ms\": 60000}"));
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut call).await.is_err(), "the call is under way");
    killed.signal("-KILL");
    let answer = push(&other, "{\"recipients\": 1}").await;
    let wait: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert_eq!(answer.status(), 429);
    assert!((150..=160).contains(&wait), "{wait} s instead of what is left of the lease, and the rest");
}
