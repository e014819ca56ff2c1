//! After so many attempts, or failures, rest: in virtual time, in memory and in Redis.

mod abandoned;
mod batches;
mod login_guard;
mod relay;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower_quota::testing::FakeClock;
use tower_quota::{ChargeError, Clock, Cooldown, CooldownAxis, Group, Key, MINUTE, Quota, RedisStore, SECOND};

use self::relay::{Relay, in_memory_and_in_redis};
use crate::support::{Log, Server};

fn school(name: &str) -> Key {
    Key::from(name)
}

/// Attempts so many at once, which end at once.
async fn attempt(axis: &CooldownAxis, key: &str, count: u64) -> u64 {
    let attempts = axis.begin(&school(key), count).await.unwrap();
    let granted = attempts.granted();
    attempts.end().await.unwrap();
    granted
}

async fn wait_of(axis: &CooldownAxis, key: &str, count: u64) -> Duration {
    match axis.begin(&school(key), count).await {
        Err(ChargeError::Refused(verdict)) => verdict.wait(),
        other => panic!("it rests: {other:?}"),
    }
}

/// Sizes of batches, and the second in which each was given out.
type Sent = Arc<Mutex<Vec<(usize, u64)>>>;

/// Goes through an input of so many; the sizes of the batches, and the time in seconds after which each was given out.
fn send(relay: &Relay, axis: &CooldownAxis, key: &str, count: usize) -> (tokio::task::JoinHandle<()>, Sent) {
    let (axis, key, clock) = (axis.clone(), school(key), relay.clock.clone());
    let (sent, started) = (Arc::new(Mutex::new(Vec::new())), clock.now());
    let task = tokio::spawn({
        let sent = Arc::clone(&sent);
        async move {
            let input = vec![(); count];
            let mut batches = axis.batches(&key, &input, 200);
            while let Some(batch) = batches.next().await.unwrap() {
                sent.lock().unwrap().push((batch.len(), (clock.now() - started).as_secs()));
            }
            assert!(batches.left().is_empty());
        }
    });
    (task, sent)
}

async fn the_rest_starts_when_the_call_at_the_limit_ends(relay: Relay) {
    let push = relay.push();
    assert_eq!(attempt(&push, "a", 4_900).await, 4_900);
    let at_limit = push.begin(&school("a"), 300).await.unwrap();
    assert_eq!((at_limit.granted(), at_limit.has_reached_limit()), (100, true));
    relay.clock.advance(40 * SECOND);
    assert_eq!(wait_of(&push, "a", 1).await, 20 * SECOND + 3 * MINUTE, "no later than its lease and the rest");
    at_limit.end().await.unwrap();
    assert_eq!(wait_of(&push, "a", 1).await, 3 * MINUTE);
    relay.clock.advance(75 * SECOND);
    assert_eq!(wait_of(&push, "a", 1).await, 105 * SECOND);
    relay.clock.advance(105 * SECOND - Duration::from_micros(1));
    assert_eq!(wait_of(&push, "a", 1).await, Duration::from_micros(1));
    relay.clock.advance(Duration::from_micros(1));
    assert_eq!(attempt(&push, "a", 6_000).await, 5_000, "the count starts at 0 again");
}

in_memory_and_in_redis!(the_rest_starts_when_the_call_at_the_limit_ends);

async fn time_alone_resets_nothing_and_schools_are_independent(relay: Relay) {
    let push = relay.push();
    attempt(&push, "a", 4_999).await;
    relay.clock.advance(1_000 * 24 * 60 * MINUTE);
    attempt(&push, "b", 5_000).await;
    assert_eq!(attempt(&push, "a", 10).await, 1, "an idle pause resets nothing");
    assert_eq!(wait_of(&push, "b", 1).await, 3 * MINUTE);
    let (task, sent) = send(&relay, &push, "c", 400);
    assert_eq!(relay.run().await, Duration::ZERO, "those that rest delay nobody");
    task.await.unwrap();
    assert_eq!(sent.lock().unwrap().len(), 2);
    push.reset(&school("a")).await.unwrap();
    assert_eq!(attempt(&push, "a", 10).await, 10);
}

in_memory_and_in_redis!(time_alone_resets_nothing_and_schools_are_independent);

