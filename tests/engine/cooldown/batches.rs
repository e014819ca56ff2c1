//! Inputs that go out batch by batch: none passes the limit, and those of one key go one after the other.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower_quota::{ChargeError, Cooldown, Key, MINUTE};

use super::relay::{Relay, in_memory_and_in_redis};
use super::{attempt, school, send, wait_of};

async fn a_batch_never_passes_the_limit(relay: Relay) {
    let push = relay.push();
    for (attempted, input, expected) in [
        (4_800, 500, vec![(200, 0), (200, 180), (100, 180)]),
        (4_950, 250, vec![(50, 0), (200, 180)]),
        (5_000 - 200, 200, vec![(200, 0)]),
        (0, 5_000, (0..25).map(|_| (200, 0)).collect()),
    ] {
        let key = format!("school-{attempted}-{input}");
        let mut left = attempted;
        while left > 0 {
            left -= attempt(&push, &key, left.min(200)).await;
        }
        let (task, sent) = send(&relay, &push, &key, input);
        let expected_end = expected.last().map_or(0, |(_, time)| *time);
        assert_eq!(relay.run().await.as_secs(), expected_end, "nothing left to send waits for no rest");
        task.await.unwrap();
        assert_eq!(*sent.lock().unwrap(), expected, "{attempted} attempted, {input} new");
    }
    // Exactly at the limit only the rest is recorded.
    assert_eq!(wait_of(&push, "school-4800-200", 1).await, 3 * MINUTE);
}

in_memory_and_in_redis!(a_batch_never_passes_the_limit);

async fn the_calls_of_one_key_are_serial_whoever_makes_them(relay: Relay) {
    let push = relay.push();
    let running = Arc::new(Mutex::new((0, 0)));
    let drivers = (0..4).map(|_| {
        let (push, running) = (push.clone(), Arc::clone(&running));
        tokio::spawn(async move {
            let input = vec![(); 1_000];
            let mut batches = push.batches(&Key::from("one"), &input, 200);
            while let Some(batch) = batches.next().await.unwrap() {
                let at_once = {
                    let mut running = running.lock().unwrap();
                    running.0 += 1;
                    running.1 = running.0.max(running.1);
                    running.1
                };
                assert_eq!(at_once, 1);
                tokio::task::yield_now().await;
                running.lock().unwrap().0 -= 1;
                drop(batch);
            }
        })
    });
    let drivers: Vec<_> = drivers.collect();
    assert_eq!(relay.run().await, Duration::ZERO, "4,000 are below the limit");
    for driver in drivers {
        driver.await.unwrap();
    }
}

in_memory_and_in_redis!(the_calls_of_one_key_are_serial_whoever_makes_them);

async fn cancelling_a_wait_is_immediate_sends_nothing_more_and_keeps_the_rest(relay: Relay) {
    let push = relay.push();
    attempt(&push, "a", 5_000).await;
    let (task, sent) = send(&relay, &push, "a", 100);
    relay.settle().await;
    relay.clock.advance(MINUTE);
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(relay.clock.next_wake(), None, "nothing waits any more");
    assert!(sent.lock().unwrap().is_empty());
    assert_eq!(wait_of(&push, "a", 1).await, 2 * MINUTE);
}

in_memory_and_in_redis!(cancelling_a_wait_is_immediate_sends_nothing_more_and_keeps_the_rest);

#[tokio::test]
async fn drivers_of_one_key_are_serial_however_little_they_wait() {
    let relay = Relay::in_memory();
    let push = relay.group.cooldown("school", Cooldown::after_attempts(100).rest(MINUTE)).build().unwrap();
    let (input, key) = ([(); 20], school("north"));
    let mut first = push.batches(&key, &input, 5);
    let under_way = first.next().await.unwrap().unwrap();
    let mut second = push.batches(&key, &input, 5).wait_up_to(Duration::ZERO);
    let Err(ChargeError::Refused(verdict)) = second.next().await else { panic!("a call is under way") };
    assert_eq!((verdict.reports()[0].used(), verdict.wait()), (5, MINUTE), "it may take as long as its lease");
    assert_eq!(second.left().len(), 20);
    drop(under_way);
    assert_eq!(second.next().await.unwrap().unwrap().len(), 5);
}
