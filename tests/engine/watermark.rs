//! Alerts: one for each episode, to a sink that can never slow or break a request.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tower_quota::{Clock, HOUR, Meter, Quota, SECOND, Watermark, WatermarkEvent};

use crate::support::{Log, charge, group, try_charge};

const LONG: Duration = Duration::from_secs(10);

/// A watermark whose events can be received.
fn received(watermark: Watermark) -> (Watermark, mpsc::Receiver<WatermarkEvent>) {
    let (sender, receiver) = mpsc::channel();
    (watermark.notify(move |event| sender.send(event.clone()).unwrap()), receiver)
}

#[test]
fn an_event_tells_usage_limit_and_time_left() {
    let (group, clock) = group();
    let (watermark, events) = received(Watermark::default());
    let quota = Quota::fixed_window(3_000, HOUR);
    let capacity = group.shared("capacity", quota).watermark(watermark).build().unwrap();
    let meter: Meter<()> = Meter::new(&capacity);
    charge(&meter, &(), 1_979).unwrap();
    clock.advance(600 * SECOND);
    assert!(!charge(&meter, &(), 0).unwrap().reports()[0].is_above_watermark());
    assert!(charge(&meter, &(), 1).unwrap().reports()[0].is_above_watermark());

    let event = events.recv_timeout(LONG).unwrap();
    assert_eq!((event.group, event.axis), ("test", "capacity"));
    assert_eq!(u128::from(event.episode), clock.now().as_micros(), "an episode is called by when it started");
    assert_eq!((event.used, event.limit, event.time_left), (1_980, 3_000, 3_000 * SECOND));
    assert_eq!(event.to_string(), "test.capacity: 1980 of 3000 used (66 %), 3000 s left");
}

#[test]
fn there_is_one_event_for_each_episode_however_many_requests_pass() {
    let (group, clock) = group();
    let (watermark, events) = received(Watermark::percent(66).cleared_at(50));
    let capacity = group.shared("capacity", Quota::fixed_window(300, HOUR)).watermark(watermark).build().unwrap();
    let meter: Meter<()> = Meter::new(&capacity);
    let mut episodes = HashSet::new();
    for _ in 1..=3 {
        for _ in 0..400 {
            let _ = try_charge(&meter, &(), 1);
        }
        assert!(episodes.insert(events.recv_timeout(LONG).unwrap().episode));
        clock.advance(HOUR);
    }
    assert!(events.recv_timeout(Duration::from_millis(50)).is_err());
}

#[test]
fn threads_that_cross_together_raise_one_event() {
    let (group, _clock) = group();
    let (watermark, events) = received(Watermark::percent(66));
    let capacity = group.shared("capacity", Quota::fixed_window(8_000, HOUR)).watermark(watermark).build().unwrap();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let meter: Meter<()> = Meter::new(&capacity);
                for _ in 0..1_000 {
                    charge(&meter, &(), 1).unwrap();
                }
            });
        }
    });
    assert_eq!(events.recv_timeout(LONG).unwrap().used, 5_280);
    assert!(events.recv_timeout(Duration::from_millis(50)).is_err());
}

#[test]
fn the_end_of_an_episode_is_told_to_those_who_ask() {
    let (group, clock) = group();
    let (sender, events) = mpsc::channel();
    let also = sender.clone();
    let watermark = Watermark::percent(80)
        .cleared_at(70)
        .notify(move |event| sender.send(("raised", event.episode)).unwrap())
        .notify_cleared(move |event| also.send(("cleared", event.episode)).unwrap());
    let quota = Quota::token_bucket(100, 1, SECOND);
    let meter: Meter<()> = Meter::new(&group.shared("axis", quota).watermark(watermark).build().unwrap());
    let started = clock.now();
    let at = |seconds: u32| u64::try_from((started + SECOND * seconds).as_micros()).unwrap();
    // 79, 80, 79, 81, 72, 80, 69, 80 used.
    for (seconds, cost, told) in [
        (0, 79, None),
        (0, 1, Some(("raised", at(0)))),
        (2, 1, None),
        (0, 2, None),
        (10, 1, None),
        (0, 8, None),
        (12, 1, Some(("cleared", at(0)))),
        (0, 11, Some(("raised", at(24)))),
    ] {
        clock.advance(seconds * SECOND);
        charge(&meter, &(), cost).unwrap();
        if told.is_some() {
            assert_eq!(events.recv_timeout(LONG).ok(), told);
        }
    }
    assert!(events.recv_timeout(Duration::from_millis(50)).is_err());
}

#[test]
fn a_sink_that_blocks_or_panics_is_no_request_s_trouble() {
    let (group, clock) = group();
    let calls = Arc::new(AtomicUsize::new(0));
    let called = Arc::clone(&calls);
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    let watermark = Watermark::percent(50).cleared_at(0).notify(move |_| {
        called.fetch_add(1, Ordering::SeqCst);
        let _ = blocked.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv();
        panic!("this sink is broken");
    });
    let quota = Quota::fixed_window(2, SECOND);
    let meter: Meter<()> = Meter::new(&group.shared("axis", quota).watermark(watermark).build().unwrap());
    let started = Instant::now();
    for _ in 0..10 {
        charge(&meter, &(), 2).unwrap();
        clock.advance(SECOND);
    }
    assert!(started.elapsed() < LONG, "the requests waited for the sink");
    drop(release);
    let deadline = Instant::now() + LONG;
    while calls.load(Ordering::SeqCst) < 10 {
        assert!(Instant::now() < deadline, "every episode is told, also after a panic");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The latest events are what somebody who comes back wants to know.
#[test]
fn of_the_events_that_a_busy_sink_keeps_waiting_the_latest_64_are_told() {
    let (group, clock) = group();
    let (sender, told) = mpsc::channel();
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    let watermark = Watermark::percent(50).cleared_at(0).notify(move |event| {
        sender.send(event.episode).unwrap();
        let _ = blocked.lock().unwrap().recv();
    });
    let quota = Quota::fixed_window(2, SECOND);
    let meter: Meter<()> = Meter::new(&group.shared("axis", quota).watermark(watermark).build().unwrap());
    let next_episode = || {
        clock.advance(SECOND);
        charge(&meter, &(), 2).unwrap();
        u64::try_from(clock.now().as_micros()).unwrap()
    };
    let log = Log::start();
    assert_eq!(next_episode(), told.recv_timeout(LONG).unwrap());
    let waiting: Vec<u64> = (1..100).map(|_| next_episode()).collect();
    let lines = log.lines("a sink is too slow");
    assert_eq!(lines.len(), 99 - 64, "{lines:?}");

    drop(release);
    let told_late: Vec<u64> = (0..64).map(|_| told.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(told_late, waiting[99 - 64..]);
    assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
}

#[test]
fn without_a_sink_an_episode_is_logged() {
    let (group, _clock) = group();
    let quota = Quota::fixed_window(100, HOUR);
    let axis = group.shared("capacity", quota).watermark(Watermark::percent(66)).build().unwrap();
    let log = Log::start();
    let meter: Meter<()> = Meter::new(&axis);
    for _ in 0..100 {
        charge(&meter, &(), 1).unwrap();
    }
    let lines = log.lines("tower_quota::watermark");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("WARN") && lines[0].contains("used=66") && lines[0].contains("limit=100"), "{lines:?}");
}
