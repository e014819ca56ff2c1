//! Every algorithm against a slow, exact model in rational numbers: over random times, clocks that step back, costs and
//! changes of limit, verdicts are the model's, and each wait is enough while a microsecond less is not.

use std::time::Duration;

use num_rational::Ratio;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tower_quota::testing::FakeClock;
use tower_quota::{Algorithm, ChargeError, Group, Key, MemoryStore, Meter, Quota};

type Exact = Ratio<i128>;

/// The start of the clock, in microseconds.
const START: i128 = 1_767_225_600_000_000;

/// A counter as the documentation describes it, at any time: what is used, as a rational number.
#[derive(Clone, Debug)]
enum Model {
    /// Start of the window (`None`: none yet), units used in it.
    Window { start: Option<i128>, used: i128 },
    /// Start of the current window, units used in the one before it and in it.
    Sliding { start: i128, previous: i128, current: i128 },
    /// Units used at a time.
    Bucket { used: Exact, at: i128 },
}

impl Model {
    fn new(quota: &Quota) -> Self {
        match quota.algorithm() {
            Algorithm::FixedWindow | Algorithm::AlignedWindow => Self::Window { start: None, used: 0 },
            Algorithm::SlidingWindow => Self::Sliding { start: 0, previous: 0, current: 0 },
            _ => Self::Bucket { used: Exact::from_integer(0), at: 0 },
        }
    }

    /// The counter at `now`; it never moves back.
    fn at(&self, quota: &Quota, now: i128) -> Self {
        let period = micros(quota.period());
        let now = match self {
            Self::Window { .. } => now,
            Self::Sliding { .. } | Self::Bucket { .. } => now - now % tick(period),
        };
        match *self {
            Self::Window { start: Some(start), .. } if now < start + period => self.clone(),
            Self::Window { .. } => {
                let is_aligned = quota.algorithm() == Algorithm::AlignedWindow;
                Self::Window { start: Some(if is_aligned { now - now % period } else { now }), used: 0 }
            }
            Self::Sliding { start, current, .. } => match (now - start).div_euclid(period) {
                ..=0 => self.clone(),
                1 => Self::Sliding { start: start + period, previous: current, current: 0 },
                _ => Self::Sliding { start: now - now % period, previous: 0, current: 0 },
            },
            Self::Bucket { used, at } => {
                let now = now.max(at);
                let refill = Exact::new((now - at) * i128::from(quota.refill()), period);
                Self::Bucket { used: (used - refill).max(Exact::from_integer(0)), at: now }
            }
        }
    }

    /// Whole units used at `now`.
    fn used(&self, quota: &Quota, now: i128) -> i128 {
        match self.at(quota, now) {
            Self::Window { used, .. } => used,
            Self::Sliding { start, previous, current } => {
                let period = micros(quota.period());
                let elapsed = (now - now % tick(period) - start).max(0);
                current + Exact::new(previous * (period - elapsed), period).floor().to_integer()
            }
            Self::Bucket { used, .. } => used.ceil().to_integer(),
        }
    }

    fn fits(&self, quota: &Quota, now: i128, cost: u64) -> bool {
        self.used(quota, now) + i128::from(cost) <= i128::from(quota.limit())
    }

    fn charge(&mut self, quota: &Quota, now: i128, cost: u64) {
        *self = self.at(quota, now);
        match self {
            Self::Window { used, .. } => *used += i128::from(cost),
            Self::Sliding { current, .. } => *current += i128::from(cost),
            Self::Bucket { used, .. } => *used += i128::from(cost),
        }
    }
}

/// The microseconds that a sliding window or a bucket counts as one: the smallest power of ten that divides the period
/// into at most 2^27.
fn tick(period: i128) -> i128 {
    (0..9).map(|power| 10_i128.pow(power)).find(|tick| period % tick == 0 && period / tick <= 1 << 27).unwrap()
}

fn micros(time: Duration) -> i128 {
    i128::try_from(time.as_micros()).unwrap()
}

/// A clock that steps back by up to a second behind the latest time that it has told: further, and a store may have
/// forgotten what it counted.
struct Steps {
    now: i128,
    latest: i128,
}

impl Steps {
    fn new() -> Self {
        Self { now: START, latest: START }
    }

    fn take(&mut self, moves: i128) -> i128 {
        self.now = (self.now + moves).max(self.latest - 1_000_000);
        self.latest = self.latest.max(self.now);
        self.now
    }
}

/// One step of a test: how the clock moves, what is asked, and by which limit.
#[derive(Clone, Debug)]
struct Step {
    moves: i128,
    cost: u64,
    limit: u64,
}

/// The clock stands still, moves a little, by about a period, by a lot, or back by up to a second.
fn moves(period: i128) -> impl Strategy<Value = i128> {
    prop_oneof![
        2 => Just(0),
        4 => 1..=period / 4 + 1,
        2 => 1..=period * 2,
        1 => period * 2..=period * 1_000,
        2 => -1_000_000_i128..0,
    ]
}

