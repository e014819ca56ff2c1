//! What each algorithm lets pass in a span of one period, as its documentation says.

use std::time::Duration;

use proptest::prelude::*;
use tower_quota::{HOUR, Quota, SECOND};

use crate::support::{MILLI, by_name, group, try_charge};

/// How much of `asked` units a quota lets pass, a unit at a time, at each of the given times after an aligned second.
fn passed(quota: Quota, at: &[(Duration, usize)]) -> Vec<usize> {
    let (group, clock) = group();
    let meter = by_name(&group.per_key("axis", quota).build().unwrap());
    let mut now = Duration::ZERO;
    at.iter()
        .map(|(time, asked)| {
            clock.advance(*time - now);
            now = *time;
            (0..*asked).filter(|_| try_charge(&meter, "a", 1).is_ok()).count()
        })
        .collect()
}

#[test]
fn a_fixed_window_lets_twice_its_limit_pass_around_its_end() {
    // The window starts with the first charge, at 0.1 s.
    let quota = Quota::fixed_window(100, SECOND).unwrap();
    let at = [(100 * MILLI, 1), (1_050 * MILLI, 200), (1_100 * MILLI, 200)];
    assert_eq!(passed(quota, &at), [1, 99, 100]);
}

#[test]
fn an_aligned_window_lets_twice_its_limit_pass_around_its_end() {
    let quota = Quota::aligned_window(100, SECOND).unwrap();
    assert_eq!(passed(quota, &[(900 * MILLI, 200), (1_000 * MILLI, 200)]), [100, 100]);
}

#[test]
fn a_sliding_window_lets_at_most_twice_its_limit_pass() {
    let quota = || Quota::per_second(100).unwrap();
    // The earlier window counts by what is left of it …
    assert_eq!(passed(quota(), &[(999 * MILLI, 200), (1_500 * MILLI, 200)]), [100, 50]);
    // … so the whole limit passes again only within the last hundredth of the next.
    assert_eq!(passed(quota(), &[(999 * MILLI, 200), (1_990 * MILLI, 200)]), [100, 99]);
    assert_eq!(passed(quota(), &[(999 * MILLI, 200), (1_998 * MILLI, 200)]), [100, 100]);
}

#[test]
fn a_sliding_window_lets_its_limit_pass_on_average() {
    let quota = Quota::per_second(100).unwrap();
    let every_milli: Vec<_> = (0..100_000).map(|milli| (milli * MILLI, 5)).collect();
    let admitted: usize = passed(quota, &every_milli).iter().sum();
    assert!((9_900..=10_100).contains(&admitted), "{admitted} in 100 s at 100 a second");
}

#[test]
fn a_token_bucket_lets_its_capacity_and_its_refill_pass() {
    let quota = Quota::token_bucket(100, 10, SECOND).unwrap();
    let every_milli: Vec<_> = (0..=1_000).map(|milli| (milli * MILLI, 200)).collect();
    assert_eq!(passed(quota, &every_milli).iter().sum::<usize>(), 110);
}

#[test]
fn a_window_starts_with_its_first_charge_or_on_the_clock() {
    let (group, clock) = group();
    let fixed = by_name(&group.per_key("fixed", Quota::fixed_window(1, HOUR)).build().unwrap());
    let aligned = by_name(&group.per_key("aligned", Quota::aligned_window(1, HOUR)).build().unwrap());
    clock.advance(1_000 * SECOND);
    for meter in [&fixed, &aligned] {
        try_charge(meter, "a", 1).unwrap();
    }
    assert_eq!(try_charge(&fixed, "a", 1), Err(3_600 * SECOND));
    assert_eq!(try_charge(&aligned, "a", 1), Err(2_600 * SECOND));
}

proptest! {
    /// Bursts with short and long pauses between them, and no span of one period, wherever it starts.
    #[test]
    fn in_no_span_of_one_period_more_passes_than_twice_the_limit_of_a_window(
        charges in proptest::collection::vec((prop_oneof![4 => 0..60_u32, 1 => 300..1_300_u32], 1..8_u64), 1..150),
    ) {
        const LIMIT: u64 = 10;
        for quota in [Quota::fixed_window, Quota::aligned_window, Quota::sliding_window] {
            let (group, clock) = group();
            let meter = by_name(&group.per_key("axis", quota(LIMIT, SECOND)).build().unwrap());
            let mut passed = Vec::new();
            let mut now = Duration::ZERO;
            for (pause, cost) in &charges {
                clock.advance(*pause * MILLI);
                now += *pause * MILLI;
                if try_charge(&meter, "a", *cost).is_ok() {
                    passed.push((now, *cost));
                }
            }
            // A span that holds the most starts with a charge.
            for (first, (start, _)) in passed.iter().enumerate() {
                let span = passed[first..].iter().take_while(|(at, _)| *at < *start + SECOND);
                let sum: u64 = span.map(|(_, cost)| cost).sum();
                prop_assert!(sum <= 2 * LIMIT, "{sum} within a second from {start:?} on");
            }
        }
    }
}
