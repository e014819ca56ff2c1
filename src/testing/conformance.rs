//! What every store promises, check by check.

#![allow(clippy::unchecked_time_subtraction, reason = "a check that panics has failed")]

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use super::clock::FakeClock;
use super::random::Random;
use crate::axis::{PerKeyAxis, SharedAxis};
use crate::charge_error::ChargeError;
use crate::cost::Cost;
use crate::group::Group;
use crate::key::Key;
use crate::measure::MissingKey;
use crate::meter::Meter;
use crate::quota::{DAY, HOUR, MINUTE, Quota, SECOND};
use crate::store::Store;
use crate::verdict::Verdict;
use crate::watermark::Watermark;

/// Holds a store to the contract: decisions that are atomic over all axes, refusals that change nothing, waits that are
/// enough and not too long, limits that are arguments, counters that are told apart, a clock that never pays twice,
/// requests that are charged once.
///
/// `make` makes a store on the clock that it is given; it may be called several times, and may return stores that share
/// their counters. The checks use groups of names that nobody else uses.
///
/// # Panics
///
/// At the first promise that is broken, with a sentence that says which.
pub async fn conformance<S: Store>(make: impl Fn(FakeClock) -> S) {
    let room = || room(&make);
    room().a_refusal_charges_no_axis().await;
    room().the_first_axis_that_refuses_gives_the_answer().await;
    room().what_never_fits_is_told_from_what_is_closed().await;
    room().a_look_changes_nothing().await;
    for quota in every_quota() {
        room().a_wait_is_enough_and_no_tick_too_long(quota).await;
        room().a_limit_is_an_argument(quota).await;
        room().a_clock_that_steps_back_pays_nothing_twice(quota).await;
        room().a_reset_forgets_one_counter(quota).await;
        room().charges_at_the_same_time_never_pass_the_limit(quota).await;
    }
    room().counters_are_told_apart().await;
    room().usage_above_a_watermark_is_reported().await;
    room().a_request_with_an_id_is_charged_once().await;
    room().many_axes_are_decided_in_one_step().await;
}

/// A group that nobody else uses, on a clock of its own.
pub(super) fn room<S: Store>(make: impl Fn(FakeClock) -> S) -> Room {
    let clock = FakeClock::new();
    let group = Group::new(&unique_name(), make(clock.clone())).expect("the name is valid");
    Room { group, clock }
}

/// A name that no other run uses, be it over the same counters.
pub(super) fn unique_name() -> String {
    use std::hash::{BuildHasher, Hasher};
    let random = std::hash::RandomState::new().build_hasher().finish();
    format!("check-{random:016x}")
}

/// One of each algorithm, of limit 10.
pub(super) fn every_quota() -> [Quota; 6] {
    [
        Quota::fixed_window(10, HOUR),
        Quota::aligned_window(10, MINUTE),
        Quota::sliding_window(10, SECOND),
        Quota::sliding_window(10, DAY),
        Quota::token_bucket(10, 3, SECOND),
        Quota::token_bucket(10, 7, DAY),
    ]
    .map(|quota| quota.expect("the quota is valid"))
}

/// A group of its own, and its clock.
pub(super) struct Room {
    group: Group,
    pub(super) clock: FakeClock,
}

impl Room {
    pub(super) fn per_key(
        &self,
        name: &str,
        quota: impl TryInto<Quota, Error: Into<crate::ConfigError>>,
    ) -> PerKeyAxis {
        self.group.per_key(name, quota).build().expect("the axis is valid")
    }

    pub(super) fn shared(&self, name: &str, quota: impl TryInto<Quota, Error: Into<crate::ConfigError>>) -> SharedAxis {
        self.group.shared(name, quota).build().expect("the axis is valid")
    }

    async fn a_refusal_charges_no_axis(self) {
        let (user, org, all) =
            (self.per_key("user", "fixed 5/m"), self.shared("org", "10/m"), self.shared("all", "20/m"));
        let meter = by_name(&user).and(&org).and_then(|meter| meter.and(&all)).expect("the axes are of one group");
        for _ in 0..5 {
            admitted(&meter, "a", 1).await;
        }
        for _ in 0..3 {
            assert_eq!(refused(&meter, "a", 1).await.refused_by().map(crate::Report::axis), Some("user"));
        }
        assert_eq!(used(&meter, "a").await, [5, 5, 5], "a refusal has charged some axis");
        for _ in 0..5 {
            admitted(&meter, "b", 1).await;
        }
        assert_eq!(used(&meter, "b").await, [5, 10, 10]);
        for units in [3, 6] {
            refused(&meter, "c", Cost::units(units.min(5)).on(&org, units)).await;
        }
        assert_eq!(used(&meter, "c").await, [0, 10, 10], "a refusal of a later axis has charged an earlier one");
    }