fn steps(period: Duration) -> impl Strategy<Value = Vec<Step>> {
    let limit = prop_oneof![4 => 1..=20_u64, 1 => 1..=3_000_u64];
    let step = (moves(micros(period)), prop_oneof![1 => Just(0), 8 => 1..=8_u64, 1 => 1..=3_000_u64], limit);
    // The limit changes now and then, not at each step.
    let changes = proptest::collection::vec((step, proptest::bool::weighted(0.15)), 1..120);
    changes.prop_map(|steps| {
        let mut limit = steps[0].0.2;
        steps
            .into_iter()
            .map(|((moves, cost, next), changes)| {
                limit = if changes { next } else { limit };
                Step { moves, cost, limit }
            })
            .collect()
    })
}

/// Periods whose ticks are a microsecond, and longer.
fn quotas() -> impl Strategy<Value = Quota> {
    let period = prop_oneof![
        Just(Duration::from_micros(7)),
        Just(Duration::from_millis(333)),
        Just(Duration::from_secs(1)),
        Just(Duration::from_secs(60)),
        Just(tower_quota::HOUR),
        Just(tower_quota::DAY),
    ];
    let refill = prop_oneof![1..=20_u64, 1..=60_000_000_u64];
    (period, 0..4_usize, refill).prop_map(|(period, algorithm, refill)| {
        match algorithm {
            0 => Quota::fixed_window(1, period),
            1 => Quota::aligned_window(1, period),
            2 => Quota::sliding_window(1, period),
            _ => Quota::token_bucket(1, refill, period),
        }
        .unwrap()
    })
}

