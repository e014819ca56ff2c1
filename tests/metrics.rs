//! What is counted for dashboards and alarms.

use std::time::Duration;

use metrics::set_default_local_recorder;
use tower::Layer;
use tower_quota::{
    ConcurrencyLayer, Cooldown, GlobalCapacityLayer, Group, HOUR, Key, MINUTE, MemoryStore, OnStoreFailure, Quota,
    SECOND, UserQuotaLayer, key,
};

use crate::support::{Counted, SlowStore, accepting, group, request, status};

/// The counter of an axis's refusals.
fn refusals(axis: &str, reason: &str) -> String {
    format!("tower_quota_refusals_total group=test axis={axis} reason={reason}")
}

#[tokio::test]
async fn each_refusal_is_counted_by_the_axis_that_gives_the_answer() {
    let counted = Counted::default();
    let _recorder = set_default_local_recorder(&counted);
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(2, HOUR)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(3, HOUR)).build().unwrap();
    let layer = UserQuotaLayer::new(&account, key::header("x-account").unwrap());
    let layer = layer.and(GlobalCapacityLayer::new(&capacity)).unwrap();
    let service = layer.clone().layer(accepting());
    for (who, expected) in [("alice", 202), ("alice", 202), ("alice", 429), ("bob", 202), ("bob", 503), ("", 400)] {
        assert_eq!(status(&service, request(who)).await, expected, "{who}");
    }
    assert_eq!(status(&layer.cost(|_| 3).layer(accepting()), request("carol")).await, 422);
    capacity.set_quota(Quota::fixed_window(0, HOUR)).unwrap();
    assert_eq!(status(&service, request("carol")).await, 503);

    let expected = [
        ("account", "full"),
        ("account", "never_fits"),
        ("account", "no_key"),
        ("capacity", "closed"),
        ("capacity", "full"),
    ];
    assert_eq!(counted.all(), expected.map(|(axis, reason)| (refusals(axis, reason), 1)));
}

#[tokio::test]
async fn each_decision_that_a_store_cannot_make_is_counted_by_the_reason() {
    let counted = Counted::default();
    let _recorder = set_default_local_recorder(&counted);
    let down = Group::new("down", SlowStore::failing()).unwrap();
    let axis = down.per_key("account", Quota::fixed_window(2, HOUR)).build().unwrap();
    let service = UserQuotaLayer::new(&axis, key::header("x-account").unwrap()).layer(accepting());
    for _ in 0..3 {
        assert_eq!(status(&service, request("alice")).await, 202);
    }
    let full = Group::builder("full").on_store_failure(OnStoreFailure::Closed);
    let full = full.build(MemoryStore::new().max_states(1).unwrap()).unwrap();
    let axis = full.per_key("account", Quota::fixed_window(2, HOUR)).build().unwrap();
    let service = UserQuotaLayer::new(&axis, key::header("x-account").unwrap()).layer(accepting());
    for (who, expected) in [("alice", 202), ("bob", 503)] {
        assert_eq!(status(&service, request(who)).await, expected);
    }
    let of = |group: &str, kind: &str| format!("tower_quota_store_failures_total group={group} kind={kind}");
    assert_eq!(counted.all(), [(of("down", "unavailable"), 3), (of("full", "store_full"), 1)]);
}

#[tokio::test]
async fn rests_and_pauses_refuse_too() {
    let counted = Counted::default();
    let _recorder = set_default_local_recorder(&counted);
    let (group, _clock) = group();
    let (key, rule) = (Key::from("alice"), Cooldown::after_attempts(1).rest(HOUR));
    let pushes = group.cooldown("pushes", rule).build().unwrap();
    drop(pushes.begin(&key, 1).await.unwrap());
    assert!(pushes.begin(&key, 1).await.is_err());
    assert!(pushes.batches(&key, &[1, 2], 2).wait_up_to(Duration::ZERO).next().await.is_err());
    let mailbox = group.backoff("mailbox").build().unwrap();
    mailbox.pause(&key, MINUTE).await.unwrap();
    assert!(mailbox.wait(&key, SECOND).await.is_err());

    assert_eq!(counted.all(), [(refusals("mailbox", "paused"), 1), (refusals("pushes", "full"), 2)]);
}

#[tokio::test]
async fn requests_that_find_no_place_are_counted() {
    let counted = Counted::default();
    let _recorder = set_default_local_recorder(&counted);
    let service = ConcurrencyLayer::new(0).layer(accepting());
    for _ in 0..2 {
        assert_eq!(status(&service, request("alice")).await, 503);
    }
    assert_eq!(counted.all(), [("tower_quota_busy_total".to_owned(), 2)]);
}
