//! Who waits for a place, in which order, and for how long.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tower::{Layer, Service, ServiceExt};
use tower_quota::{ConcurrencyLayer, key};

use super::{Held, LONG, settle, spawn};
use crate::support::{answer, header, request};

#[tokio::test(start_paused = true)]
async fn those_who_wait_go_in_the_order_in_which_they_came() {
    let layer = ConcurrencyLayer::new(3).max_wait(LONG).max_queue(100);
    let held = Held::default();
    let service = layer.layer(held.service());
    let names: Vec<String> = (0..40).map(|number| format!("{number}")).collect();
    let mut requests = Vec::new();
    for name in &names {
        requests.push(spawn(&service, name));
        settle().await;
    }
    assert_eq!((layer.in_flight(), layer.queued()), (3, 37));
    for name in &names {
        assert_eq!(held.end_one().await, *name);
    }
    assert_eq!(held.peak.load(Ordering::SeqCst), 3);
    for request in requests {
        assert_eq!(request.await.unwrap(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_long_enough_is_refused_and_the_queue_is_bounded() {
    let layer = ConcurrencyLayer::new(1).max_wait(Duration::from_millis(200)).max_queue(2);
    let held = Held::default();
    let service = layer.clone().retry_after(Duration::from_millis(2_500)).layer(held.service());
    let first = spawn(&service, "first");
    settle().await;
    let waiting = [spawn(&service, "second"), spawn(&service, "third")];
    settle().await;
    let refused = answer(&service, request("fourth")).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (503, Some("3")), "the queue is full");
    let started = tokio::time::Instant::now();
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), 503);
    }
    assert_eq!(started.elapsed(), Duration::from_millis(200));
    assert_eq!((layer.in_flight(), layer.queued()), (1, 0));
    held.end_one().await;
    assert_eq!(first.await.unwrap(), 200);
}

#[tokio::test]
async fn no_limit_and_no_weight_is_too_large_to_be_counted() {
    let one = ConcurrencyLayer::new(usize::MAX);
    let keyed = ConcurrencyLayer::per_key(usize::MAX, key::header("x-account").unwrap()).total(usize::MAX);
    for layer in [one, keyed] {
        let layer = layer.weight(|_| usize::MAX).max_wait(Duration::from_secs(1));
        let held = Held::default();
        let service = layer.layer(held.service());
        let requests: Vec<_> = (0..5).map(|number| spawn(&service, &number.to_string())).collect();
        for request in requests {
            settle().await;
            held.end_one().await;
            assert_eq!(request.await.unwrap(), 200);
        }
        assert_eq!((layer.in_flight(), layer.queued()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_future_that_has_given_up_leaves_the_queue_though_it_lives_on() {
    let layer = ConcurrencyLayer::new(1).max_wait(Duration::from_millis(200));
    let held = Held::default();
    let mut service = layer.layer(held.service());
    let first = spawn(&service, "first");
    settle().await;
    let mut late = Box::pin(service.ready().await.unwrap().call(request("late")));
    assert_eq!((&mut late).await.unwrap().status(), 503);
    assert_eq!((layer.in_flight(), layer.queued()), (1, 0));
    // What the first gives back is nobody's whose future is merely kept.
    held.end_one().await;
    assert_eq!(first.await.unwrap(), 200);
    assert_eq!((layer.in_flight(), layer.queued()), (0, 0));
    drop(late);
}
