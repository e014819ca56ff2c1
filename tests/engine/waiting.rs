//! Charges that wait until they fit: exactly as long as they must, in the order in which they came.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tower::{Layer, ServiceExt};
use tower_quota::testing::FakeClock;
use tower_quota::{
    Answer, ChargeError, Clock, Cost, GlobalCapacityLayer, Group, HOUR, Key, MINUTE, MemoryStore, Meter, Question,
    Quota, RedisStore, SECOND, Store, Verdict,
};

use crate::support::{Log, Server, accepting, by_name, group, request};

/// Lets all tasks go on until they wait for something.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Moves the clock from one sleeper's time to the next, until nobody sleeps.
async fn run_until_nobody_sleeps(clock: &FakeClock) {
    settle().await;
    while let Some(time) = clock.next_wake() {
        clock.advance(time);
        settle().await;
    }
}

type Outcome = Result<Verdict, ChargeError>;

/// A charge in a task of its own; when it ends, its name and the time are taken down.
struct Race {
    clock: FakeClock,
    started: Duration,
    ended: Arc<Mutex<Vec<(String, Duration)>>>,
}

impl Race {
    fn new(clock: &FakeClock) -> Self {
        Self { clock: clock.clone(), started: clock.now(), ended: Arc::default() }
    }

    fn charge(&self, meter: &Meter<str>, name: &str, who: &str, cost: u64, patience: Duration) -> JoinHandle<Outcome> {
        let (meter, who, name) = (meter.clone(), who.to_owned(), name.to_owned());
        let (ended, clock, started) = (Arc::clone(&self.ended), self.clock.clone(), self.started);
        tokio::spawn(async move {
            let outcome = meter.charge(&who, cost).wait_up_to(patience).await;
            if outcome.is_ok() {
                ended.lock().unwrap().push((name, clock.now() - started));
            }
            outcome
        })
    }

    fn ended(&self) -> Vec<(String, u64)> {
        self.ended.lock().unwrap().iter().map(|(name, time)| (name.clone(), time.as_secs())).collect()
    }
}

fn in_order(names: &[(&str, u64)]) -> Vec<(String, u64)> {
    names.iter().map(|(name, time)| ((*name).to_owned(), *time)).collect()
}

#[tokio::test]
async fn a_charge_waits_exactly_until_it_fits() {
    let (group, clock) = group();
    let meter = by_name(&group.per_key("axis", Quota::token_bucket(2, 1, SECOND)).build().unwrap());
    let race = Race::new(&clock);
    let charges: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| race.charge(&meter, name, "x", 1, MINUTE)).collect();
    run_until_nobody_sleeps(&clock).await;
    for charge in charges {
        assert!(charge.await.unwrap().is_ok());
    }
    assert_eq!(race.ended(), in_order(&[("a", 0), ("b", 0), ("c", 1), ("d", 2)]));
}

#[tokio::test]
async fn a_charge_that_would_be_too_late_is_refused_at_once_and_charges_nothing() {
    let (group, clock) = group();
    let meter = by_name(&group.per_key("axis", Quota::fixed_window(1, HOUR)).build().unwrap());
    meter.charge("x", 1).await.unwrap();
    let Err(ChargeError::Refused(verdict)) = meter.charge("x", 1).wait_up_to(HOUR - SECOND).await else {
        panic!("it is too late")
    };
    assert_eq!(verdict.wait(), HOUR);
    assert_eq!(clock.next_wake(), None);
    // Waiting for nothing that never comes.
    for cost in [2, u64::MAX] {
        let outcome = meter.charge("x", cost).wait_up_to(HOUR * 10).await;
        assert!(matches!(outcome, Err(ChargeError::Never(_))), "{outcome:?}");
    }
    let waiting = tokio::spawn({
        let meter = meter.clone();
        async move { meter.charge("x", 1).wait_up_to(HOUR).await }
    });
    run_until_nobody_sleeps(&clock).await;
    assert!(waiting.await.unwrap().is_ok(), "to the second");
}

#[tokio::test]
async fn the_first_to_come_goes_first_for_each_key_and_no_key_waits_for_another() {
    let (group, clock) = group();
    let meter = by_name(&group.per_key("axis", Quota::token_bucket(10, 1, SECOND)).build().unwrap());
    for who in ["x", "y"] {
        meter.charge(who, 10).await.unwrap();
    }
    let race = Race::new(&clock);
    let mut charges = Vec::new();
    for (name, who, cost) in [("heavy", "x", 8), ("light", "x", 1), ("other", "y", 2), ("last", "x", 3)] {
        charges.push(race.charge(&meter, name, who, cost, HOUR));
        settle().await;
    }
    run_until_nobody_sleeps(&clock).await;
    join_all(charges).await;
    assert_eq!(race.ended(), in_order(&[("other", 2), ("heavy", 8), ("light", 9), ("last", 12)]));
}

