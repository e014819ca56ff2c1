//! The memory store: atomic over any number of axes, bounded, and forgetful only of what equals a fresh counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tower_quota::testing::FakeClock;
use tower_quota::{ChargeError, Group, HOUR, Key, MemoryStore, Meter, OnStoreFailure, Quota, SECOND, StoreErrorKind};

use crate::support::{Log, by_name, charge, group, now, try_charge, used};

/// A group over a store that the test keeps hold of.
fn over(store: MemoryStore, policy: OnStoreFailure) -> (Group, Arc<MemoryStore>) {
    let store = Arc::new(store);
    (Group::builder("test").on_store_failure(policy).build(Arc::clone(&store)).unwrap(), store)
}

/// Axes that lie behind locks in every order are charged together, and never deadlock.
#[test]
fn threads_that_charge_the_same_axes_in_other_orders_agree() {
    const LIMIT: u64 = 2_000;
    let (group, _clock) = group();
    let quota = || Quota::fixed_window(LIMIT, HOUR);
    let axes: Vec<_> = (0..4).map(|i| group.per_key(&format!("keyed-{i}"), quota()).build().unwrap()).collect();
    let shared: Vec<_> = (0..2).map(|i| group.shared(&format!("shared-{i}"), quota()).build().unwrap()).collect();
    let meter = |order: [usize; 4], first: usize| {
        let by = |i: usize| axes[order[i]].by(|name: &str| Key::from(name));
        let meter = Meter::new(&shared[first]).and(by(0)).unwrap().and(by(1)).unwrap();
        meter.and(by(2)).unwrap().and(&shared[1 - first]).unwrap().and(by(3)).unwrap()
    };
    let meters = [meter([0, 1, 2, 3], 0), meter([3, 2, 1, 0], 1), meter([2, 0, 3, 1], 0), meter([1, 3, 0, 2], 1)];
    let admitted = AtomicU64::new(0);
    thread::scope(|scope| {
        for meter in &meters {
            scope.spawn(|| {
                for _ in 0..LIMIT {
                    admitted.fetch_add(u64::from(charge(meter, "alice", 1).is_ok()), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), LIMIT);
    assert_eq!(used(&meters[0], "alice"), [(LIMIT, 0); 6]);
}

/// A charge that is refused on one axis is never seen on another, not even for a moment.
#[test]
fn a_refused_charge_never_makes_another_one_fail() {
    let (group, _clock) = group();
    let greedy = group.per_key("greedy", Quota::fixed_window(0, HOUR)).build().unwrap();
    let all = group.shared("all", Quota::fixed_window(100_000, HOUR)).build().unwrap();
    let (refused, polite) = (by_name(&greedy).and(&all).unwrap(), Meter::<str>::new(&all));
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100_000 {
                assert!(charge(&refused, "greedy", 100_000).is_err());
            }
        });
        for _ in 0..100_000 {
            charge(&polite, "polite", 1).expect("nobody else is charged");
        }
    });
}

#[test]
fn a_counter_that_equals_a_fresh_one_is_forgotten_as_others_pass() {
    let clock = FakeClock::new();
    let (group, store) = over(MemoryStore::with_clock(clock.clone()), OnStoreFailure::Open);
    for (name, quota) in [
        ("fixed", Quota::fixed_window(3, SECOND)),
        ("aligned", Quota::aligned_window(3, SECOND)),
        ("sliding", Quota::sliding_window(3, SECOND)),
        ("bucket", Quota::token_bucket(3, 3, SECOND)),
    ] {
        let meter = Meter::new(group.per_key(name, quota).build().unwrap().by(|key: &u64| Key::from(*key)));
        for key in 0..1_000 {
            charge(&meter, &key, 1).unwrap();
        }
    }
    assert_eq!(store.states(), 4_000);
    clock.advance(10 * SECOND);
    let passing: Meter<u64> = Meter::new(&group.shared("passing", Quota::per_hour(1_000)).build().unwrap());
    for _ in 0..1_000 {
        charge(&passing, &0, 1).unwrap();
    }
    assert_eq!(store.states(), 0);
}

#[test]
fn a_spent_counter_is_kept_until_it_equals_a_fresh_one() {
    for quota in ["fixed 2/h", "aligned 2/h", "2/h", "bucket 2 2/h"] {
        let clock = FakeClock::new();
        let (group, store) = over(MemoryStore::with_clock(clock.clone()), OnStoreFailure::Open);
        let meter = by_name(&group.per_key("spent", quota).build().unwrap());
        charge(&meter, "alice", 1).unwrap();
        clock.advance(HOUR / 2);
        charge(&meter, "alice", 1).unwrap();
        let mut fresh_in = charge(&meter, "alice", 0).unwrap().reports()[0].reset();
        let others = group.per_key("others", Quota::fixed_window(1, SECOND)).build().unwrap();
        let others = Meter::new(others.by(|key: &u64| Key::from(*key)));
        let mut key = 0;
        while fresh_in > SECOND {
            fresh_in -= SECOND;
            clock.advance(SECOND);
            for _ in 0..5 {
                key += 1;
                charge(&others, &key, 1).unwrap();
            }
        }
        assert!(store.states() < 1_000, "{} counters are held", store.states());
        assert_eq!(charge(&meter, "alice", 0).unwrap().reports()[0].reset(), fresh_in, "{quota}");
        clock.advance(fresh_in);
        assert_eq!(try_charge(&meter, "alice", 2), Ok(()), "{quota}");
    }
}

/// A bucket that refills more slowly than when it was charged is kept for as long as that takes.
#[test]
fn a_bucket_whose_refill_is_lowered_is_not_forgotten_early() {
    let clock = FakeClock::new();
    let (group, _store) = over(MemoryStore::with_clock(clock.clone()).max_states(2).unwrap(), OnStoreFailure::Closed);
    let axis = group.per_key("axis", Quota::token_bucket(100, 100, HOUR)).build().unwrap();
    let meter = by_name(&axis);
    charge(&meter, "alice", 60).unwrap();
    axis.set_quota(Quota::token_bucket(10, 10, HOUR)).unwrap();
    assert!(charge(&meter, "alice", 1).is_err());
    clock.advance(2 * HOUR);
    // Whoever needs room finds none in her place.
    charge(&meter, "bob", 1).unwrap();
    assert!(matches!(charge(&meter, "carol", 1), Err(ChargeError::Store(_))));
    assert_eq!(used(&meter, "alice"), [(40, 0)]);
}

/// What was taken for a flood of keys is given back once they are forgotten.
#[test]
fn memory_is_given_back() {
    let clock = FakeClock::new();
    let mut store = None;
    let left = allocation_counter::measure(|| {
        let (group, held) = over(MemoryStore::with_clock(clock.clone()), OnStoreFailure::Open);
        let meter = Meter::new(
            group.per_key("axis", Quota::fixed_window(1, SECOND)).build().unwrap().by(|key: &u64| Key::from(*key)),
        );
        for key in 0..200_000 {
            charge(&meter, &key, 1).unwrap();
        }
        clock.advance(10 * SECOND);
        for _ in 0..1_000 {
            charge(&meter, &0, 0).unwrap();
        }
        store = Some(held);
    });
    assert_eq!(store.unwrap().states(), 0);
    assert!(left.bytes_max > 4_000_000, "{} bytes were taken", left.bytes_max);
    assert!(left.bytes_current < 500_000, "{} bytes are kept", left.bytes_current);
}

#[test]
fn a_full_store_gives_new_keys_the_failure_policy_and_known_ones_their_due() {
    let clock = FakeClock::new();
    for (policy, admits) in [(OnStoreFailure::Open, true), (OnStoreFailure::Closed, false)] {
        let store = MemoryStore::with_clock(clock.clone()).max_states(100).unwrap();
        let (group, store) = over(store, policy);
        let axis = group.per_key("axis", Quota::fixed_window(2, HOUR)).build().unwrap();
        let meter = Meter::new(axis.by(|key: &u64| Key::from(*key)));
        for key in 0..100 {
            assert!(charge(&meter, &key, 1).unwrap().was_counted());
        }
        let log = Log::start();
        for key in 100..1_000 {
            match charge(&meter, &key, 1) {
                Ok(verdict) => assert!(admits && !verdict.was_counted() && verdict.reports().is_empty()),
                Err(ChargeError::Store(error)) => {
                    assert!(!admits);
                    assert_eq!(error.kind(), StoreErrorKind::StoreFull);
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(log.lines("tower_quota::store").len() <= 2, "one line a second");
        assert_eq!(store.states(), 100);
        for key in 0..100 {
            assert_eq!(try_charge(&meter, &key, 1), Ok(()));
            assert_eq!(try_charge(&meter, &key, 1), Err(HOUR));
        }
        clock.advance(HOUR + 2 * SECOND);
        assert!(charge(&meter, &5_000, 1).unwrap().was_counted(), "there is room again");
    }
}

#[test]
fn an_axis_may_be_stricter_than_its_group_and_the_strictest_counts() {
    let (group, _store) = over(MemoryStore::new().max_states(1).unwrap(), OnStoreFailure::Open);
    let lax = group.per_key("lax", "1/h").build().unwrap();
    let strict = group.per_key("strict", "1/h").on_store_failure(OnStoreFailure::Closed).build().unwrap();
    charge(&by_name(&lax), "alice", 1).unwrap();
    assert!(charge(&by_name(&lax), "bob", 1).is_ok());
    let both = by_name(&lax).and(strict.by(|name: &str| Key::from(name))).unwrap();
    assert!(matches!(charge(&both, "bob", 1), Err(ChargeError::Store(_))));
}

#[test]
fn looks_and_refusals_hold_no_counter() {
    let clock = FakeClock::new();
    let (group, store) = over(MemoryStore::with_clock(clock), OnStoreFailure::Open);
    let open = by_name(&group.per_key("open", "1/h").build().unwrap());
    let closed = by_name(&group.per_key("closed", "0/h").build().unwrap());
    for name in (0..1_000).map(|i| i.to_string()) {
        charge(&open, &*name, 0).unwrap();
        assert!(charge(&open, &*name, 2).is_err());
        assert!(charge(&closed, &*name, 1).is_err());
    }
    assert_eq!(store.states(), 0);
}

#[test]
fn who_is_refused_because_the_service_is_full_holds_no_counter() {
    let clock = FakeClock::new();
    let (group, store) = over(MemoryStore::with_clock(clock), OnStoreFailure::Open);
    let account = group.per_key("account", "fixed 2/h").build().unwrap();
    let capacity = group.shared("capacity", "fixed 1/h").build().unwrap();
    let meter = by_name(&account).and(&capacity).unwrap();
    charge(&meter, "alice", 1).unwrap();
    for name in (0..1_000).map(|i| i.to_string()) {
        assert_eq!(try_charge(&meter, &*name, 1), Err(HOUR));
    }
    assert_eq!(store.states(), 1, "alice's own");
}

/// Two groups of one name over one store are one configuration, built twice.
#[test]
fn counters_outlive_the_configuration_that_named_them() {
    let store = Arc::new(MemoryStore::new());
    let meter = |limit| {
        let group = Group::new("test", Arc::clone(&store)).unwrap();
        let axis = group.per_key("axis", Quota::fixed_window(limit, HOUR)).build().unwrap();
        by_name(&axis)
    };
    charge(&meter(10), "alice", 10).unwrap();
    assert_eq!(used(&meter(20), "alice"), [(10, 10)]);
    let other = Group::new("other", Arc::clone(&store)).unwrap();
    assert_eq!(used(&by_name(&other.per_key("axis", "fixed 10/h").build().unwrap()), "alice"), [(0, 10)]);
}

/// At a time that no clock should tell, limits hold all the same.
#[test]
fn limits_hold_at_the_end_of_time() {
    let clock = FakeClock::new();
    clock.set(Duration::MAX);
    let group = Group::new("test", MemoryStore::with_clock(clock)).unwrap();
    for (index, quota) in ["fixed 3/h", "aligned 3/h", "3/h", "bucket 3 3/h"].into_iter().enumerate() {
        let meter = by_name(&group.per_key(&format!("axis-{index}"), quota).build().unwrap());
        assert_eq!((0..10).filter(|_| charge(&meter, "alice", 1).is_ok()).count(), 3, "{quota}");
    }
}

/// Times that no clock should tell.
#[test]
fn no_time_panics() {
    let clock = FakeClock::new();
    let group = Group::new("test", MemoryStore::with_clock(clock.clone())).unwrap();
    let quotas = [
        Quota::fixed_window(3, HOUR),
        Quota::aligned_window(3, HOUR),
        Quota::per_hour(3),
        Quota::token_bucket(3, 3, HOUR),
    ];
    let meters: Vec<_> = (0..)
        .zip(quotas)
        .map(|(index, quota)| by_name(&group.per_key(&format!("axis-{index}"), quota).build().unwrap()))
        .collect();
    let century = 100 * 365 * 24 * HOUR;
    for time in [
        Duration::MAX,
        Duration::ZERO,
        Duration::from_micros(1),
        century,
        6_000 * century,
        Duration::MAX,
        Duration::ZERO,
    ] {
        clock.set(time);
        for meter in &meters {
            for cost in [0, 1, 3, u64::MAX] {
                let _ = charge(meter, "alice", cost);
            }
            // A whole round of sweeps in passing.
            for _ in 0..1_000 {
                let _ = charge(meter, "alice", 0);
            }
        }
    }
}

/// Whatever charges, resets and sweeps do side by side, no room is lost, and none is given out twice.
#[test]
fn room_is_neither_lost_nor_given_out_twice() {
    const ROOM: usize = 300;
    let clock = FakeClock::new();
    let store = MemoryStore::with_clock(clock.clone()).max_states(ROOM).unwrap();
    let (group, store) = over(store, OnStoreFailure::Closed);
    let brief = group.per_key("brief", Quota::fixed_window(3, SECOND)).build().unwrap();
    let other = group.per_key("other", Quota::token_bucket(3, 1, SECOND)).build().unwrap();
    let meter =
        Meter::new(brief.by(|key: &u64| Key::from(*key))).and(other.by(|key: &u64| Key::from(key / 2))).unwrap();
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (clock, store, meter, brief) = (&clock, &store, &meter, &brief);
            scope.spawn(move || {
                for step in 0..20_000_u64 {
                    let key = (step * 7 + thread * 13) % 500;
                    match step % 16 {
                        0 => now(brief.reset(&Key::from(key))).unwrap(),
                        1 if thread == 0 => clock.advance(Duration::from_millis(20)),
                        _ => drop(meter.ask(&key, 1)),
                    }
                    assert!(store.states() <= ROOM, "{} counters in a room of {ROOM}", store.states());
                }
            });
        }
    });
    // Once all are forgotten, there is room for as many as ever.
    clock.advance(HOUR);
    let fresh = Meter::new(group.per_key("fresh", "fixed 1/h").build().unwrap().by(|key: &u64| Key::from(*key)));
    for key in 0..ROOM as u64 {
        charge(&fresh, &key, 1).unwrap_or_else(|error| panic!("{key}: {error}"));
    }
    assert_eq!(store.states(), ROOM);
    assert!(matches!(charge(&fresh, &u64::MAX, 1), Err(ChargeError::Store(_))));
}