    async fn the_first_axis_that_refuses_gives_the_answer(self) {
        let (first, second) = (self.shared("first", "fixed 1/m"), self.shared("second", "fixed 1/h"));
        let meter: Meter<str> = Meter::new(&first).and(&second).expect("the axes are of one group");
        admitted(&meter, "", 1).await;
        let verdict = refused(&meter, "", 1).await;
        assert_eq!(verdict.refused_by().map(crate::Report::axis), Some("first"));
        assert_eq!(verdict.wait(), HOUR, "the wait is the longest of all axes that refuse");
        self.clock.advance(MINUTE);
        let verdict = refused(&meter, "", 1).await;
        assert_eq!(verdict.refused_by().map(crate::Report::axis), Some("second"));
        assert_eq!(verdict.wait(), HOUR - MINUTE);
    }

    async fn what_never_fits_is_told_from_what_is_closed(self) {
        let (open, closed) = (self.per_key("open", "fixed 10/h"), self.per_key("closed", "fixed 0/h"));
        let meter = by_name(&open);
        for units in [11, (1 << 32) + 1, u64::MAX] {
            let outcome = meter.charge("a", units).await;
            assert!(matches!(outcome, Err(ChargeError::Never(_))), "{units} of 10 never fit: {outcome:?}");
        }
        assert_eq!(used(&meter, "a").await, [0]);
        admitted(&meter, "a", 10).await;
        let both = by_name(&closed).and(open.by(|name: &str| Key::from(name))).expect("the axes are of one group");
        let verdict = refused(&both, "b", 1).await;
        assert!(verdict.reports()[0].is_closed() && verdict.wait() == MINUTE, "a closed axis has its own wait");
        assert_eq!(used(&both, "b").await, [0, 0]);
    }

    async fn a_look_changes_nothing(self) {
        let axis = self.per_key("axis", "fixed 2/h");
        let meter = by_name(&axis);
        for _ in 0..3 {
            assert_eq!(used(&meter, "a").await, [0]);
        }
        self.clock.advance(MINUTE);
        admitted(&meter, "a", 2).await;
        // The window starts with the charge, not with a look before it; and a full counter can be looked at.
        assert_eq!(refused(&meter, "a", 1).await.wait(), HOUR, "a look has started the window");
        assert_eq!(used(&meter, "a").await, [2]);
    }

    async fn a_wait_is_enough_and_no_tick_too_long(self, quota: Quota) {
        let axis = self.per_key("axis", quota);
        let meter = by_name(&axis);
        let tick = tick_of(&quota);
        for cost in [10, 4, 1, 7] {
            admitted_in_parts(&meter, 10, &self.clock, tick).await;
            let wait = refused(&meter, "a", cost).await.wait();
            assert!(wait > Duration::ZERO);
            self.clock.advance(wait - tick);
            let rest = refused(&meter, "a", cost).await.wait();
            assert!(rest <= tick, "{quota}: {cost} units should fit within a tick, but in {rest:?}");
            self.clock.advance(rest);
            admitted(&meter, "a", cost).await;
            self.clock.advance(quota.period() * 20);
            assert_eq!(used(&meter, "a").await, [0], "{quota}: it is fresh again");
        }
    }

    async fn a_limit_is_an_argument(self, quota: Quota) {
        let axis = self.per_key("axis", quota);
        let meter = by_name(&axis);
        let set = |limit| axis.set_quota(quota.with_limit(limit)).expect("the limit is valid");
        admitted(&meter, "a", 10).await;
        set(100);
        assert_eq!(used(&meter, "a").await, [10], "{quota}: a raised limit keeps what is used");
        admitted(&meter, "a", 90).await;
        refused(&meter, "a", 1).await;
        set(10);
        let verdict = refused(&meter, "a", 1).await;
        let report = verdict.reports()[0];
        assert_eq!((report.used(), report.remaining()), (100, 0));
        assert_eq!((report.limit(), report.period()), (10, quota.period()), "{quota}: what it was judged by");
        set(101);
        admitted(&meter, "a", 1).await;
    }

