//! What stands in Redis: names, expiries, and what somebody else left there.

use std::collections::BTreeMap;
use std::time::Duration;

use tower_quota::testing::FakeClock;
use tower_quota::{ChargeError, Cost, CountedBy, Group, HOUR, Key, MINUTE, Meter, OnStoreFailure, Quota, RedisStore};

use super::Items;
use crate::support::{Log, Server};

/// Every key with its value and the time at which it expires.
fn dump(server: &Server) -> BTreeMap<String, (Vec<u8>, i64)> {
    let mut look = server.look();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut look).unwrap();
    let dumped = keys.into_iter().map(|key| {
        let value = redis::cmd("DUMP").arg(&key).query(&mut look).unwrap();
        let expires = redis::cmd("PEXPIRETIME").arg(&key).query(&mut look).unwrap();
        (key, (value, expires))
    });
    dumped.collect()
}

fn keys(server: &Server) -> Vec<String> {
    dump(server).into_keys().collect()
}

#[tokio::test]
async fn no_caller_can_be_read_in_a_name_nor_change_it() {
    let server = Server::start();
    let items = Items::over(RedisStore::connect(&server.url()).unwrap(), 100, 1_000);
    let names = ["alice@example.org", "a{b}c", "}", "{", "with space\n", ""];
    for name in names {
        items.charge(name).await.unwrap();
    }
    let keys = keys(&server);
    assert_eq!(keys.len(), names.len() + 1, "{keys:?}");
    for key in &keys {
        let of_caller = key.strip_prefix("tq1:{item}:account:f3600000000:#");
        let is_digest =
            of_caller.is_some_and(|digest| digest.len() == 32 && digest.bytes().all(|b| b.is_ascii_hexdigit()));
        assert!(is_digest || key == "tq1:{item}:capacity:f3600000000:all", "{key:?}");
    }
}

#[tokio::test]
async fn prefix_secret_and_readable_callers_change_names_as_they_say() {
    let server = Server::start();
    let build = |prefix: &str, secret: Option<&str>, readable: bool| {
        let mut builder = RedisStore::builder(&server.url()).prefix(prefix);
        if let Some(secret) = secret {
            builder = builder.secret(secret);
        }
        if readable { builder.readable_callers() } else { builder }.build().unwrap()
    };
    let mut seen = Vec::new();
    for (prefix, secret, readable) in
        [("", None, false), ("", Some("s1"), false), ("shop", None, false), ("", None, true)]
    {
        Items::over(build(prefix, secret, readable), 10, 1_000).charge("alice").await.unwrap();
        let all = keys(&server);
        seen.push(all.into_iter().filter(|key| key.contains(":account:")).collect::<Vec<_>>());
    }
    let counts: Vec<_> = seen.iter().map(Vec::len).collect();
    assert_eq!(counts, [1, 2, 3, 4], "each has counters of its own: {seen:?}");
    assert!(seen[2].iter().any(|key| key.starts_with("shop:tq1:{item}:")), "{seen:?}");
    assert!(seen[3].contains(&"tq1:{item}:account:f3600000000:=alice".to_owned()), "{seen:?}");
}

#[tokio::test]
async fn after_any_refusal_every_key_is_what_it_was_expiry_included() {
    const REFUSALS: u32 = 100_000;
    const ROUNDS: u32 = 100;
    let server = Server::start();
    let clock = FakeClock::new();
    let store = RedisStore::builder(&server.url()).clock(clock.clone()).deadline(10 * MINUTE / 60).build().unwrap();
    let group = Group::new("item", store).unwrap();
    let quotas = ["fixed 9/h", "aligned 9/m", "9/s", "bucket 9 2/s"];
    let axes: Vec<_> =
        quotas.iter().map(|quota| group.per_key(&quota.replace([' ', '/'], "-"), *quota).build().unwrap()).collect();
    let measure = |axis: &tower_quota::PerKeyAxis| axis.by(|name: &str| Key::from(name));
    let meter = axes[1..].iter().fold(Meter::new(measure(&axes[0])), |meter, axis| meter.and(measure(axis)).unwrap());
    let mut random = 1_u64;
    let mut below = |end: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % end
    };

    let mut refused = 0;
    for round in 0..ROUNDS {
        clock.advance(Duration::from_millis(below(700)));
        for name in ["a", "b", "c"] {
            let _ = meter.charge(name, 1 + below(5)).await;
        }
        let before = dump(&server);
        // One axis always refuses: its cost is more than can be left.
        let mut charges = Vec::new();
        for _ in 0..REFUSALS / ROUNDS {
            let full = &axes[usize::try_from(below(4)).unwrap()];
            let name = ["a", "b", "c", "new"][usize::try_from(below(4)).unwrap()];
            let too_much = if below(2) == 0 { 10 } else { u64::MAX };
            charges.push(meter.charge(name, Cost::units(below(4)).on(full, too_much)).into_future());
        }
        for outcome in futures_util::future::join_all(charges).await {
            assert!(matches!(outcome, Err(ChargeError::Never(_) | ChargeError::Refused(_))), "{outcome:?}");
            refused += 1;
        }
        // And those that do not fit now.
        while meter.charge("a", 1).await.is_ok() {}
        let full = dump(&server);
        for _ in 0..5 {
            let outcome = meter.charge("a", 1).await;
            assert!(matches!(outcome, Err(ChargeError::Refused(_))), "{outcome:?}");
        }
        assert_eq!(dump(&server), full, "round {round}");
        let of_others = |dumped: BTreeMap<String, (Vec<u8>, i64)>, full: &BTreeMap<_, _>| {
            dumped.into_iter().filter(|(key, value)| full.get(key) == Some(value)).count()
        };
        let count = before.len();
        assert!(of_others(before, &full) + axes.len() >= count, "round {round}: only a's counters have changed since");
    }
    assert_eq!(refused, REFUSALS);
}

