//! Python's urllib3, whose `Retry` obeys `Retry-After`.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use tower_quota::{GlobalCapacityLayer, Group, MINUTE, MemoryStore, Quota, QuotaLayer, SECOND, UserQuotaLayer, key};

use super::script;
use crate::support::serve;

/// A layer on the real clock, for one request of an account, or of all.
fn one_in(account: Duration, all: Duration) -> QuotaLayer {
    let group = Group::new("test", MemoryStore::new()).unwrap();
    let account = group.per_key("account", Quota::fixed_window(1, account)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(1, all)).build().unwrap();
    let account = UserQuotaLayer::new(&account, key::header("x-account").unwrap());
    account.and(GlobalCapacityLayer::new(&capacity)).unwrap()
}

#[tokio::test]
async fn a_request_that_is_retried_after_the_time_told_is_admitted_each_time() {
    let instant = Duration::from_millis(1);
    let (by_account, by_capacity) = (one_in(SECOND, instant), one_in(instant, Duration::from_millis(1_200)));
    for layer in [by_account, by_capacity] {
        let url = serve(Router::new().route("/", post(async || "ok").route_layer(layer))).await;
        let posted = script("urllib3_post.py", &[&url, "4"]).await;
        // One that comes late, on a busy machine, has nothing to retry.
        assert!(posted.iter().all(|line| line == "200 0" || line == "200 1"), "{posted:?}");
        assert!(posted.contains(&"200 1".to_owned()), "{posted:?}");
    }
}

#[tokio::test]
async fn a_request_that_can_never_fit_is_not_retried() {
    let layer = one_in(MINUTE, MINUTE).cost(|_| 2);
    let url = serve(Router::new().route("/", post(async || "ok").route_layer(layer))).await;
    assert_eq!(script("urllib3_post.py", &[&url, "2"]).await, ["422 0", "422 0"]);
}
