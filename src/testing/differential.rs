//! A store beside the memory store, on one clock, asked the same at random.

use std::sync::Arc;
use std::time::Duration;

use super::clock::FakeClock;
use super::random::Random;
use crate::algorithm::{Ending, Outcome};
use crate::axis::{AxisCore, PerKeyAxis, SharedAxis};
use crate::call_end::CallEnd;
use crate::clock::Clock;
use crate::cost::Cost;
use crate::group::Group;
use crate::key::Key;
use crate::meter::Meter;
use crate::question::{Owner, Question};
use crate::quota::{Algorithm, DAY, HOUR, MINUTE, Quota, SECOND};
use crate::store::{MemoryStore, Store, StoreError};
use crate::verdict::Verdict;
use crate::watermark::Watermark;

/// Asks a store and a [`MemoryStore`], both on one clock, the same `steps` times, and holds every verdict, report and
/// error of the one to the other's.
///
/// What is asked is random, and the same for the same seed: over one to six axes of all algorithms, of several keys, with
/// costs that fit, do not fit and never fit, while limits change and the clock moves on, by little and by much, and back;
/// some of it is settled later, if the store settles charges at all. If it keeps the attempts and failures of cooldowns,
/// these are among the axes of every other seed or so, and calls end well and badly, late, twice and never.
///
/// # Panics
///
/// With the seed and the step, if the two differ.
pub async fn differential<S: Store>(make: impl Fn(FakeClock) -> S, seed: u64, steps: u64) {
    let mut random = Random::new(seed);
    let clock = FakeClock::new();
    let (store, memory) = (Arc::new(make(clock.clone())), Arc::new(MemoryStore::with_clock(clock.clone())));
    let counts_calls = random.once_in(2) && keeps_calls(&store).await;
    let any_axis = |random: &mut Random| match random.below(3) {
        0 if counts_calls => any_cooldown(random),
        _ => any_quota(random),
    };
    let quotas: Vec<Quota> = (0..=random.below(5)).map(|_| any_axis(&mut random)).collect();
    // Labels are the same in both, so that reports can be compared.
    let name = super::conformance::unique_name();
    let mut given = Side::new(&name, store, &quotas);
    let mut memory = Side::new(&name, memory, &quotas);
    let mut latest = clock.now();
    let cooldowns: Vec<usize> = (0..quotas.len()).filter(|axis| is_cooldown(quotas[*axis])).collect();
    // What is counted by a cooldown is not settled.
    let settles =
        cooldowns.is_empty() && given.meter.reserve(&0, 0).await.expect("a look is admitted").settle(0).await.is_ok();
    let (mut reserved, mut calls) = (Vec::new(), Vec::new());

    for step in 0..steps {
        let at = At { seed, step, quotas: &quotas };
        move_clock(&mut random, &clock, &mut latest);
        if random.once_in(8) {
            let axis = index(random.below(quotas.len() as u64));
            let before = given.axes[axis].core().quota();
            if is_cooldown(before) {
                let rule = other_rule(&mut random, before);
                change_rule(&mut given, &mut memory, axis, rule, at).await;
            } else {
                let quota = other_rate(&mut random, before);
                given.set_quota(axis, quota);
                memory.set_quota(axis, quota);
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
                    assert_eq!(given.verdict(), memory.verdict(), "{at:?}");
                    reserved.push((given, memory));
                }
                (given, memory) => assert_eq!(given.err(), memory.err(), "{at:?}"),
            }
        }
        if random.once_in(6) && !reserved.is_empty() {
            let (given, memory) = reserved.swap_remove(index(random.below(reserved.len() as u64)));
            let worth = any_cost(&mut random);
            let told = (given.settle(worth).await, memory.settle(worth).await);
            assert_eq!(told.0, told.1, "{at:?}, worth {worth}");
        }
        let (given_cost, memory_cost) = (given.cost(cost, other), memory.cost(cost, other));
        if !cooldowns.is_empty() && random.once_in(3) {
            let call = Call { key, number: FIRST_CALL + step, cost: given_cost.clone(), charged_at: 0 };
            let begun = (given.begin(&call).await, memory.begin(&call).await);
            assert_eq!(begun.0, begun.1, "{at:?}, {call:?}");
            if let Some(verdict) = begun.0.ok().filter(Verdict::is_admitted) {
                calls.push(Call { charged_at: verdict.decided_at_micros(), ..call });
            }
        }
        if !cooldowns.is_empty() && random.once_in(3) {
            let axis = *random.one_of(&cooldowns);
            let (key, ending) = any_end(&mut random, &mut calls, given.axes[axis].core());
            let told = (given.end(axis, key, ending).await, memory.end(axis, key, ending).await);
            assert_eq!(told.0, told.1, "{at:?}, {ending:?}");
            look_at_both(&given, &memory, axis, key, at).await;
        }
        // Calls that are told of later have no id.
        let request = (cooldowns.is_empty() && random.once_in(10)).then(|| random.below(20));
        let answers = (given.ask(key, &given_cost, request).await, memory.ask(key, &memory_cost, request).await);
        assert_eq!(answers.0, answers.1, "{at:?}, cost {cost}");
    }
}