    async fn a_clock_that_steps_back_pays_nothing_twice(self, quota: Quota) {
        let axis = self.per_key("axis", quota);
        let meter = by_name(&axis);
        admitted(&meter, "a", 10).await;
        for _ in 0..50 {
            self.clock.advance(SECOND / 2);
            let later = used(&meter, "a").await;
            let outcome = meter.charge("a", 1).await;
            let now = crate::Clock::now(&self.clock);
            self.clock.set(now - SECOND / 2);
            // Charged, the counter stays where it is; else it is looked at as of then.
            if outcome.is_ok() {
                assert!(used(&meter, "a").await[0] > later[0], "{quota}: a step back has paid something");
            }
            self.clock.set(now);
            let charged = u64::from(outcome.is_ok());
            assert_eq!(used(&meter, "a").await[0], later[0] + charged, "{quota}: something was paid twice");
        }
    }

    async fn a_reset_forgets_one_counter(self, quota: Quota) {
        let (axis, all) = (self.per_key("axis", quota), self.shared("all", quota));
        let meter = by_name(&axis).and(&all).expect("the axes are of one group");
        admitted(&meter, "a", 4).await;
        admitted(&meter, "b", 3).await;
        axis.reset(&Key::from("a")).await.expect("the store answers");
        axis.reset(&Key::from("nobody")).await.expect("the store answers");
        assert_eq!((used(&meter, "a").await, used(&meter, "b").await), (vec![0, 7], vec![3, 7]));
        all.reset().await.expect("the store answers");
        assert_eq!(used(&meter, "b").await, [3, 0]);
    }

    async fn charges_at_the_same_time_never_pass_the_limit(self, quota: Quota) {
        let (axis, all) = (self.per_key("axis", quota), self.shared("all", quota));
        let meter = by_name(&axis).and(&all).expect("the axes are of one group");
        let names: Vec<String> = (0..60).map(|number| format!("{}", number % 3)).collect();
        let outcomes = join_all(names.iter().map(|name| meter.charge(&**name, 1).into_future())).await;
        let count = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(count, 10, "{quota}: so many of 60 charges at the same time were admitted");
        let mut each = 0;
        for name in ["0", "1", "2"] {
            each += used(&meter, name).await[0];
        }
        assert_eq!((each, used(&meter, "3").await[1]), (10, 10), "{quota}: both axes count the same charges");
    }

    async fn counters_are_told_apart(self) {
        let axis = self.per_key("axis", "fixed 5/h");
        let other = self.per_key("other", "fixed 5/h");
        let anonymous = MissingKey::Anonymous("fixed 5/h".parse().expect("the quota is valid"));
        let read = |name: &str| (!name.is_empty()).then(|| Key::from(name));
        let meter = Meter::new(axis.by(read).missing_key(anonymous));
        let names = ["a", "A", "ab", "a:b", "{a}", "}", "a\0", "all", "anonymous", "", "\u{e9}", &"x".repeat(1_000)];
        for (count, name) in names.iter().enumerate() {
            let units = 1 + count as u64 % 5;
            admitted(&meter, name, units).await;
        }
        for (count, name) in names.iter().enumerate() {
            assert_eq!(used(&meter, name).await, [1 + count as u64 % 5], "the counter of {name:?}");
        }
        assert_eq!(used(&by_name(&other), "a").await, [0], "another axis counts by itself");
        axis.set_quota("fixed 5/m").expect("the quota is valid");
        assert_eq!(used(&meter, "a").await, [0], "another period is another counter");
        axis.set_quota("5/h").expect("the quota is valid");
        assert_eq!(used(&meter, "a").await, [0], "another algorithm is another counter");
        axis.set_quota("fixed 7/h").expect("the quota is valid");
        assert_eq!(used(&meter, "a").await, [1], "another limit is the same counter");
    }

    async fn usage_above_a_watermark_is_reported(self) {
        let watermark = Watermark::percent(66).cleared_at(50).notify(|_| {});
        let quota = Quota::token_bucket(100, 1, SECOND).expect("the quota is valid");
        let axis = self.group.shared("axis", quota).watermark(watermark).build().expect("the axis is valid");
        let meter: Meter<str> = Meter::new(&axis);
        let expected = [(0, 65, false), (0, 1, true), (10, 0, true), (0, 100, true), (6, 0, false), (0, 1, false)];
        // Above from 66 on, until it is at 50 again.
        for (seconds, units, is_above) in expected {
            self.clock.advance(seconds * SECOND);
            let outcome = meter.charge("", units).await;
            let verdict = match &outcome {
                Ok(verdict) => verdict,
                Err(ChargeError::Refused(verdict)) => verdict,
                Err(error) => panic!("{error}"),
            };
            assert_eq!(verdict.reports()[0].is_above_watermark(), is_above, "{} used", verdict.reports()[0].used());
        }
    }

