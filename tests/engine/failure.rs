//! A store that cannot answer: the group's policy decides, and says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tower_quota::testing::FakeClock;
use tower_quota::{
    Answer, ChargeError, Cooldown, CooldownAxis, Cost, CountedBy, Group, HOUR, Key, MINUTE, MemoryStore, Meter,
    OnStoreFailure, Paused, Question, Quota, Store, StoreError, StoreErrorKind, Verdict, Watermark,
};

use crate::support::{Log, by_name, charge, group, now};

/// A memory store that can be switched off.
#[derive(Clone)]
struct Switched(Arc<(MemoryStore, AtomicBool)>);

impl Switched {
    fn off() -> Self {
        Self(Arc::new((MemoryStore::new(), AtomicBool::new(false))))
    }

    fn switch(&self, on: bool) {
        self.0.1.store(on, Ordering::SeqCst);
    }
}

impl Store for Switched {
    fn decide(&self, question: &Question<'_>) -> Answer<Verdict> {
        if self.0.1.load(Ordering::SeqCst) {
            return self.0.0.decide(question);
        }
        let error = StoreError::new(StoreErrorKind::Unavailable).because("it is switched off");
        // One turn later, as a store with I/O would.
        Answer::Pending(Box::pin(async { Err(error) }))
    }

    fn reset(&self, question: &Question<'_>) -> Answer<()> {
        self.0.0.reset(question)
    }
}

fn local(percent: u8) -> OnStoreFailure {
    OnStoreFailure::Local { percent }
}

#[test]
fn a_local_share_counts_by_its_part_of_each_limit() {
    let store = Switched::off();
    let group = Group::builder("local").on_store_failure(local(25)).build(store.clone()).unwrap();
    let account = group.per_key("account", Quota::fixed_window(30, HOUR)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(100, HOUR)).build().unwrap();
    let meter = Meter::new(account.by(|name: &str| Key::from(name))).and(&capacity).unwrap();
    let admitted =
        |name: &str, attempts: u32| (0..attempts).filter(|_| now(meter.charge(name, 1).into_future()).is_ok()).count();
    assert_eq!(admitted("a", 50), 7, "a quarter of 30, rounded down");
    assert_eq!(admitted("b", 50), 7);
    assert_eq!((admitted("c", 50), admitted("d", 50)), (7, 4), "a quarter of 100 for all");
    let Err(ChargeError::Refused(verdict)) = now(meter.charge("a", 1).into_future()) else { panic!("it is used up") };
    assert_eq!(verdict.counted_by(), CountedBy::LocalShare);
    assert_eq!((verdict.reports()[0].limit(), verdict.reports()[1].limit()), (7, 25));
    assert!(verdict.wait() > Duration::from_secs(3_500));

    store.switch(true);
    let verdict = now(meter.charge("a", 1).into_future()).unwrap();
    assert_eq!(verdict.counted_by(), CountedBy::Store);
    assert_eq!(verdict.reports()[0].used(), 1, "what was counted meanwhile stays out of the store");
}

#[tokio::test]
async fn a_local_share_of_attempts_and_of_failures_rests_as_the_whole_would() {
    let group = Group::builder("local").on_store_failure(local(50)).build(Switched::off()).unwrap();
    let wait_of = async |axis: &CooldownAxis| match axis.begin(&Key::from("a"), 1).await {
        Err(ChargeError::Refused(verdict)) => verdict.wait(),
        other => panic!("{other:?}"),
    };
    let attempts = group.cooldown("attempts", Cooldown::after_attempts(10).rest(HOUR)).build().unwrap();
    let call = attempts.begin(&Key::from("a"), 5).await.unwrap();
    assert_eq!((call.granted(), call.counted_by()), (5, CountedBy::LocalShare));
    assert!(wait_of(&attempts).await > HOUR, "the call has not ended: its lease, and the rest");
    call.end().await.unwrap();
    assert!(wait_of(&attempts).await <= HOUR, "the rest starts with its end");

    let rule = Cooldown::after_failures(10).within(MINUTE).rest(HOUR);
    let failures = group.cooldown("failures", rule).build().unwrap();
    for _ in 0..5 {
        failures.begin(&Key::from("a"), 1).await.unwrap().failed().await.unwrap();
    }
    assert!(wait_of(&failures).await > MINUTE, "locked, not only counted for a minute");
}