#[tokio::test]
async fn an_expiry_is_longer_than_the_time_to_become_fresh_and_repaired_by_each_charge() {
    let server = Server::start();
    let group = Group::new("item", RedisStore::connect(&server.url()).unwrap()).unwrap();
    let cases = [
        ("fixed", "fixed 10/m", 60_000..=61_000),
        ("sliding", "10/m", 60_000..=121_000),
        ("bucket", "bucket 10 1/s", 3_000..=4_001),
    ];
    for (name, quota, expected) in cases {
        let axis = group.shared(name, quota).build().unwrap();
        let meter: Meter<()> = Meter::new(&axis);
        meter.charge(&(), 3).await.unwrap();
        let mut look = server.look();
        let keys: Vec<String> = redis::cmd("KEYS").arg(format!("tq1:{{item}}:{name}:*")).query(&mut look).unwrap();
        let left: i64 = redis::cmd("PTTL").arg(&keys[0]).query(&mut look).unwrap();
        assert!(expected.contains(&left), "{name}: {left} ms");
        let () = redis::cmd("PERSIST").arg(&keys[0]).query(&mut look).unwrap();
        meter.charge(&(), 1).await.unwrap();
        let left: i64 = redis::cmd("PTTL").arg(&keys[0]).query(&mut look).unwrap();
        assert!(left > 0, "{name}: the expiry is back");
    }
}