    async fn a_request_with_an_id_is_charged_once(self) {
        let (axis, all) = (self.per_key("axis", "fixed 10/h"), self.shared("all", "fixed 10/h"));
        let meter = by_name(&axis).and(&all).expect("the axes are of one group");
        let first = meter.charge("a", 4).request_id("one").await.expect("it fits");
        for _ in 0..5 {
            self.clock.advance(SECOND);
            let again = meter.charge("a", 4).request_id("one").await;
            assert_eq!(again.as_ref(), Ok(&first), "the same request has the same verdict");
        }
        assert_eq!(used(&meter, "a").await, [4, 4], "the same request is charged once");
        meter.charge("a", 4).request_id("two").await.expect("another request is another charge");
        meter.charge("b", 1).request_id("one").await.expect("another caller's request is another charge");
        meter.charge("a", 1).request_id("one").await.expect("another cost is another charge");
        assert_eq!((used(&meter, "a").await, used(&meter, "b").await), (vec![9, 10], vec![1, 10]));
        let refused = meter.charge("a", 1).request_id("three").await;
        assert!(matches!(refused, Err(ChargeError::Refused(_))));
        self.clock.advance(HOUR);
        meter.charge("a", 1).request_id("three").await.expect("a refusal is not remembered");
    }

    async fn many_axes_are_decided_in_one_step(self) {
        let mut random = Random::new(1);
        let axes: Vec<_> =
            (0..12).map(|index| self.shared(&format!("axis-{index}"), every_quota()[index % 6])).collect();
        let measures = axes[1..].iter();
        let meter: Meter<str> =
            measures.fold(Meter::new(&axes[0]), |meter, axis| meter.and(axis).expect("the axes are of one group"));
        for _ in 0..10 {
            admitted(&meter, "", 1).await;
        }
        let before = used(&meter, "").await;
        assert_eq!(before, [10; 12]);
        for _ in 0..20 {
            let axis = random.one_of(&axes);
            refused(&meter, "", Cost::units(0).on(axis, 1)).await;
        }
        assert_eq!(used(&meter, "").await, before);
    }
}

/// The time in which a quota counts.
fn tick_of(quota: &Quota) -> Duration {
    Duration::from_micros(quota.counted().tick.into())
}

pub(super) fn by_name(axis: &PerKeyAxis) -> Meter<str> {
    Meter::new(axis.by(|name: &str| Key::from(name)))
}

/// Charges so much of a fresh counter, a unit at a time, at times a little apart.
async fn admitted_in_parts(meter: &Meter<str>, units: u64, clock: &FakeClock, tick: Duration) {
    for _ in 0..units {
        admitted(meter, "a", 1).await;
        clock.advance(3 * tick);
    }
    while meter.charge("a", 1).await.is_ok() {}
}

pub(super) async fn admitted(meter: &Meter<str>, name: &str, cost: impl Into<Cost>) -> Verdict {
    match meter.charge(name, cost).await {
        Ok(verdict) if verdict.counted_by() == crate::CountedBy::Store => verdict,
        other => panic!("this charge fits, but the store said {other:?}"),
    }
}

pub(super) async fn refused(meter: &Meter<str>, name: &str, cost: impl Into<Cost>) -> Verdict {
    match meter.charge(name, cost).await {
        Err(ChargeError::Refused(verdict)) => *verdict,
        other => panic!("this charge does not fit, but the store said {other:?}"),
    }
}

pub(super) async fn used(meter: &Meter<str>, name: &str) -> Vec<u64> {
    let verdict = meter.charge(name, 0).await.expect("a look is admitted");
    verdict.reports().iter().map(crate::Report::used).collect()
}

/// All outputs, of futures that go on side by side.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut outputs = Vec::new();
    std::future::poll_fn(|context| {
        running.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Ready(output) => {
                outputs.push(output);
                false
            }
            Poll::Pending => true,
        });
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs
}