async fn a_failed_call_stays_counted_and_a_lost_one_ends_with_its_lease(relay: Relay) {
    let rule = Cooldown::after_attempts(10).rest(MINUTE);
    let push = relay.group.cooldown("lease", rule).lease(20 * SECOND).build().unwrap();
    drop(push.begin(&school("a"), 4).await.unwrap());
    relay.settle().await;
    push.begin(&school("a"), 4).await.unwrap().failed().await.unwrap();
    let lost = push.begin(&school("a"), 4).await.unwrap();
    assert_eq!((lost.granted(), lost.has_reached_limit()), (2, true));
    // The process that made it is gone: nobody ever tells its end.
    std::mem::forget(lost);
    assert_eq!(wait_of(&push, "a", 1).await, 80 * SECOND);
    relay.clock.advance(20 * SECOND);
    assert_eq!(wait_of(&push, "a", 1).await, MINUTE, "the rest has started when the lease ended");
    relay.clock.advance(MINUTE - Duration::from_micros(1));
    assert_eq!(wait_of(&push, "a", 1).await, Duration::from_micros(1), "a crash lifts nothing");
    relay.clock.advance(Duration::from_micros(1));
    assert_eq!(attempt(&push, "a", 1).await, 1);
    // One that is dropped is told.
    let dropped = push.begin(&school("b"), 10).await.unwrap();
    relay.clock.advance(5 * SECOND);
    drop(dropped);
    relay.settle().await;
    assert_eq!(wait_of(&push, "b", 1).await, MINUTE);
}

in_memory_and_in_redis!(a_failed_call_stays_counted_and_a_lost_one_ends_with_its_lease);

async fn what_cannot_be_split_starts_the_rest(relay: Relay) {
    let push = relay.group.cooldown("whole", Cooldown::after_attempts(10).rest(MINUTE)).build().unwrap();
    attempt(&push, "a", 7).await;
    let Err(ChargeError::Refused(verdict)) = push.begin(&school("a"), 5).whole().await else { panic!("3 fit") };
    assert_eq!((verdict.wait(), verdict.reports()[0].remaining()), (MINUTE, 3), "how much fits is told");
    relay.clock.advance(10 * SECOND);
    assert_eq!(wait_of(&push, "a", 1).await, 50 * SECOND, "the rest has started");
    let waits = tokio::spawn(push.begin(&school("a"), 5).whole().wait_up_to(MINUTE).into_future());
    assert_eq!(relay.run().await, 50 * SECOND);
    assert_eq!(waits.await.unwrap().unwrap().granted(), 5);
    assert!(matches!(push.begin(&school("b"), 11).whole().await, Err(ChargeError::Never(_))));
    assert_eq!(attempt(&push, "b", 11).await, 10, "what can be split is");
}

in_memory_and_in_redis!(what_cannot_be_split_starts_the_rest);

async fn a_provider_may_ask_for_a_longer_rest(relay: Relay) {
    let push = relay.group.cooldown("asked", Cooldown::after_attempts(10).rest(MINUTE)).build().unwrap();
    let below = push.begin(&school("a"), 3).await.unwrap();
    below.rest_at_least(20 * SECOND);
    below.rest_at_least(5 * SECOND);
    below.end().await.unwrap();
    assert_eq!(wait_of(&push, "a", 1).await, 20 * SECOND);
    relay.clock.advance(20 * SECOND);
    let at_limit = push.begin(&school("a"), 10).await.unwrap();
    assert_eq!(at_limit.granted(), 7, "a pause that was asked for resets no count");
    at_limit.rest_at_least(5 * MINUTE);
    at_limit.end().await.unwrap();
    assert_eq!(wait_of(&push, "a", 1).await, 5 * MINUTE, "beside the rest, the longer of both");
    // While another call is under way at the limit, as long as it may take.
    let (one, at_limit) = (push.begin(&school("c"), 5).await.unwrap(), push.begin(&school("c"), 5).await.unwrap());
    one.rest_at_least(60 * MINUTE);
    one.end().await.unwrap();
    at_limit.end().await.unwrap();
    assert_eq!(wait_of(&push, "c", 1).await, 60 * MINUTE, "what was told is not lost");
    let shorter = push.begin(&school("b"), 10).await.unwrap();
    shorter.rest_at_least(SECOND);
    shorter.end().await.unwrap();
    assert_eq!(wait_of(&push, "b", 1).await, MINUTE);
}

in_memory_and_in_redis!(a_provider_may_ask_for_a_longer_rest);