#[tokio::test]
async fn a_key_that_never_expires_is_judged_by_its_own_times() {
    let server = Server::start();
    let group = Group::new("item", RedisStore::connect(&server.url()).unwrap()).unwrap();
    let axis = group.shared("axis", Quota::fixed_window(1, Duration::from_millis(50))).build().unwrap();
    let meter: Meter<()> = Meter::new(&axis);
    for _ in 0..3 {
        meter.charge(&(), 1).await.unwrap();
        let () = redis::cmd("PERSIST").arg("tq1:{item}:axis:f50000:all").query(&mut server.look()).unwrap();
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
}

#[tokio::test]
async fn what_somebody_else_wrote_is_told_left_to_the_policy_and_cleared_by_a_reset() {
    let server = Server::start();
    let log = Log::start();
    let store = RedisStore::builder(&server.url()).readable_callers().build().unwrap();
    let items = Items::with_policy(store, 10, 10, OnStoreFailure::Closed);
    let key = "tq1:{item}:account:f3600000000:=alice";
    let (of_a_counter_s_length, of_a_claimed_one_s) = ("x".repeat(32), "0".repeat(48));
    let garbage: [&[&str]; 8] = [
        &["SET", key, "garbage"],
        &["SET", key, ""],
        &["SET", key, "1:2:3:4"],
        &["SET", key, &of_a_counter_s_length],
        &["SET", key, &of_a_claimed_one_s],
        &["HSET", key, "a", "b"],
        &["LPUSH", key, "a"],
        &["SADD", key, "a"],
    ];
    for command in garbage {
        let mut look = server.look();
        let () = redis::cmd("DEL").arg(key).query(&mut look).unwrap();
        let () = redis::cmd(command[0]).arg(&command[1..]).query(&mut look).unwrap();
        let before = dump(&server);
        let Err(ChargeError::Store(error)) = items.charge("alice").await else { panic!("{command:?}") };
        assert_eq!(error.kind(), tower_quota::StoreErrorKind::Corrupt, "{command:?}");
        assert!(error.to_string().contains("item.account") && !error.to_string().contains("alice"), "{error}");
        assert_eq!(dump(&server), before, "{command:?}: nothing is written over");
        assert_eq!(items.charge("bob").await, Ok(CountedBy::Store), "others are not concerned");
        items.account.reset(&Key::from("alice")).await.unwrap();
        assert_eq!(items.charge("alice").await, Ok(CountedBy::Store));
        items.account.reset(&Key::from("bob")).await.unwrap();
        items.capacity.reset().await.unwrap();
    }
    assert!(log.lines("alice").is_empty(), "no log names a caller");
    assert!(!log.lines("what stands in the store is no counter").is_empty());
}

#[tokio::test]
async fn numbers_of_a_counter_that_cannot_be_lead_to_a_verdict_or_a_failure_and_nothing_else() {
    let server = Server::start();
    let store = RedisStore::builder(&server.url()).readable_callers().build().unwrap();
    let group = Group::builder("item").on_store_failure(OnStoreFailure::Closed).build(store).unwrap();
    let letters = [
        ("fixed 10/h", "f3600000000"),
        ("aligned 10/h", "a3600000000"),
        ("10/h", "s3600000000"),
        ("bucket 10 5/h", "b3600000000"),
    ];
    let largest = (1_u64 << 53) - 1;
    for (index, (quota, letter)) in letters.into_iter().enumerate() {
        let axis = group.per_key(&format!("axis-{index}"), quota).build().unwrap();
        let meter = crate::support::by_name(&axis);
        for first in [0, 1, largest] {
            for second in [0, 1, largest] {
                for third in [0, 1, largest] {
                    let key = format!("tq1:{{item}}:axis-{index}:{letter}:=a");
                    let state = [first, second, third, 0].map(u64::to_be_bytes).concat();
                    let () = redis::cmd("SET").arg(&key).arg(&state).query(&mut server.look()).unwrap();
                    let outcome = meter.charge("a", 1).await;
                    let is_verdict = matches!(&outcome, Ok(_) | Err(ChargeError::Refused(_)));
                    assert!(
                        is_verdict || matches!(&outcome, Err(ChargeError::Store(_))),
                        "{quota} {state:?}: {outcome:?}"
                    );
                }
            }
        }
        axis.reset(&Key::from("a")).await.unwrap();
        meter.charge("a", 10).await.unwrap();
    }
}

#[tokio::test]
async fn t14_a_restart_and_another_limit_change_nothing_that_was_used() {
    let server = Server::start();
    let start = |per_account| Items::over(RedisStore::connect(&server.url()).unwrap(), per_account, 1_000);
    let first = start(100);
    first.both.charge("alice", 80).await.unwrap();
    let verdict = start(200).both.charge("alice", 1).await.unwrap();
    assert_eq!((verdict.reports()[0].limit(), verdict.reports()[0].remaining()), (200, 119));
    assert_eq!(start(200).both.charge("alice", 1).await.unwrap().reports()[0].remaining(), 118);
    // Five instances, each started again while all are at work: no budget is handed out anew.
    let mut admitted = 0;
    for _ in 0..5 {
        let instance = start(200);
        for _ in 0..60 {
            admitted += u32::from(instance.both.charge("alice", 1).await.is_ok());
        }
    }
    assert_eq!(admitted, 118);
}

#[tokio::test]
async fn t13_two_versions_with_other_limits_never_reset_each_other() {
    let server = Server::start();
    let clock = FakeClock::new();
    let start = |limit| {
        let store = RedisStore::builder(&server.url()).clock(clock.clone()).build().unwrap();
        let group = Group::new("item", store).unwrap();
        let axis = group.per_key("account", Quota::token_bucket(limit, limit, HOUR)).build().unwrap();
        crate::support::by_name(&axis)
    };
    let nodes = [start(10), start(100), start(10)];
    let mut admitted = 0;
    for second in 0..60 {
        for node in &nodes {
            for _ in 0..5 {
                admitted += u32::from(node.charge("a", 1).await.is_ok());
            }
        }
        assert!(admitted <= 102, "{admitted} after {second} s");
        clock.advance(Duration::from_secs(1));
    }
    assert!(admitted >= 100, "{admitted}");
}

#[tokio::test]
async fn t06_a_late_request_of_an_earlier_time_is_not_refilled_twice() {
    let server = Server::start();
    let clock = FakeClock::new();
    let store = RedisStore::builder(&server.url()).clock(clock.clone()).build().unwrap();
    let group = Group::new("item", store).unwrap();
    let axis = group.per_key("account", Quota::token_bucket(5, 5, Duration::from_secs(1))).build().unwrap();
    let meter = crate::support::by_name(&axis);
    let at = |second: u64, charges: u32| {
        clock.set(Duration::from_secs(1_767_225_600 + second));
        let meter = meter.clone();
        async move {
            let mut admitted = 0;
            for _ in 0..charges {
                admitted += u32::from(meter.charge("a", 1).await.is_ok());
            }
            admitted
        }
    };
    assert_eq!(at(0, 5).await, 5);
    assert_eq!(at(1, 4).await, 4);
    assert_eq!(at(0, 1).await, 1, "the late one");
    assert_eq!(at(1, 5).await, 0, "10 in all, not 14");
}