/// Where two stores differ.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "told in a panic")]
struct At<'q> {
    seed: u64,
    step: u64,
    quotas: &'q [Quota],
}

/// How many keys are asked about.
const KEYS: u64 = 3;
/// Numbers of calls go on from here.
const FIRST_CALL: u64 = 1 << 51;

#[expect(clippy::cast_possible_truncation, reason = "an index")]
fn index(number: u64) -> usize {
    number as usize
}

/// Whether a store keeps the attempts and failures of cooldowns.
async fn keeps_calls<S: Store>(store: &Arc<S>) -> bool {
    let attempts = Quota::then_rest(Algorithm::Attempts, 1, SECOND, SECOND).expect("the quota is valid");
    let side = Side::new(&super::conformance::unique_name(), Arc::clone(store), &[attempts]);
    side.end(0, 0, Ending { outcome: Outcome::Ended, call: 0, units: 0, charged_at: 0, rest_at_least: 0 }).await.is_ok()
}

/// Where one counter stands, in both.
async fn look_at_both<S: Store>(
    given: &Side<S>,
    memory: &Side<MemoryStore>,
    axis: usize,
    key: u64,
    at: At<'_>,
) -> Verdict {
    let looks = (given.look(axis, key).await, memory.look(axis, key).await);
    assert_eq!(looks.0, looks.1, "{at:?}, a look at axis {axis}");
    looks.0.expect("the store answers")
}

/// Judges by another rule. What is fresh by the earlier one may have been forgotten, and counts by neither; what is not is
/// asked about, so that it is kept for as long as the new one says.
async fn change_rule<S: Store>(
    given: &mut Side<S>,
    memory: &mut Side<MemoryStore>,
    axis: usize,
    rule: Quota,
    at: At<'_>,
) {
    for key in 0..KEYS {
        let look = look_at_both(given, memory, axis, key, at).await;
        if look.reports()[0].reset().is_zero() {
            given.reset(axis, key).await;
            memory.reset(axis, key).await;
        }
    }
    given.set_quota(axis, rule);
    memory.set_quota(axis, rule);
    for key in 0..KEYS {
        look_at_both(given, memory, axis, key, at).await;
    }
}

/// A call that was charged, and may end later.
#[derive(Clone, Debug)]
struct Call {
    key: u64,
    number: u64,
    cost: Cost,
    /// In microseconds.
    charged_at: u64,
}

/// The end of some call, as an axis is told it; or of none, as of one that does not fit, or of a pause.
fn any_end(random: &mut Random, calls: &mut Vec<Call>, axis: &AxisCore) -> (u64, Ending) {
    let outcome = *random.one_of(&[Outcome::Ended, Outcome::Cleared, Outcome::Uncounted, Outcome::DoesNotFit]);
    let rest_at_least = match random.below(4) {
        0 => random.below(2_000_000),
        1 => random.below(20 * 60_000_000),
        _ => 0,
    };
    let none = Ending { outcome, call: 0, units: 0, charged_at: 0, rest_at_least };
    if calls.is_empty() || random.once_in(6) {
        return (random.below(KEYS), none);
    }
    let at = index(random.below(calls.len() as u64));
    // Some are told again.
    let call = if random.once_in(4) { calls[at].clone() } else { calls.swap_remove(at) };
    let Call { key, number, cost, charged_at } = call;
    (key, Ending { call: number, units: cost.for_axis(axis.label), charged_at, ..none })
}

