//! Callers that go away while the store is asked.

use std::future::IntoFuture;

use tower_quota::{Cooldown, MINUTE, SECOND};

use super::relay::Relay;
use super::{attempt, school, wait_of};

#[tokio::test]
async fn attempts_that_nobody_waits_for_are_counted_and_not_made() {
    let relay = Relay::in_redis();
    let push = relay.push();
    attempt(&push, "a", 4_900).await;
    relay.abandon(push.begin(&school("a"), 90).into_future()).await;
    assert_eq!(attempt(&push, "a", 5).await, 5);
    relay.abandon(push.begin(&school("a"), 5).into_future()).await;
    assert_eq!(wait_of(&push, "a", 1).await, 3 * MINUTE, "there is no call at the limit to wait for");
}

#[tokio::test]
async fn an_end_that_nobody_waits_for_is_told() {
    let relay = Relay::in_redis();
    let push = relay.push();
    let at_limit = push.begin(&school("a"), 5_000).await.unwrap();
    relay.clock.advance(5 * SECOND);
    relay.abandon(at_limit.end()).await;
    assert_eq!(wait_of(&push, "a", 1).await, 3 * MINUTE);
}

#[tokio::test]
async fn a_login_that_nobody_waits_for_is_no_failure() {
    let relay = Relay::in_redis();
    let guard = relay.group.cooldown("guard", Cooldown::after_failures(2).rest(MINUTE)).build().unwrap();
    attempt(&guard, "b", 1).await;
    for _ in 0..5 {
        relay.abandon(guard.begin(&school("a"), 1).into_future()).await;
    }
    assert_eq!(attempt(&guard, "a", 1).await, 1);
}
