//! Concurrent requests, and several axes.

use std::sync::Barrier;
use std::thread;

use tower_quota::{HOUR, Key, MINUTE, Meter, Quota};

use crate::support::{MILLI, by_name, charge, group, now, try_charge, used};

/// 64 threads against one fresh key with a limit of 10, 1,000 times: exactly 10 each.
#[test]
fn t05_concurrent_requests_do_not_overwrite_each_other() {
    const THREADS: usize = 64;
    const ROUNDS: u64 = 1_000;
    let (group, _clock) = group();
    let axis = group.per_key("axis", Quota::fixed_window(10, MINUTE)).build().unwrap();
    let meter = Meter::new(axis.by(|round: &u64| Key::from(*round)));
    let start = Barrier::new(THREADS);
    let admitted: Vec<Vec<bool>> = thread::scope(|scope| {
        let thread = || {
            (0..ROUNDS)
                .map(|round| {
                    start.wait();
                    try_charge(&meter, &round, 1).is_ok()
                })
                .collect()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(thread)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for round in 0..ROUNDS {
        let at = usize::try_from(round).unwrap();
        assert_eq!(admitted.iter().filter(|thread| thread[at]).count(), 10, "round {round}");
        assert_eq!(used(&meter, &round), [(10, 0)]);
    }
}

/// The same on an account and a capacity at once, asked for and awaited side by side.
#[test]
fn t05_concurrent_requests_on_two_axes_do_not_overwrite_each_other() {
    const THREADS: usize = 64;
    const ROUNDS: u64 = 200;
    let (group, _clock) = group();
    let axis = group.per_key("axis", Quota::fixed_window(10, MINUTE)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(ROUNDS * 10 - 5, MINUTE)).build().unwrap();
    let meter = Meter::new(axis.by(|round: &u64| Key::from(*round))).and(&capacity).unwrap();
    let start = Barrier::new(THREADS);
    let admitted: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (meter, start) = (&meter, &start);
                scope.spawn(move || {
                    (0..ROUNDS)
                        .filter(|round| {
                            start.wait();
                            match thread % 2 {
                                0 => charge(meter, round, 1).is_ok(),
                                _ => now(meter.charge(round, 1).into_future()).is_ok(),
                            }
                        })
                        .count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted as u64, ROUNDS * 10 - 5);
    assert_eq!(used(&meter, &0), [(10, 0), (ROUNDS * 10 - 5, 0)]);
    assert_eq!(used(&meter, &(ROUNDS - 1))[0], (5, 5));
}

#[test]
fn t05_concurrent_requests_around_an_edge_stay_within_the_bound() {
    let (group, clock) = group();
    let meter = by_name(&group.per_key("axis", Quota::per_second(10)).build().unwrap());
    let together = || -> usize {
        let one = || usize::from(try_charge(&meter, "a", 1).is_ok());
        thread::scope(|scope| {
            let threads: Vec<_> = (0..50).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        })
    };
    clock.advance(999 * MILLI);
    assert_eq!(together(), 10);
    clock.advance(2 * MILLI);
    // 99.9 % of the earlier window are still in the last second.
    assert_eq!(together(), 1);
}

#[test]
fn t10_a_request_denied_on_one_axis_spends_no_other() {
    let (group, _clock) = group();
    let user = group.per_key("user", Quota::fixed_window(5, MINUTE)).build().unwrap();
    let org = group.shared("org", Quota::fixed_window(10, MINUTE)).build().unwrap();
    let meter = by_name(&user).and(&org).unwrap();
    let admitted = |who: &str, asked: usize| (0..asked).filter(|_| try_charge(&meter, who, 1).is_ok()).count();
    assert_eq!(admitted("A", 8), 5);
    assert_eq!(admitted("B", 5), 5);
    assert_eq!(used(&meter, "A"), [(5, 0), (10, 0)]);
    assert_eq!(used(&meter, "B"), [(5, 0), (10, 0)]);
}

#[test]
fn t10_what_does_not_fit_leaves_what_is_left() {
    for quota in ["fixed 10/h", "aligned 10/h", "10/h", "bucket 10 10/h"] {
        let (group, _clock) = group();
        let meter = by_name(&group.per_key("axis", quota).build().unwrap());
        charge(&meter, "a", 8).unwrap();
        assert!(charge(&meter, "a", 5).is_err());
        assert_eq!(used(&meter, "a"), [(8, 2)]);
        charge(&meter, "a", 1).unwrap();
    }
}

#[test]
fn t10_a_thousand_denials_on_the_third_axis_change_the_first_two_by_nothing() {
    let (group, _clock) = group();
    let one = group.per_key("one", Quota::per_hour(100)).build().unwrap();
    let two = group.shared("two", Quota::token_bucket(100, 100, HOUR)).build().unwrap();
    let three = group.per_key("three", Quota::fixed_window(3, HOUR)).build().unwrap();
    let by = |name: &str| Key::from(name);
    let meter = by_name(&one).and(&two).unwrap().and(three.by(by)).unwrap();
    charge(&meter, "a", 3).unwrap();
    for _ in 0..1_000 {
        assert!(charge(&meter, "a", 1).is_err());
    }
    assert_eq!(used(&meter, "a"), [(3, 97), (3, 97), (3, 0)]);
}