#[tokio::test]
async fn a_shared_axis_has_one_line_for_all() {
    let (group, clock) = group();
    let account = group.per_key("account", Quota::token_bucket(5, 5, SECOND)).build().unwrap();
    let capacity = group.shared("capacity", Quota::token_bucket(2, 1, SECOND)).build().unwrap();
    let meter = Meter::new(account.by(|name: &str| Key::from(name))).and(&capacity).unwrap();
    let race = Race::new(&clock);
    let names: Vec<String> = (0..20).map(|number| format!("{number}")).collect();
    let mut charges = Vec::new();
    for name in &names {
        charges.push(race.charge(&meter, name, name, 1, HOUR));
        settle().await;
    }
    run_until_nobody_sleeps(&clock).await;
    join_all(charges).await;
    let ended = race.ended();
    assert_eq!(ended.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), names, "in order");
    assert_eq!(ended.last().unwrap().1, 18);
}

#[tokio::test]
async fn who_waits_in_line_gives_up_in_time_and_the_line_is_bounded() {
    let clock = FakeClock::new();
    let group = Group::builder("test").most_waiting(3).build(MemoryStore::with_clock(clock.clone())).unwrap();
    let meter = by_name(&group.per_key("axis", Quota::token_bucket(1, 1, 10 * SECOND)).build().unwrap());
    meter.charge("x", 1).await.unwrap();
    let race = Race::new(&clock);
    let first = race.charge(&meter, "first", "x", 1, HOUR);
    settle().await;
    // It could be as early as 10 s, but another is before it.
    let second = race.charge(&meter, "second", "x", 1, 15 * SECOND);
    let third = race.charge(&meter, "third", "x", 1, HOUR);
    settle().await;
    let Err(ChargeError::Refused(_)) = meter.charge("x", 1).wait_up_to(HOUR).await else { panic!("the line is full") };
    run_until_nobody_sleeps(&clock).await;
    assert!(first.await.unwrap().is_ok());
    assert!(matches!(second.await.unwrap(), Err(ChargeError::Refused(_))));
    assert!(third.await.unwrap().is_ok());
    assert_eq!(race.ended(), in_order(&[("first", 10), ("third", 20)]));
}

/// What is free when somebody gives up in line is of those who came before.
#[tokio::test]
async fn who_gives_up_in_line_overtakes_nobody() {
    let (group, clock) = group();
    let meter = by_name(&group.per_key("axis", Quota::token_bucket(5, 1, SECOND)).build().unwrap());
    meter.charge("x", 5).await.unwrap();
    let race = Race::new(&clock);
    let heavy = race.charge(&meter, "heavy", "x", 5, 10 * SECOND);
    settle().await;
    let light = race.charge(&meter, "light", "x", 1, 2 * SECOND);
    settle().await;
    // A look charges nothing, and waits for nobody.
    assert!(meter.charge("x", 0).wait_up_to(SECOND).await.is_ok());
    assert!(matches!(meter.charge("x", 6).wait_up_to(Duration::ZERO).await, Err(ChargeError::Never(_))));
    run_until_nobody_sleeps(&clock).await;
    let Err(ChargeError::Refused(verdict)) = light.await.unwrap() else { panic!("it has overtaken") };
    assert_eq!(verdict.wait(), 3 * SECOND, "until the bucket is full");
    assert!(heavy.await.unwrap().is_ok());
    assert_eq!(race.ended(), in_order(&[("heavy", 5)]));
}

#[tokio::test]
async fn who_is_cancelled_lets_the_next_go() {
    let (group, clock) = group();
    let meter = by_name(&group.per_key("axis", Quota::token_bucket(1, 1, 10 * SECOND)).build().unwrap());
    meter.charge("x", 1).await.unwrap();
    let race = Race::new(&clock);
    let charges: Vec<_> = ["a", "b", "c"].iter().map(|name| race.charge(&meter, name, "x", 1, HOUR)).collect();
    settle().await;
    clock.advance(4 * SECOND);
    charges[0].abort();
    charges[1].abort();
    run_until_nobody_sleeps(&clock).await;
    join_all(charges).await;
    assert_eq!(race.ended(), in_order(&[("c", 10)]));
    assert_eq!(meter.charge("x", 0).await.unwrap().reports()[0].used(), 1, "who was cancelled has charged nothing");
}

/// A store that counts how often it is asked.
struct Counting(MemoryStore, Arc<AtomicUsize>);

impl Store for Counting {
    fn decide(&self, question: &Question<'_>) -> Answer<Verdict> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.decide(question)
    }

