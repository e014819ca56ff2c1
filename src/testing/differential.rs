//! A store beside the memory store, on one clock, asked the same at random.

use std::time::Duration;

use super::clock::FakeClock;
use super::random::Random;
use crate::axis::{PerKeyAxis, SharedAxis};
use crate::clock::Clock;
use crate::cost::Cost;
use crate::group::Group;
use crate::key::Key;
use crate::meter::Meter;
use crate::quota::{DAY, HOUR, Quota, SECOND};
use crate::store::{MemoryStore, Store};
use crate::watermark::Watermark;

/// Asks a store and a [`MemoryStore`], both on one clock, the same `steps` times, and holds every verdict, report and
/// error of the one to the other's.
///
/// What is asked is random, and the same for the same seed: over one to six axes of all algorithms, of several keys, with
/// costs that fit, do not fit and never fit, while limits change and the clock moves on, by little and by much, and back;
/// some of it is settled later, if the store settles charges at all.
///
/// # Panics
///
/// With the seed and the step, if the two differ.
pub async fn differential<S: Store>(make: impl Fn(FakeClock) -> S, seed: u64, steps: u64) {
    let mut random = Random::new(seed);
    let clock = FakeClock::new();
    let quotas: Vec<Quota> = (0..=random.below(5)).map(|_| any_quota(&mut random)).collect();
    // Labels are the same in both, so that reports can be compared.
    let name = super::conformance::unique_name();
    let mut given = Side::new(&name, make(clock.clone()), &quotas);
    let mut memory = Side::new(&name, MemoryStore::with_clock(clock.clone()), &quotas);
    let mut latest = clock.now();
    let settles = given.meter.reserve(&0, 0).await.expect("a look is admitted").settle(0).await.is_ok();
    let mut reserved = Vec::new();

    for step in 0..steps {
        move_clock(&mut random, &clock, &mut latest);
        if random.once_in(8) {
            let axis = random.below(quotas.len() as u64);
            let quota = other_rate(&mut random, given.axes[index(axis)].quota());
            for side in [&mut given, &mut memory] {
                side.set_quota(index(axis), quota);
            }
            // By a refill that is lower than that of now, a counter may have been forgotten.
            reserved.clear();
        }
        if random.once_in(100) {
            let (axis, key) = (index(random.below(quotas.len() as u64)), random.below(KEYS));
            given.reset(axis, key).await;
            memory.reset(axis, key).await;
        }
        let (key, cost) = (random.below(KEYS), any_cost(&mut random));
        let other = random.once_in(4).then(|| (index(random.below(quotas.len() as u64)), any_cost(&mut random)));
        if settles && random.once_in(6) {
            let cost = any_cost(&mut random);
            let both = (given.meter.reserve(&key, cost).await, memory.meter.reserve(&key, cost).await);
            match both {
                (Ok(given), Ok(memory)) => {
                    assert_eq!(given.verdict(), memory.verdict(), "seed {seed}, step {step}, quotas {quotas:?}");
                    reserved.push((given, memory));
                }
                (given, memory) => assert_eq!(given.err(), memory.err(), "seed {seed}, step {step}, quotas {quotas:?}"),
            }
        }
        if random.once_in(6) && !reserved.is_empty() {
            let (given, memory) = reserved.swap_remove(index(random.below(reserved.len() as u64)));
            let worth = any_cost(&mut random);
            let told = (given.settle(worth).await, memory.settle(worth).await);
            assert_eq!(told.0, told.1, "seed {seed}, step {step}, worth {worth}, quotas {quotas:?}");
        }
        let request = random.once_in(10).then(|| random.below(20));
        let (given_cost, memory_cost) = (given.cost(cost, other), memory.cost(cost, other));
        let answers = (given.ask(key, &given_cost, request).await, memory.ask(key, &memory_cost, request).await);
        assert_eq!(answers.0, answers.1, "seed {seed}, step {step}, cost {cost}, quotas {quotas:?}");
    }
}

/// How many keys are asked about.
const KEYS: u64 = 3;

#[expect(clippy::cast_possible_truncation, reason = "an index")]
fn index(number: u64) -> usize {
    number as usize
}

/// One of the two stores, and what is asked of it.
struct Side {
    axes: Vec<AnyAxis>,
    meter: Meter<u64>,
}

enum AnyAxis {
    PerKey(PerKeyAxis),
    Shared(SharedAxis),
}

impl AnyAxis {
    fn quota(&self) -> Quota {
        match self {
            Self::PerKey(axis) => axis.quota(),
            Self::Shared(axis) => axis.quota(),
        }
    }
}