/// Failures are kept, and tried again first.
fn config() -> ProptestConfig {
    let kept = FileFailurePersistence::Direct("engine/exactness.failures");
    ProptestConfig { cases: 2_000, failure_persistence: Some(Box::new(kept)), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn decisions_are_the_exact_models(
        (quota, steps) in quotas().prop_flat_map(|quota| (Just(quota), steps(quota.period()))),
    ) {
        let clock = FakeClock::new();
        let group = Group::new("model", MemoryStore::with_clock(clock.clone())).unwrap();
        let axis = group.per_key("axis", quota).build().unwrap();
        let meter = Meter::new(axis.by(|(): &()| Key::from("a")));
        let (mut model, mut time) = (Model::new(&quota), Steps::new());

        for Step { moves, cost, limit } in steps {
            let now = time.take(moves);
            clock.set(Duration::from_micros(u64::try_from(now).unwrap()));
            let quota = quota.with_limit(limit).unwrap();
            axis.set_quota(quota).unwrap();
            let asked = meter.ask(&(), cost).answered().unwrap();

            if cost > limit {
                prop_assert!(matches!(asked, Err(ChargeError::Never(_))));
                continue;
            }
            let fits = cost == 0 || model.fits(&quota, now, cost);
            match asked {
                Ok(verdict) => {
                    prop_assert!(fits, "admitted {cost} of {limit} with {} used", model.used(&quota, now));
                    if cost > 0 {
                        model.charge(&quota, now, cost);
                    }
                    prop_assert_eq!(i128::from(verdict.reports()[0].used()), model.used(&quota, now));
                    let reset = micros(verdict.reports()[0].reset());
                    prop_assert_eq!(model.used(&quota, now + reset), 0, "the reset is too short");
                }
                Err(ChargeError::Refused(verdict)) => {
                    prop_assert!(!fits, "refused {cost} of {limit} with {} used", model.used(&quota, now));
                    prop_assert_eq!(i128::from(verdict.reports()[0].used()), model.used(&quota, now));
                    let fits_at = now + micros(verdict.wait());
                    prop_assert!(model.fits(&quota, fits_at, cost), "the wait is too short");
                    prop_assert!(!model.fits(&quota, fits_at - 1, cost), "the wait is too long");
                }
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
    }

    /// How far into a tick a bucket is, is counted in parts of the refill, so a change of refill moves it by less than one.
    #[test]
    fn a_bucket_whose_refill_changes_is_off_by_less_than_a_tick_for_each_change(
        refills in proptest::collection::vec((1..=1_000_u64, 0..200_000_i128, 1..=5_u64), 1..100),
    ) {
        let period = Duration::from_secs(1);
        let quota = |refill| Quota::token_bucket(20, refill, period).unwrap();
        let clock = FakeClock::new();
        let group = Group::new("model", MemoryStore::with_clock(clock.clone())).unwrap();
        let axis = group.per_key("axis", quota(1)).build().unwrap();
        let meter = Meter::new(axis.by(|(): &()| Key::from("a")));
        let (mut model, mut now) = (Model::new(&quota(1)), START);

        for (changes, (refill, moves, cost)) in (1..).zip(refills) {
            axis.set_quota(quota(refill)).unwrap();
            now += moves;
            clock.set(Duration::from_micros(u64::try_from(now).unwrap()));
            // A model that knows the time to a tick for each change so far.
            let later = model.fits(&quota(refill), now + changes, cost);
            let earlier = model.fits(&quota(refill), now - changes, cost);
            match meter.ask(&(), cost).answered().unwrap() {
                Ok(_) => {
                    prop_assert!(later, "paid more than a tick a change");
                    model.charge(&quota(refill), now, cost);
                }
                Err(ChargeError::Refused(_)) => prop_assert!(!earlier, "lost more than a tick a change"),
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
    }
}

/// The wait of a sliding window or a bucket whose tick is longer than a microsecond ends with a tick.
#[test]
fn a_wait_in_long_ticks_is_enough_and_no_tick_too_long() {
    let tick = Duration::from_millis(1); // of a day
    for quota in [Quota::per_day(7), Quota::token_bucket(7, 7, Duration::from_secs(86_400))] {
        let (group, clock) = crate::support::group();
        let meter = crate::support::by_name(&group.per_key("axis", quota).build().unwrap());
        for _ in 0..7 {
            crate::support::try_charge(&meter, "a", 1).unwrap();
            clock.advance(Duration::from_micros(123_456_789));
        }
        let wait = crate::support::try_charge(&meter, "a", 1).unwrap_err();
        clock.advance(wait - tick);
        assert_eq!(crate::support::try_charge(&meter, "a", 1), Err(tick));
        clock.advance(tick);
        assert_eq!(crate::support::try_charge(&meter, "a", 1), Ok(()));
    }
}

/// One step on two axes.
fn pair_steps() -> impl Strategy<Value = Vec<(i128, String, u64, u64, u64)>> {
    let who = prop_oneof![Just("alice"), Just("bob")].prop_map(str::to_owned);
    let limit = || prop_oneof![8 => 1..=20_u64, 1 => Just(0)];
    proptest::collection::vec((moves(1_000_000), who, 0..=6_u64, limit(), limit()), 1..150)
}

fn any_algorithm() -> impl Strategy<Value = Quota> {
    prop_oneof![Just("fixed 9/s"), Just("aligned 9/s"), Just("9/s"), Just("bucket 9 7/s")]
        .prop_map(|text| text.parse().unwrap())
}

proptest! {
    #![proptest_config(config())]

    /// The quick way to ask of an account and a capacity decides as the long one, watermarks included.
    #[test]
    fn asking_and_charging_come_to_the_same(
        (account, capacity) in (any_algorithm(), any_algorithm()),
        steps in pair_steps(),
    ) {
        let clock = FakeClock::new();
        let both = ["asked", "charged"].map(|name| {
            let (sender, events) = std::sync::mpsc::channel();
            let watermark = tower_quota::Watermark::percent(66).notify(move |event| sender.send(event.episode).unwrap());
            let group = Group::new(name, MemoryStore::with_clock(clock.clone())).unwrap();
            let account = group.per_key("account", account).build().unwrap();
            let capacity = group.shared("capacity", capacity).watermark(watermark).build().unwrap();
            let meter = Meter::new(account.by(|name: &String| Key::from(name))).and(&capacity).unwrap();
            (meter, account, capacity, events)
        });
        let mut time = Steps::new();
        for (moves, who, cost, account_limit, capacity_limit) in steps {
            let now = time.take(moves);
            clock.set(Duration::from_micros(u64::try_from(now).unwrap()));
            for (_, account, capacity, _) in &both {
                account.set_quota(account.quota().with_limit(account_limit)).unwrap();
                capacity.set_quota(capacity.quota().with_limit(capacity_limit)).unwrap();
            }
            let numbers = |outcome: Result<tower_quota::Verdict, ChargeError>| {
                let (kind, verdict) = match outcome {
                    Ok(verdict) => (0, verdict),
                    Err(ChargeError::Refused(verdict)) => (1, *verdict),
                    Err(ChargeError::Never(verdict)) => (2, *verdict),
                    Err(error) => panic!("{error}"),
                };
                let of = |r: &tower_quota::Report| (r.limit(), r.period(), r.used(), r.wait(), r.reset(), r.is_above_watermark());
                (kind, verdict.reports().iter().map(of).collect::<Vec<_>>())
            };
            let asked = both[0].0.ask(&who, cost).answered().unwrap();
            let charged = crate::support::now(both[1].0.charge(&who, cost).into_future());
            prop_assert_eq!(numbers(asked), numbers(charged));
        }
        let episodes = both.map(|(meter, account, capacity, events)| {
            drop((meter, account, capacity));
            events.iter().collect::<Vec<_>>()
        });
        prop_assert_eq!(&episodes[0], &episodes[1]);
    }
}