#[tokio::test]
async fn a_pause_that_the_store_cannot_take_down_is_kept_by_a_local_share() {
    let key = Key::from("a");
    for (policy, is_kept) in [(local(50), true), (OnStoreFailure::Open, false)] {
        let group = Group::builder("local").on_store_failure(policy).build(Switched::off()).unwrap();
        let upstream = group.backoff("upstream").build().unwrap();
        assert_eq!(upstream.pause(&key, MINUTE).await.is_ok(), is_kept);
        upstream.pause_soon(&Key::from("b"), MINUTE);
        tokio::task::yield_now().await;
        for key in [&key, &Key::from("b")] {
            assert_eq!(upstream.paused_for(key).await.unwrap().is_zero(), !is_kept, "{policy:?}");
        }
    }
}

#[tokio::test]
async fn no_more_wait_for_a_pause_than_may_wait() {
    let clock = FakeClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let upstream = Group::builder("few").most_waiting(2).build(store).unwrap().backoff("upstream").build().unwrap();
    let key = Key::from("a");
    upstream.pause(&key, MINUTE).await.unwrap();
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let (upstream, key) = (upstream.clone(), key.clone());
            tokio::spawn(async move { upstream.wait(&key, HOUR).await.is_ok() })
        })
        .collect();
    tokio::task::yield_now().await;
    assert!(matches!(upstream.wait(&key, HOUR).await, Err(Paused::For(_))), "two wait already");
    clock.advance(2 * MINUTE);
    for waiting in waiting {
        assert!(waiting.await.unwrap());
    }
    assert!(upstream.wait(&key, HOUR).await.is_ok());
}

#[test]
fn a_request_of_an_id_is_charged_once_by_a_local_share_too() {
    let group = Group::builder("local").on_store_failure(local(50)).build(Switched::off()).unwrap();
    let meter = by_name(&group.per_key("account", "fixed 30/h").build().unwrap());
    for _ in 0..5 {
        let verdict = now(meter.charge("a", 1).request_id("order-7").into_future()).unwrap();
        assert_eq!((verdict.counted_by(), verdict.reports()[0].used()), (CountedBy::LocalShare, 1));
    }
    assert_eq!(now(meter.charge("a", 1).into_future()).unwrap().reports()[0].used(), 2);
}

#[test]
fn a_share_is_at_least_one_and_of_a_closed_axis_nothing() {
    let group = Group::builder("small").on_store_failure(local(1)).build(Switched::off()).unwrap();
    let one = by_name(&group.per_key("one", "fixed 2/h").build().unwrap());
    assert!(now(one.charge("a", 1).into_future()).is_ok());
    assert!(matches!(now(one.charge("a", 1).into_future()), Err(ChargeError::Refused(_))));
    let bucket = by_name(&group.per_key("bucket", "bucket 500 100/h").build().unwrap());
    assert!(now(bucket.charge("a", 5).into_future()).is_ok());
    let Err(ChargeError::Refused(verdict)) = now(bucket.charge("a", 1).into_future()) else { panic!("it is empty") };
    assert!(
        (3_590..=3_600).contains(&verdict.wait().as_secs()),
        "its refill is a hundredth, too: {:?}",
        verdict.wait()
    );
    let closed = by_name(&group.per_key("closed", "fixed 0/h").build().unwrap());
    let Err(ChargeError::Refused(verdict)) = now(closed.charge("a", 1).into_future()) else { panic!("it is closed") };
    assert!(verdict.reports()[0].is_closed());
}

#[test]
fn a_cost_above_the_share_is_no_refusal_but_a_failure_of_the_store() {
    let group = Group::builder("large").on_store_failure(local(50)).build(Switched::off()).unwrap();
    let meter = by_name(&group.per_key("axis", "fixed 10/h").build().unwrap());
    assert!(matches!(now(meter.charge("a", 6).into_future()), Err(ChargeError::Store(_))), "it fits the whole limit");
    assert!(matches!(now(meter.charge("a", 11).into_future()), Err(ChargeError::Never(_))), "it fits never");
    assert!(now(meter.charge("a", 5).into_future()).is_ok());
}

