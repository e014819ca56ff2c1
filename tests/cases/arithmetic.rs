//! Refills, overflows, clocks, windows, costs.

use std::time::Duration;

use tower_quota::testing::FakeClock;
use tower_quota::{ChargeError, Cost, Group, HOUR, Key, MemoryStore, Meter, Quota, SECOND};

use crate::support::{MILLI, accepting, by_name, charge, group, request, status, try_charge, used};

fn bucket(capacity: u64, refill: u64, period: Duration) -> (Meter<str>, FakeClock) {
    let (group, clock) = group();
    let quota = Quota::token_bucket(capacity, refill, period);
    (by_name(&group.per_key("axis", quota).build().unwrap()), clock)
}

/// How often a unit is admitted when one is asked for at each step of the clock.
fn admitted(meter: &Meter<str>, clock: &FakeClock, step: Duration, steps: usize) -> usize {
    (0..steps)
        .filter(|_| {
            clock.advance(step);
            try_charge(meter, "a", 1).is_ok()
        })
        .count()
}

#[test]
fn t01_refill_throws_away_no_fraction_of_an_interval() {
    let (meter, clock) = bucket(5, 1, 10 * SECOND);
    try_charge(&meter, "a", 5).unwrap();
    clock.advance(25 * SECOND);
    try_charge(&meter, "a", 2).unwrap();
    clock.advance(4 * SECOND);
    assert_eq!(try_charge(&meter, "a", 1), Err(SECOND));
    clock.advance(SECOND);
    assert_eq!(try_charge(&meter, "a", 1), Ok(()));

    let (meter, clock) = bucket(1, 1, SECOND);
    try_charge(&meter, "a", 1).unwrap();
    clock.advance(200 * MILLI);
    assert_eq!(try_charge(&meter, "a", 1), Err(800 * MILLI));
}

#[test]
fn t01_frequent_polling_refills_at_the_full_rate() {
    let (meter, clock) = bucket(3, 3, SECOND);
    try_charge(&meter, "a", 3).unwrap();
    assert_eq!(admitted(&meter, &clock, MILLI, 10_000), 30);

    let (meter, clock) = bucket(10, 10, SECOND);
    try_charge(&meter, "a", 10).unwrap();
    assert_eq!(admitted(&meter, &clock, 50 * MILLI, 200), 100);

    // 12,000 a minute: a millisecond is worth a fifth of a unit.
    let (meter, clock) = bucket(12_000, 12_000, 60 * SECOND);
    try_charge(&meter, "a", 12_000).unwrap();
    assert_eq!(admitted(&meter, &clock, MILLI, 60_000), 12_000);
}

#[test]
fn t01_the_slowest_rates_accrue() {
    let (meter, clock) = bucket(1, 1, SECOND); // 0.001 a millisecond
    try_charge(&meter, "a", 1).unwrap();
    assert_eq!(admitted(&meter, &clock, MILLI, 3_000), 3);

    let (meter, clock) = bucket(1, 1, 86_400 * SECOND);
    try_charge(&meter, "a", 1).unwrap();
    assert_eq!(admitted(&meter, &clock, 864 * SECOND, 300), 3);
}

#[test]
fn t02_a_long_idle_time_overflows_nothing() {
    for idle in [SECOND, HOUR, 12 * HOUR, 400 * 24 * HOUR, 600 * 365 * 24 * HOUR] {
        let (meter, clock) = bucket(1_000_000, 1_000_000, SECOND);
        try_charge(&meter, "a", 1_000_000).unwrap();
        clock.advance(idle);
        let verdict = charge(&meter, "a", 0).unwrap();
        assert_eq!(verdict.reports()[0].remaining(), 1_000_000, "{idle:?}");
        assert_eq!(verdict.reports()[0].reset(), Duration::ZERO);
        assert_eq!(try_charge(&meter, "a", 1_000_000), Ok(()));
    }
}

#[test]
fn t02_a_state_of_any_age_is_answered() {
    let period = 10 * SECOND;
    for quota in ["fixed 5/10s", "aligned 5/10s", "5/10s", "bucket 5 5/10s"] {
        for written in [Duration::ZERO, Duration::from_micros(1), 100 * SECOND - Duration::from_micros(1), 200 * SECOND]
        {
            let (group, clock) = group();
            let meter = by_name(&group.per_key("axis", quota).build().unwrap());
            clock.set(written);
            charge(&meter, "a", 3).unwrap();
            clock.set(100 * SECOND);
            let verdict = charge(&meter, "a", 0).unwrap();
            let longest = written.saturating_sub(100 * SECOND) + 2 * period;
            assert!(verdict.reports()[0].reset() <= longest, "{quota} written at {written:?}");
        }
    }
}

#[test]
fn t06_a_late_request_with_an_older_time_is_not_paid_twice() {
    let (meter, clock) = bucket(5, 5, SECOND);
    let base = 1_000_000 * SECOND;
    let at = |second: u32, asked: usize| {
        clock.set(base + second * SECOND);
        (0..asked).filter(|_| try_charge(&meter, "a", 1).is_ok()).count()
    };
    assert_eq!(at(0, 5), 5);
    assert_eq!(at(1, 4), 4);
    assert_eq!(at(0, 1), 1);
    assert_eq!(at(1, 5), 0);
}