impl Side {
    fn new(name: &str, store: impl Store, quotas: &[Quota]) -> Self {
        let group = Group::new(name, store).expect("the name is valid");
        let axis = |(index, quota): (usize, &Quota)| {
            let name = format!("axis-{index}");
            // The first is per key, so that there is always one to reset.
            if index % 2 == 0 {
                AnyAxis::PerKey(group.per_key(&name, *quota).build().expect("the axis is valid"))
            } else {
                let watermark = Watermark::percent(60).cleared_at(30).notify(|_| {});
                AnyAxis::Shared(group.shared(&name, *quota).watermark(watermark).build().expect("the axis is valid"))
            }
        };
        let axes: Vec<_> = quotas.iter().enumerate().map(axis).collect();
        let mut measures = axes.iter().map(|axis| match axis {
            AnyAxis::PerKey(axis) => axis.by(|key: &u64| Key::from(*key)),
            AnyAxis::Shared(axis) => axis.into(),
        });
        let first = Meter::new(measures.next().expect("there is a first axis"));
        let meter = measures.try_fold(first, Meter::and).expect("the axes are of one group");
        Self { axes, meter }
    }

    fn set_quota(&mut self, axis: usize, quota: Quota) {
        match &self.axes[axis] {
            AnyAxis::PerKey(axis) => axis.set_quota(quota),
            AnyAxis::Shared(axis) => axis.set_quota(quota),
        }
        .expect("the quota is valid");
    }

    async fn reset(&self, axis: usize, key: u64) {
        match &self.axes[axis] {
            AnyAxis::PerKey(axis) => axis.reset(&Key::from(key)).await,
            AnyAxis::Shared(axis) => axis.reset().await,
        }
        .expect("the store answers");
    }

    fn cost(&self, units: u64, other: Option<(usize, u64)>) -> Cost {
        let cost = Cost::units(units);
        match other.map(|(axis, units)| (&self.axes[axis], units)) {
            Some((AnyAxis::PerKey(axis), units)) => cost.on(axis, units),
            Some((AnyAxis::Shared(axis), units)) => cost.on(axis, units),
            None => cost,
        }
    }

    async fn ask(
        &self,
        key: u64,
        cost: &Cost,
        request: Option<u64>,
    ) -> Result<crate::verdict::Verdict, crate::charge_error::ChargeError> {
        let mut charge = self.meter.charge(&key, cost.clone());
        if let Some(request) = request {
            charge = charge.request_id(request.to_be_bytes());
        }
        charge.await
    }
}

fn any_quota(random: &mut Random) -> Quota {
    let micros = [7, 333_000, 1_000_000, 60_000_000];
    let period =
        if random.once_in(3) { *random.one_of(&[HOUR, DAY]) } else { Duration::from_micros(*random.one_of(&micros)) };
    let limit = 1 + random.below(20);
    match random.below(4) {
        0 => Quota::fixed_window(limit, period),
        1 => Quota::aligned_window(limit, period),
        2 => Quota::sliding_window(limit, period),
        _ => Quota::token_bucket(limit, any_refill(random), period),
    }
    .expect("the quota is valid")
}

fn any_refill(random: &mut Random) -> u64 {
    if random.once_in(3) { 1 + random.below(60_000_000) } else { 1 + random.below(20) }
}

/// Another limit or refill for the same counter. A refill is only raised: when it is lowered, a store may have forgotten
/// a counter by then that was full by the earlier refill.
fn other_rate(random: &mut Random, quota: Quota) -> Quota {
    let limit = match random.below(10) {
        0 => 0,
        1 => random.below(1 << 26),
        _ => 1 + random.below(30),
    };
    let changed = if quota.refill() > 0 {
        Quota::token_bucket(limit, any_refill(random).max(quota.refill().into()), quota.period())
    } else {
        quota.with_limit(limit)
    };
    // A bucket that would take too long to fill stays as it is.
    changed.unwrap_or(quota)
}

fn any_cost(random: &mut Random) -> u64 {
    match random.below(10) {
        0 => 0,
        1 => random.below(3_000),
        _ => 1 + random.below(6),
    }
}

/// On by nothing, by little, by much, or back by up to a second behind the latest time.
fn move_clock(random: &mut Random, clock: &FakeClock, latest: &mut Duration) {
    let now = clock.now();
    let moved = match random.below(10) {
        0..=2 => now,
        3..=5 => now + Duration::from_micros(random.below(1_000_000)),
        6 => now + Duration::from_micros(random.below(100)),
        7 => now + Duration::from_secs(random.below(3_600)),
        8 if random.once_in(20) => now + Duration::from_secs(random.below(3 * 86_400)),
        8 => now + Duration::from_millis(random.below(60_000)),
        _ => now.saturating_sub(Duration::from_micros(random.below(1_000_000))),
    };
    clock.set(moved.max(latest.saturating_sub(SECOND)));
    *latest = clock.now().max(*latest);
}