#[tokio::test]
async fn a_pause_that_a_provider_asked_for_ends_for_each_key_at_another_time() {
    let relay = Relay::in_memory();
    let push = relay.group.cooldown("asked", Cooldown::after_attempts(10).rest(MINUTE)).build().unwrap();
    let started = relay.clock.now();
    let mut waiters = Vec::new();
    for number in 0..20 {
        let key = school(&format!("school-{number}"));
        let call = push.begin(&key, 1).await.unwrap();
        call.rest_at_least(20 * SECOND);
        call.end().await.unwrap();
        let (waits, clock) = (push.begin(&key, 1).wait_up_to(MINUTE).into_future(), relay.clock.clone());
        waiters.push(tokio::spawn(async move {
            drop(waits.await.unwrap());
            clock.now() - started
        }));
    }
    relay.run().await;
    let mut ends = Vec::new();
    for waiter in waiters {
        ends.push(waiter.await.unwrap());
    }
    assert!(ends.iter().all(|end| (20 * SECOND..=21 * SECOND).contains(end)), "{ends:?}");
    assert!(ends.iter().any(|end| *end != ends[0]), "all at once, after {:?}", ends[0]);
}

async fn a_total_stands_above_all_keys(relay: Relay) {
    let project = relay.group.shared("project", Quota::fixed_window(12, MINUTE)).build().unwrap();
    let rule = Cooldown::after_attempts(10).rest(3 * MINUTE);
    let push = relay.group.cooldown("school", rule).total(&project).build().unwrap();
    assert_eq!(attempt(&push, "a", 9).await, 9);
    let Err(ChargeError::Refused(verdict)) = push.begin(&school("b"), 4).await else { panic!("3 are left in all") };
    assert_eq!(verdict.refused_by().unwrap().axis(), "project");
    assert_eq!(verdict.reports()[0].used(), 0, "a refusal by the total counts no attempt");
    assert_eq!(attempt(&push, "b", 3).await, 3);
    let waits = tokio::spawn(push.begin(&school("b"), 4).wait_up_to(MINUTE).into_future());
    assert_eq!(relay.run().await, MINUTE, "as long as the total takes");
    assert_eq!(waits.await.unwrap().unwrap().granted(), 4);
}

in_memory_and_in_redis!(a_total_stands_above_all_keys);

async fn a_rule_changes_without_losing_the_count(relay: Relay) {
    let push = relay.group.cooldown("school", Cooldown::after_attempts(10).rest(MINUTE)).build().unwrap();
    attempt(&push, "a", 6).await;
    push.set_rule(Cooldown::after_attempts(20).rest(2 * MINUTE)).unwrap();
    assert_eq!(attempt(&push, "a", 20).await, 14);
    assert_eq!(wait_of(&push, "a", 1).await, 2 * MINUTE);
    attempt(&push, "b", 9).await;
    push.set_rule(Cooldown::after_attempts(5).rest(MINUTE)).unwrap();
    assert_eq!(wait_of(&push, "b", 1).await, MINUTE, "above the new limit, the rest starts with the next call");
    relay.clock.advance(MINUTE);
    assert_eq!(attempt(&push, "b", 9).await, 5);
    let other = push.set_rule(Cooldown::after_failures(5).rest(MINUTE));
    assert_eq!(other.unwrap_err().field(), "relay.school.rule");
}

in_memory_and_in_redis!(a_rule_changes_without_losing_the_count);

#[test]
fn a_rule_that_cannot_work_does_not_build() {
    let relay = Relay::in_memory();
    let field = |name: &str, rule: Cooldown, lease: Duration| {
        relay.group.cooldown(name, rule).lease(lease).build().unwrap_err().field().to_owned()
    };
    let rule = Cooldown::after_attempts(10).rest(MINUTE);
    assert_eq!(field("a", Cooldown::after_attempts(10).rest(Duration::ZERO), MINUTE), "relay.a.rest");
    assert_eq!(field("a", Cooldown::after_attempts(1 << 32).rest(MINUTE), MINUTE), "relay.a.limit");
    assert_eq!(field("a", rule, Duration::ZERO), "relay.a.lease");
    let within = Cooldown::after_failures(5).within(Duration::from_secs(5_000_000)).rest(MINUTE);
    assert_eq!(field("a", within, MINUTE), "relay.a.within");
    assert_eq!(field("a b", rule, MINUTE), "relay.axis.name");
    let elsewhere = Relay::in_memory();
    let total = elsewhere.group.shared("total", "1/s").build().unwrap();
    let other = relay.group.cooldown("c", rule).total(&total).build();
    assert_eq!(other.unwrap_err().field(), "relay.total");
    assert!(relay.group.cooldown("c", rule).build().is_ok(), "what did not build has not taken the name");
    // What would have no effect.
    let of = |rule: Cooldown| relay.group.cooldown("d", rule).build().unwrap_err().field().to_owned();
    assert_eq!(of(Cooldown::after_attempts(10).within(MINUTE).rest(MINUTE)), "relay.d.within");
    assert_eq!(of(rule.kept_on_success()), "relay.d.kept_on_success");
    assert_eq!(field("d", Cooldown::after_failures(5).rest(MINUTE), MINUTE), "relay.d.lease");
}