    fn reset(&self, question: &Question<'_>) -> Answer<()> {
        self.0.reset(question)
    }

    fn clock(&self) -> &dyn Clock {
        self.0.clock()
    }
}

#[tokio::test]
async fn nobody_wakes_or_asks_without_need() {
    let (clock, asked) = (FakeClock::new(), Arc::new(AtomicUsize::new(0)));
    let store = Counting(MemoryStore::with_clock(clock.clone()), Arc::clone(&asked));
    let group = Group::new("test", store).unwrap();
    let meter = by_name(&group.per_key("axis", Quota::token_bucket(1, 1, SECOND)).build().unwrap());
    let race = Race::new(&clock);
    let mut charges = Vec::new();
    for name in 0..500 {
        charges.push(race.charge(&meter, &name.to_string(), "x", 1, HOUR));
        settle().await;
    }
    run_until_nobody_sleeps(&clock).await;
    join_all(charges).await;
    assert_eq!(race.ended().len(), 500);
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked <= 2 * 500, "{asked} questions for 500 charges, each refused once at most");
}

#[tokio::test]
async fn meters_that_judge_in_different_orders_never_wait_for_each_other() {
    let (group, clock) = group();
    let axes: Vec<_> = (0..3)
        .map(|index| group.shared(&format!("axis-{index}"), Quota::token_bucket(4, 2, SECOND)).build().unwrap())
        .collect();
    let meter = |order: [usize; 3]| -> Meter<str> {
        Meter::new(&axes[order[0]]).and(&axes[order[1]]).unwrap().and(&axes[order[2]]).unwrap()
    };
    let meters = [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]].map(meter);
    let mut random = 7_u64;
    let mut charges = Vec::new();
    for _ in 0..300 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let units = |shift: u32| (random >> shift) % 4;
        let cost = Cost::units(1).on(&axes[0], units(40)).on(&axes[1], units(44)).on(&axes[2], units(48));
        let meter = meters[usize::try_from((random >> 60) % 4).unwrap()].clone();
        charges.push(tokio::spawn(async move { meter.charge("", cost).wait_up_to(24 * HOUR).await }));
        if units(33) == 0 {
            charges.last().unwrap().abort();
        }
        settle().await;
    }
    run_until_nobody_sleeps(&clock).await;
    let ended = join_all(charges).await;
    assert!(ended.iter().flatten().all(Result::is_ok), "nobody waits for ever");
    assert!(ended.iter().flatten().count() > 150);
}

#[tokio::test]
async fn a_wait_that_ends_well_is_no_refusal_in_the_log() {
    let log = Log::start();
    let (group, clock) = group();
    let meter = by_name(&group.per_key("axis", Quota::token_bucket(1, 1, SECOND)).build().unwrap());
    let race = Race::new(&clock);
    let charges: Vec<_> = (0..3).map(|_| race.charge(&meter, "", "x", 1, HOUR)).collect();
    run_until_nobody_sleeps(&clock).await;
    join_all(charges).await;
    assert!(log.lines("tower_quota::refusal").is_empty());
    meter.charge("x", 1).await.unwrap_err();
    assert_eq!(log.lines("tower_quota::refusal").len(), 1);
}

#[tokio::test]
async fn a_layer_lets_requests_wait_and_refuses_those_that_would_wait_too_long() {
    let (group, clock) = group();
    let capacity = group.shared("capacity", Quota::token_bucket(1, 1, SECOND)).build().unwrap();
    let service = GlobalCapacityLayer::new(&capacity).wait_up_to(3 * SECOND).layer(accepting());
    let requests: Vec<_> = (0..6)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { service.oneshot(request("a")).await.unwrap().status().as_u16() })
        })
        .collect();
    run_until_nobody_sleeps(&clock).await;
    let mut statuses: Vec<_> = join_all(requests).await.into_iter().map(Result::unwrap).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 202, 202, 202, 503, 503]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_waits_for_redis_as_well() {
    let server = Server::start();
    let store = RedisStore::builder(&server.url()).deadline(5 * SECOND).build().unwrap();
    let group = Group::new("gmail", store).unwrap();
    let quota = Quota::token_bucket(40, 40, SECOND / 5);
    let meter = by_name(&group.per_key("user", quota).build().unwrap());
    let started = std::time::Instant::now();
    let charges = (0..6).map(|_| {
        let meter = meter.clone();
        tokio::spawn(async move { meter.charge("mailbox", 40).wait_up_to(10 * SECOND).await })
    });
    for outcome in join_all(charges).await {
        outcome.unwrap().unwrap();
    }
    assert!(started.elapsed() >= SECOND, "the first at once, and five more in a second: {:?}", started.elapsed());
}