#[test]
fn t06_a_clock_that_jumps_takes_nothing_away() {
    for quota in ["fixed 10/m", "aligned 10/m", "10/m", "bucket 10 10/m"] {
        let (group, clock) = group();
        let meter = by_name(&group.per_key("axis", quota).build().unwrap());
        clock.set(1_000_000 * SECOND);
        try_charge(&meter, "a", 4).unwrap();
        clock.set(1_000_000 * SECOND - HOUR);
        assert_eq!(used(&meter, "a"), [(4, 6)], "{quota}");
        try_charge(&meter, "a", 6).unwrap();
        // The wait counts from the clock as it reads.
        let wait = try_charge(&meter, "a", 1).unwrap_err();
        assert!(wait > HOUR && wait <= HOUR + 60 * SECOND, "{quota}: {wait:?}");
        clock.advance(wait);
        assert_eq!(try_charge(&meter, "a", 1), Ok(()), "{quota}");
    }
}

/// Bounds around the edge of a window; more of them stand with the algorithms.
#[test]
fn t07_each_algorithm_lets_pass_what_it_says_around_an_edge() {
    for (quota, expected) in [
        ("aligned 100/s", [100, 100]),
        ("fixed 100/s", [100, 0]),
        ("100/s", [100, 10]),
        ("bucket 100 100/s", [100, 20]),
    ] {
        let (group, clock) = group();
        let meter = by_name(&group.per_key("axis", quota).build().unwrap());
        let batch = || (0..100).filter(|_| try_charge(&meter, "a", 1).is_ok()).count();
        clock.advance(900 * MILLI);
        let first = batch();
        clock.advance(200 * MILLI);
        assert_eq!([first, batch()], expected, "{quota}");
    }
}

#[test]
fn t07_the_end_of_a_window_belongs_to_the_next() {
    for quota in ["fixed 1/s", "aligned 1/s"] {
        let (group, clock) = group();
        let meter = by_name(&group.per_key("axis", quota).build().unwrap());
        try_charge(&meter, "a", 1).unwrap();
        clock.advance(SECOND - Duration::from_micros(1));
        assert_eq!(try_charge(&meter, "a", 1), Err(Duration::from_micros(1)));
        clock.advance(Duration::from_micros(1));
        assert_eq!(try_charge(&meter, "a", 1), Ok(()));
    }
}

#[test]
fn t57_a_cost_outside_the_sane_range_never_fits_and_spends_nothing() {
    for quota in ["fixed 10/h", "aligned 10/h", "10/h", "bucket 10 10/h"] {
        let (group, _clock) = group();
        let meter = by_name(&group.per_key("axis", quota).build().unwrap());
        let never = |cost: Cost| matches!(charge(&meter, "a", cost), Err(ChargeError::Never(_)));
        assert!(never(11.into()));
        assert!(never((-1).into()) && never(i32::MIN.into()));
        assert!(never(((1_u64 << 32) + 1).into()) && never(u64::MAX.into()) && never(usize::MAX.into()));
        assert_eq!(used(&meter, "a"), [(0, 10)]);
        charge(&meter, "a", 1).unwrap();
        let wait = try_charge(&meter, "a", 10).unwrap_err();
        assert!(wait > Duration::ZERO && wait <= 2 * HOUR, "{quota}: {wait:?}");
        charge(&meter, "a", 9).unwrap();
        assert!(charge(&meter, "a", 0).is_ok(), "a look is allowed");
        assert_eq!(used(&meter, "a"), [(10, 0)]);
    }
}

#[tokio::test]
async fn t57_a_cost_function_that_panics_spends_nothing() {
    use tower::Layer;
    let (group, _clock) = group();
    let axis = group.per_key("axis", "fixed 10/h").build().unwrap();
    let layer = tower_quota::UserQuotaLayer::new(&axis, tower_quota::key::header("x-account").unwrap());
    let service = layer.cost(|parts| 1 / parts.uri.path().matches('x').count()).layer(accepting());
    assert_eq!(status(&service, request("a")).await, 500);
    assert_eq!(used(&by_name(&axis), "a"), [(0, 10)]);
}

#[test]
fn t57_a_period_of_nothing_and_a_rate_of_nothing_do_not_build() {
    assert!(Quota::fixed_window(1, Duration::ZERO).is_err());
    assert!(Quota::token_bucket(5, 0, SECOND).is_err());
    assert!(Quota::token_bucket(0, 0, SECOND).is_err());
}

/// Decisions whose readings are up to 300 ms early or late admit no more than the rate and the burst.
#[test]
fn t06_readings_that_are_early_or_late_are_not_paid_twice() {
    for (quota, most) in [("bucket 100 100/s", 1_000 + 100), ("100/s", 1_000 + 100), ("fixed 100/s", 1_000 + 100)] {
        let (group, clock) = group();
        let meter = by_name(&group.per_key("axis", quota).build().unwrap());
        let mut admitted = 0;
        for milli in 0..10_000 {
            let reading = 1_000_000 * SECOND + milli * MILLI;
            for skewed in [reading + 300 * MILLI, reading - 300 * MILLI] {
                clock.set(skewed);
                admitted += usize::from(try_charge(&meter, "a", 1).is_ok());
            }
        }
        assert!(admitted <= most, "{quota}: {admitted}");
        assert!(admitted >= 990, "{quota}: {admitted}");
    }
}

/// Without a given clock the memory store reads the process's own.
#[test]
fn t06_the_memory_store_counts_on_without_a_given_clock() {
    let group = Group::new("test", MemoryStore::new()).unwrap();
    let meter = Meter::new(group.per_key("axis", "fixed 2/h").build().unwrap().by(|(): &()| Key::from("a")));
    charge(&meter, &(), 2).unwrap();
    let first = try_charge(&meter, &(), 1).unwrap_err();
    std::thread::sleep(5 * MILLI);
    let second = try_charge(&meter, &(), 1).unwrap_err();
    assert!(first <= HOUR && second + 4 * MILLI <= first, "{first:?}, {second:?}");
}