#[tokio::test]
async fn a_rest_that_is_longer_than_one_would_wait_is_told_at_once() {
    let relay = Relay::in_memory();
    let push = relay.group.cooldown("school", Cooldown::after_attempts(10).rest(3 * MINUTE)).build().unwrap();
    let call = push.begin(&school("a"), 10).await.unwrap();
    call.rest_at_least(60 * MINUTE);
    call.end().await.unwrap();
    let waits = push.begin(&school("a"), 1).wait_up_to(10 * MINUTE).into_future();
    let outcome = futures_util::FutureExt::now_or_never(waits).expect("nothing is waited for");
    assert!(matches!(outcome, Err(ChargeError::Refused(verdict)) if verdict.wait() == 60 * MINUTE));
}

async fn a_closed_cooldown_keeps_nothing_of_whom_it_refuses(relay: Relay) {
    let rule = |attempts| Cooldown::after_attempts(attempts).rest(MINUTE);
    let push = relay.group.cooldown("school", rule(0)).build().unwrap();
    for whole in [false, true] {
        let begin = push.begin(&school("a"), 1);
        assert!(matches!(if whole { begin.whole() } else { begin }.await, Err(ChargeError::Refused(_))));
    }
    push.set_rule(rule(10)).unwrap();
    assert_eq!(attempt(&push, "a", 1).await, 1, "opened, nobody rests");
}

in_memory_and_in_redis!(a_closed_cooldown_keeps_nothing_of_whom_it_refuses);

#[tokio::test]
async fn what_happens_is_logged_without_a_key() {
    let log = Log::start();
    let relay = Relay::in_memory();
    let push = relay.push();
    attempt(&push, "secret-school", 5_000).await;
    let waits = tokio::spawn(push.begin(&school("secret-school"), 1).wait_up_to(5 * MINUTE).into_future());
    relay.run().await;
    drop(waits.await.unwrap().unwrap());
    let lines = log.lines("tower_quota::cooldown");
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(
        lines[0].contains("a rest starts")
            && lines[1].contains("the rest is over")
            && lines[1].contains("waited_s=180")
    );
    assert!(log.lines("secret-school").is_empty());
}

#[tokio::test]
async fn how_many_were_attempted_is_logged_for_those_who_look_closely() {
    let log = Log::start_with_debug();
    let push = Relay::in_memory().push();
    attempt(&push, "secret-school", 4_900).await;
    attempt(&push, "secret-school", 200).await;
    wait_of(&push, "secret-school", 1).await;
    let lines = log.lines("attempts are counted");
    assert_eq!(lines.len(), 2, "what is refused is not attempted: {lines:#?}");
    for (line, counted) in lines.iter().zip(["attempted=4900 batch=4900", "attempted=5000 batch=100"]) {
        assert!(line.contains("DEBUG tower_quota::cooldown") && line.contains("axis=\"school\""), "{line}");
        assert!(line.contains(counted), "{line}");
    }
    assert!(log.lines("secret-school").is_empty());
}

#[tokio::test]
async fn two_instances_on_one_redis_share_the_count_and_the_rest() {
    let server = Server::start();
    let clock = FakeClock::new();
    let instance = || {
        let store = RedisStore::builder(&server.url()).clock(clock.clone()).deadline(5 * SECOND).build().unwrap();
        let group = Group::new("relay", store).unwrap();
        group.cooldown("school", Cooldown::after_attempts(5_000).rest(3 * MINUTE)).build().unwrap()
    };
    let instances = [instance(), instance()];
    let mut granted = HashMap::<usize, u64>::new();
    for call in 0..26 {
        let key = school("shared");
        match instances[call % 2].begin(&key, 200).await {
            Ok(attempts) => {
                *granted.entry(call % 2).or_default() += attempts.granted();
                attempts.end().await.unwrap();
            }
            Err(ChargeError::Refused(verdict)) => assert_eq!(verdict.wait(), 3 * MINUTE),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(granted.values().sum::<u64>(), 5_000);
    assert_eq!(wait_of(&instances[1], "shared", 1).await, 3 * MINUTE);
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.look()).unwrap();
    assert!(keys.len() == 1 && keys[0].starts_with("tq1:{relay}:school:c0:#"), "{keys:?}");
}
