//! Charges that turn out to be worth something else.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use tower_quota::testing::FakeClock;
use tower_quota::{
    ChargeError, Group, HOUR, Key, MINUTE, MemoryStore, Meter, OnStoreFailure, Quota, Reservation, SECOND,
};

use crate::support::{Counted, Log, SlowStore, by_name, group, now, try_charge, used};

fn reserve(meter: &Meter<str>, who: &str, cost: u64) -> Reservation {
    now(meter.reserve(who, cost).into_future()).unwrap()
}

fn settle(reservation: &Reservation, worth: u64) -> u64 {
    now(reservation.settle(worth)).unwrap().reports()[0].remaining()
}

fn of_limit(limit: u64) -> (Meter<str>, FakeClock) {
    let (group, clock) = group();
    (by_name(&group.per_key("balance", Quota::fixed_window(limit, HOUR)).build().unwrap()), clock)
}

#[test]
fn t52_a_second_settlement_changes_nothing() {
    let (meter, _clock) = of_limit(1_000);
    let reserved = reserve(&meter, "alice", 220);
    assert_eq!(reserved.verdict().reports()[0].remaining(), 780);
    assert_eq!(settle(&reserved, 55), 945);
    assert_eq!(settle(&reserved, 55), 945);
    assert_eq!(settle(&reserved, 0), 945, "the first counts");
    now(reserved.cancel()).unwrap();
    reserved.cancel_soon();
    assert_eq!(used(&meter, "alice"), [(55, 945)]);
}

#[test]
fn t52_settling_and_cancelling_at_once_is_one_of_both() {
    const ROUNDS: usize = 20_000;
    let (meter, _clock) = of_limit(1_000);
    let reserved: Vec<_> = (0..ROUNDS).map(|number| reserve(&meter, &number.to_string(), 220)).collect();
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        for worth in [55, 0] {
            let (reserved, barrier) = (&reserved, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for reserved in reserved {
                    settle(&reserved.clone(), worth);
                }
            });
        }
    });
    for number in 0..ROUNDS {
        let used = used(&meter, &number.to_string())[0].0;
        assert!(used == 55 || used == 0, "{used}");
    }
}

#[test]
fn t54_what_was_delivered_is_settled_and_what_was_not_comes_back() {
    let (meter, _clock) = of_limit(1_000);
    assert_eq!(settle(&reserve(&meter, "left-early", 300), 40), 960);
    // Never settled: it stays as it was charged.
    drop(reserve(&meter, "killed", 300));
    assert_eq!(used(&meter, "killed"), [(300, 700)]);
    // What is reserved counts.
    let admitted: Vec<_> = (0..10).filter_map(|_| now(meter.reserve("many", 300).into_future()).ok()).collect();
    assert_eq!(admitted.len(), 3);
}

#[test]
fn t54_an_overrun_is_paid_back_first() {
    let (group, clock) = group();
    let bucket = by_name(&group.per_key("tokens", Quota::token_bucket(1_000, 10, SECOND)).build().unwrap());
    assert_eq!(try_charge(&bucket, "alice", 600), Ok(()));
    let reserved = reserve(&bucket, "alice", 300);
    assert_eq!(settle(&reserved, 450), 0, "shown as nothing left");
    assert_eq!(used(&bucket, "alice"), [(1_050, 0)]);
    assert_eq!(try_charge(&bucket, "alice", 1), Err(Duration::from_millis(5_100)), "50 of debt, and 1 to spend");
    clock.advance(Duration::from_secs(5));
    assert_eq!(try_charge(&bucket, "alice", 1), Err(Duration::from_millis(100)));
    clock.advance(Duration::from_millis(100));
    assert_eq!(try_charge(&bucket, "alice", 1), Ok(()));
}

#[test]
fn a_window_that_is_gone_takes_nothing() {
    let (meter, clock) = of_limit(10);
    let reserved = reserve(&meter, "alice", 8);
    clock.advance(HOUR);
    assert_eq!(try_charge(&meter, "alice", 3), Ok(()));
    assert_eq!(settle(&reserved, 0), 7);
    // One whose counter is forgotten, either.
    let reserved = reserve(&meter, "bob", 8);
    clock.advance(10 * HOUR);
    for number in 0..1_000 {
        clock.advance(Duration::from_millis(20));
        try_charge(&meter, &number.to_string(), 1).unwrap();
    }
    assert_eq!(settle(&reserved, 0), 10);
    assert_eq!(settle(&reserve(&meter, "bob", 0), 4), 6, "what was worth more counts from now on");
}

#[test]
fn a_counter_that_is_given_back_whole_is_forgotten() {
    let clock = FakeClock::new();
    let group = Group::new("test", MemoryStore::with_clock(clock.clone()).max_states(10).unwrap()).unwrap();
    let meter = by_name(&group.per_key("axis", Quota::fixed_window(5, HOUR)).build().unwrap());
    for number in 0..100 {
        now(reserve(&meter, &number.to_string(), 1).cancel()).unwrap();
        clock.advance(SECOND);
    }
    // Nothing of a window is left that was given back.
    let reserved = reserve(&meter, "alice", 5);
    clock.advance(30 * MINUTE);
    now(reserved.cancel()).unwrap();
    assert_eq!(try_charge(&meter, "alice", 5), Ok(()));
    assert_eq!(try_charge(&meter, "alice", 1), Err(HOUR));
}