#[test]
fn a_local_share_raises_no_alert() {
    let (sender, events) = std::sync::mpsc::channel();
    let watermark = Watermark::percent(66).notify(move |_| sender.send(()).unwrap());
    let group = Group::builder("quiet").on_store_failure(local(10)).build(Switched::off()).unwrap();
    let axis = group.shared("axis", "fixed 100/h").watermark(watermark).build().unwrap();
    let meter: Meter<()> = Meter::new(&axis);
    for _ in 0..10 {
        now(meter.charge(&(), 1).into_future()).unwrap();
    }
    assert!(events.recv_timeout(Duration::from_millis(50)).is_err());
}

#[test]
fn a_decision_takes_the_strictest_policy_of_its_axes() {
    let group = Group::builder("strict").on_store_failure(OnStoreFailure::Open).build(Switched::off()).unwrap();
    let axis = |name: &str, policy: Option<OnStoreFailure>| {
        let builder = group.per_key(name, "fixed 10/h");
        let builder = if let Some(policy) = policy { builder.on_store_failure(policy) } else { builder };
        builder.build().unwrap().by(|name: &str| Key::from(name))
    };
    let open = axis("open", None);
    let shared = axis("local", Some(local(50)));
    let closed = axis("closed", Some(OnStoreFailure::Closed));
    let both = |first: &tower_quota::Measure<str>, second: &tower_quota::Measure<str>| {
        let meter = Meter::new(first.clone()).and(second.clone()).unwrap();
        now(meter.charge("a", 1).into_future()).map(|verdict| verdict.counted_by())
    };
    assert_eq!(now(Meter::new(open.clone()).charge("a", 1).into_future()).unwrap().counted_by(), CountedBy::Nobody);
    assert_eq!(both(&open, &shared), Ok(CountedBy::LocalShare));
    assert!(matches!(both(&closed, &shared), Err(ChargeError::Store(_))));
}

#[test]
fn a_share_that_is_none_does_not_build() {
    let builder = |percent| Group::builder("group").on_store_failure(local(percent)).build(MemoryStore::new());
    assert_eq!(builder(0).unwrap_err().field(), "group.on_store_failure.percent");
    assert_eq!(builder(101).unwrap_err().field(), "group.on_store_failure.percent");
    let (group, _clock) = group();
    let axis = group.per_key("axis", "1/h").on_store_failure(local(0)).build();
    assert_eq!(axis.unwrap_err().field(), "test.axis.on_store_failure.percent");
}

#[test]
fn each_change_of_the_store_is_one_line_with_the_reason() {
    let log = Log::start();
    let store = Switched::off();
    let group = Group::builder("logged").build(store.clone()).unwrap();
    let meter = by_name(&group.per_key("axis", "fixed 10/h").build().unwrap());
    for _ in 0..10_000 {
        now(meter.charge("a", 1).into_future()).unwrap();
    }
    store.switch(true);
    std::thread::sleep(Duration::from_millis(1_100));
    for _ in 0..10 {
        now(meter.charge("a", 1).into_future()).unwrap();
    }
    let lines = log.lines("tower_quota::store");
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains("decisions without the store") && lines[0].contains("it is switched off"), "{lines:#?}");
    assert!(lines[1].contains("the store answers again") && lines[1].contains("without=10000"), "{lines:#?}");
}

#[test]
fn memory_remembers_requests_for_as_long_and_as_many_as_it_is_told() {
    let clock = FakeClock::new();
    let store =
        MemoryStore::with_clock(clock.clone()).max_states(2).unwrap().remember_requests(10 * tower_quota::SECOND);
    let group = Group::builder("requests").on_store_failure(OnStoreFailure::Closed).build(store).unwrap();
    let axis = group.shared("axis", Quota::fixed_window(100, HOUR)).build().unwrap();
    let meter: Meter<()> = Meter::new(&axis);
    let ask = |id: &str| meter.charge(&(), 1).request_id(id).ask().answered().unwrap();
    let used = || charge(&meter, &(), Cost::units(0)).unwrap().reports()[0].used();
    ask("one").unwrap();
    ask("one").unwrap();
    ask("two").unwrap();
    assert_eq!(used(), 2);
    assert!(matches!(ask("three"), Err(ChargeError::Store(error)) if error.kind() == StoreErrorKind::StoreFull));
    assert_eq!((ask("one").is_ok(), used()), (true, 2), "those that are there are known");
    clock.advance(10 * tower_quota::SECOND);
    ask("three").unwrap();
    ask("one").unwrap();
    assert_eq!(used(), 4, "forgotten in time");
}
