//! Limits are arguments of a decision, never part of a counter.

use std::sync::Arc;
use std::time::Duration;

use tower_quota::testing::FakeClock;
use tower_quota::{Group, HOUR, MINUTE, MemoryStore, Meter, Quota, SECOND};

use crate::support::{by_name, charge, group, try_charge, used};

const ALGORITHMS: [&str; 4] = ["fixed 10/h", "aligned 10/h", "10/h", "bucket 10 10/h"];

/// The quota with a limit, and for a bucket a refill, of so many.
fn of(quota: &str, limit: u64) -> Quota {
    quota.replace("10", &limit.to_string()).parse().unwrap()
}

fn admitted(meter: &Meter<str>, asked: usize) -> usize {
    (0..asked).filter(|_| try_charge(meter, "a", 1).is_ok()).count()
}

#[test]
fn t13_a_raised_limit_helps_at_once() {
    for quota in ALGORITHMS {
        let (group, clock) = group();
        let axis = group.per_key("axis", quota).build().unwrap();
        let meter = by_name(&axis);
        assert_eq!(admitted(&meter, 20), 10);
        clock.advance(MINUTE);
        axis.set_quota(of(quota, 100)).unwrap();
        // A bucket values the minute that has passed at the new rate.
        let expected = if quota.starts_with("bucket") { 91 } else { 90 };
        assert_eq!(admitted(&meter, 200), expected, "{quota}");
    }
}

#[test]
fn t13_a_lowered_limit_keeps_the_usage_and_tells_the_true_wait() {
    for quota in ALGORITHMS {
        let (group, clock) = group();
        let axis = group.per_key("axis", of(quota, 100)).build().unwrap();
        let meter = by_name(&axis);
        charge(&meter, "a", 60).unwrap();
        axis.set_quota(of(quota, 10)).unwrap();
        assert_eq!(used(&meter, "a"), [(60, 0)], "{quota}");
        let wait = try_charge(&meter, "a", 1).unwrap_err();
        axis.set_quota(of(quota, 100)).unwrap();
        assert_eq!(used(&meter, "a"), [(60, 40)]);
        axis.set_quota(of(quota, 10)).unwrap();
        let expected = if quota.starts_with("bucket") { 51 * HOUR / 10 } else { HOUR };
        match quota {
            // The weight of 60 falls to 9 within the next window.
            "10/h" => assert!(wait > HOUR && wait < 2 * HOUR, "{wait:?}"),
            _ => assert_eq!(wait, expected, "{quota}"),
        }
        clock.advance(wait - Duration::from_micros(1));
        assert!(try_charge(&meter, "a", 1).is_err(), "{quota}");
        clock.advance(Duration::from_micros(1));
        assert_eq!(try_charge(&meter, "a", 1), Ok(()), "{quota}");
    }
}

#[test]
fn t13_two_limits_in_turn_refill_nothing() {
    for quota in ALGORITHMS {
        let clock = FakeClock::new();
        let store = Arc::new(MemoryStore::with_clock(clock.clone()));
        // Two versions of a service, each with its own configuration, over one store.
        let version = |limit| {
            let group = Group::new("test", Arc::clone(&store)).unwrap();
            by_name(&group.per_key("axis", of(quota, limit)).build().unwrap())
        };
        let versions = [version(10), version(100)];
        let mut total = 0;
        for second in 0..60 {
            total += admitted(&versions[second % 2], 200);
            clock.advance(SECOND);
        }
        assert!(total <= 102, "{quota}: {total} in a minute");
    }
}

#[test]
fn t13_another_period_makes_nobody_wait_for_the_old_one() {
    let (group, _clock) = group();
    let axis = group.per_key("axis", "10/h").build().unwrap();
    let meter = by_name(&axis);
    charge(&meter, "a", 10).unwrap();
    axis.set_quota("10/m").unwrap();
    charge(&meter, "a", 10).unwrap();
    assert!(try_charge(&meter, "a", 1).unwrap_err() <= 2 * MINUTE);
    // And back: the first counter is still there.
    axis.set_quota("20/h").unwrap();
    assert_eq!(used(&meter, "a"), [(10, 10)]);
}

#[test]
fn t13_another_period_is_logged() {
    let log = crate::support::Log::start();
    let (group, _clock) = group();
    let axis = group.per_key("axis", "10/h").build().unwrap();
    axis.set_quota("20/h").unwrap();
    assert!(log.lines("tower_quota::config").is_empty());
    axis.set_quota("20/m").unwrap();
    assert_eq!(log.lines("counts from zero").len(), 1);
}

#[test]
fn t14_a_new_configuration_applies_to_the_next_request_and_an_old_one_changes_nothing() {
    for quota in ALGORITHMS {
        let store = Arc::new(MemoryStore::with_clock(FakeClock::new()));
        let remaining_after_one = |limit| {
            let group = Group::new("test", Arc::clone(&store)).unwrap();
            let meter = by_name(&group.per_key("axis", of(quota, limit)).build().unwrap());
            let verdict = charge(&meter, "a", 1).unwrap();
            (verdict.reports()[0].limit(), verdict.reports()[0].remaining())
        };
        for left in (20..100).rev() {
            assert_eq!(remaining_after_one(100), (100, left));
        }
        assert_eq!(remaining_after_one(200), (200, 119));
        assert_eq!(remaining_after_one(200), (200, 118));
    }
}

#[test]
fn t14_axes_come_and_go() {
    let store = Arc::new(MemoryStore::with_clock(FakeClock::new()));
    let meter = |quotas: &[&str]| {
        let group = Group::new("test", Arc::clone(&store)).unwrap();
        let by = |name: &str| tower_quota::Key::from(name);
        let mut axes = quotas.iter().map(|quota| {
            let name = quota.replace('/', "-per-");
            group.per_key(&name, *quota).build().unwrap().by(by)
        });
        let first = Meter::new(axes.next().unwrap());
        axes.fold(first, |meter, axis| meter.and(axis).unwrap())
    };
    let three = meter(&["5/s", "50/m", "500/h"]);
    charge(&three, "a", 4).unwrap();
    charge(&meter(&["1000/d"]), "a", 4).unwrap();
    assert_eq!(used(&meter(&["5/s", "50/m", "500/h"]), "a"), [(4, 1), (4, 46), (4, 496)]);
}