#[tokio::test]
async fn without_its_store_a_reservation_is_what_the_policy_makes_of_it() {
    let by_policy = |policy| {
        let group = Group::builder("test").on_store_failure(policy).build(SlowStore::failing()).unwrap();
        by_name(&group.per_key("axis", Quota::fixed_window(10, HOUR)).build().unwrap())
    };
    let open = by_policy(OnStoreFailure::Open);
    let reserved = open.reserve("alice", 7).await.unwrap();
    assert!(!reserved.verdict().was_counted());
    assert!(!reserved.cancel().await.unwrap().was_counted(), "nobody counted, and nothing is given back");

    let closed = by_policy(OnStoreFailure::Closed);
    assert!(matches!(closed.reserve("alice", 7).await, Err(ChargeError::Store(_))));

    // This process gives back what it has counted by its share.
    let local = by_policy(OnStoreFailure::Local { percent: 50 });
    let reserved = local.reserve("alice", 4).await.unwrap();
    assert!(matches!(local.charge("alice", 2).await, Err(ChargeError::Refused(_))));
    assert_eq!(reserved.settle(1).await.unwrap().reports()[0].remaining(), 4);
    assert_eq!(reserved.settle(0).await.unwrap().reports()[0].remaining(), 4);
    local.charge("alice", 4).await.unwrap();
}

#[test]
fn what_could_not_be_given_back_is_logged_and_counted() {
    let (log, counted) = (Log::start(), Counted::default());
    let _recorder = metrics::set_default_local_recorder(&counted);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let group = Group::new("test", SlowStore::new(FakeClock::new())).unwrap();
    let meter = by_name(&group.per_key("axis", Quota::fixed_window(10, HOUR)).build().unwrap());
    let reserved = runtime.block_on(meter.reserve("alice", 7).into_future()).unwrap();
    reserved.cancel_soon();
    let lines = log.lines("a charge was not given back");
    assert!(lines.len() == 1 && lines[0].contains("no tokio runtime") && !lines[0].contains("alice"), "{lines:?}");
    // Settled by then, if it was taken down or not: there is nothing to give back any more.
    reserved.cancel_soon();
    assert_eq!(counted.all(), [("tower_quota_unsettled_total group=test".to_owned(), 1)]);
}

/// What happens to a counter.
#[derive(Clone, Debug)]
enum Step {
    Charge(u64),
    Advance(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![(0..5_u64).prop_map(Step::Charge), (0..90_000_u64).prop_map(Step::Advance)];
    prop::collection::vec(step, 0..30)
}

proptest! {
    /// A charge that is cancelled leaves a counter as it would be without it; a bucket, that may have been full in between,
    /// at least as full of use, and never fuller than with the charge.
    #[test]
    fn what_is_cancelled_leaves_no_trace(
        before in steps(),
        between in steps(),
        after in steps(),
        cost in 0..20_u64,
        refill in 1..20_u64,
    ) {
        for quota in [
            Quota::aligned_window(1 << 20, MINUTE),
            Quota::sliding_window(1 << 20, MINUTE),
            Quota::token_bucket(1 << 20, refill, MINUTE),
        ] {
            let (group, clock) = group();
            let meter = by_name(&group.per_key("axis", quota.clone()).build().unwrap());
            let play = |steps: &[Step], all: &[&str]| {
                for step in steps {
                    match step {
                        Step::Advance(millis) => clock.advance(Duration::from_millis(*millis)),
                        Step::Charge(units) => all.iter().for_each(|who| try_charge(&meter, who, *units).unwrap()),
                    }
                }
            };
            let all = ["cancelled", "without", "with"];
            play(&before, &all);
            let reserved = reserve(&meter, "cancelled", cost);
            try_charge(&meter, "with", cost).unwrap();
            play(&between, &all);
            now(reserved.cancel()).unwrap();
            let check = || {
                let [cancelled, without, with] = all.map(|who| used(&meter, who)[0].0);
                if quota.clone().unwrap().refill() > 0 {
                    prop_assert!(without <= cancelled && cancelled <= with, "{without} {cancelled} {with}");
                } else {
                    prop_assert_eq!(cancelled, without);
                }
                Ok(())
            };
            check()?;
            for step in &after {
                play(std::slice::from_ref(step), &all);
                check()?;
            }
        }
    }

    /// Settled for more or less, a window holds what its charges were worth.
    #[test]
    fn a_window_holds_what_was_worth_it(charges in prop::collection::vec((0..50_u64, 0..50_u64, 0..20_000_u64), 1..20)) {
        let (group, clock) = group();
        let meter = by_name(&group.per_key("axis", Quota::fixed_window(1 << 20, HOUR)).build().unwrap());
        let reserved: Vec<_> = charges
            .iter()
            .map(|(cost, _, millis)| {
                let reserved = reserve(&meter, "alice", *cost);
                clock.advance(Duration::from_millis(*millis));
                reserved
            })
            .collect();
        for (reserved, (_, worth, _)) in reserved.iter().zip(&charges).rev() {
            now(reserved.settle(*worth)).unwrap();
        }
        prop_assert_eq!(used(&meter, "alice")[0].0, charges.iter().map(|(_, worth, _)| worth).sum::<u64>());
    }
}

#[test]
fn a_bound_meter_reserves_too() {
    let (group, _clock) = group();
    let axis = group.per_key("axis", Quota::fixed_window(10, HOUR)).build().unwrap();
    let meter = Meter::new(axis.by(|name: &str| Key::from(name)));
    let bound = meter.of("alice").unwrap();
    let reserved = now(bound.reserve(6).into_future()).unwrap();
    assert_eq!(settle(&reserved, 2), 8);
    let nobody = now(meter.of_nobody().reserve(100).into_future()).unwrap();
    now(nobody.cancel()).unwrap();
}