/// One of the two stores, and what is asked of it.
struct Side<S> {
    store: Arc<S>,
    axes: Vec<AnyAxis>,
    meter: Meter<u64>,
}

enum AnyAxis {
    PerKey(PerKeyAxis),
    Shared(SharedAxis),
}

impl AnyAxis {
    fn core(&self) -> &AxisCore {
        match self {
            Self::PerKey(axis) => axis.core(),
            Self::Shared(axis) => axis.core(),
        }
    }

    fn owner(&self, key: u64) -> Owner {
        match self {
            Self::PerKey(_) => Owner::Key(Key::from(key)),
            Self::Shared(_) => Owner::Everybody,
        }
    }
}

impl<S: Store> Side<S> {
    fn new(name: &str, store: Arc<S>, quotas: &[Quota]) -> Self {
        let group = Group::new(name, Arc::clone(&store)).expect("the name is valid");
        let axis = |(index, quota): (usize, &Quota)| {
            let name = format!("axis-{index}");
            // The first is per key, so that there is always one to reset; and a cooldown is.
            if index % 2 == 0 || is_cooldown(*quota) {
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
        Self { store, axes, meter }
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

    /// Charges a call whose end is told later.
    async fn begin(&self, call: &Call) -> Result<Verdict, StoreError> {
        let owners: Vec<Owner> = self.axes.iter().map(|axis| axis.owner(call.key)).collect();
        let demands = self.axes.iter().map(AnyAxis::core).zip(&owners);
        let demands = demands.map(|(axis, owner)| axis.demand(owner, None, call.cost.for_axis(axis.label)));
        self.store.decide(&Question::new(demands).of_call(call.number)).wait().await
    }

    async fn end(&self, axis: usize, key: u64, ending: Ending) -> Result<(), StoreError> {
        let (core, owner) = (self.axes[axis].core(), self.axes[axis].owner(key));
        self.store.end(&CallEnd { demand: core.demand(&owner, None, ending.units), ending }).wait().await
    }

    /// Where one counter stands.
    async fn look(&self, axis: usize, key: u64) -> Result<Verdict, StoreError> {
        let (core, owner) = (self.axes[axis].core(), self.axes[axis].owner(key));
        self.store.decide(&Question::new([core.demand(&owner, None, 0)].into_iter())).wait().await
    }

    async fn ask(
        &self,
        key: u64,
        cost: &Cost,
        request: Option<u64>,
    ) -> Result<Verdict, crate::charge_error::ChargeError> {
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

fn is_cooldown(quota: Quota) -> bool {
    matches!(quota.algorithm(), Algorithm::Attempts | Algorithm::Failures)
}

fn any_cooldown(random: &mut Random) -> Quota {
    let algorithm = *random.one_of(&[Algorithm::Attempts, Algorithm::Failures]);
    let rest = Duration::from_micros(*random.one_of(&[7, 333_000, 60_000_000, 3_600_000_000]));
    Quota::then_rest(algorithm, 1 + random.below(10), rest, any_span(random)).expect("the quota is valid")
}

/// A lease, or a time within which failures count.
fn any_span(random: &mut Random) -> Duration {
    *random.one_of(&[Duration::from_millis(1), Duration::from_millis(900), MINUTE, HOUR, DAY])
}

/// Another limit, rest or span for the same counter.
fn other_rule(random: &mut Random, quota: Quota) -> Quota {
    let limit = if random.once_in(10) { 0 } else { 1 + random.below(15) };
    let rest = if random.once_in(3) { Duration::from_millis(1 + random.below(120_000)) } else { quota.period() };
    let span = if random.once_in(3) { any_span(random) } else { quota.span() };
    Quota::then_rest(quota.algorithm(), limit, rest, span).expect("the quota is valid")
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
