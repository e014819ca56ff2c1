//! Places for each key, under a total.

use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use tower::Layer;
use tower_quota::{ConcurrencyLayer, key};

use super::{Held, LONG, settle, spawn};
use crate::support::{accepting, answer, header, request, status};

fn per_key(limit: usize) -> ConcurrencyLayer {
    ConcurrencyLayer::per_key(limit, key::header("x-account").unwrap())
}

#[tokio::test(start_paused = true)]
async fn t39_a_greedy_key_uses_everything_alone_and_delays_another_by_one_request() {
    let layer = per_key(4).total(4).max_wait(LONG).max_queue(1_000);
    let held = Held::default();
    let service = layer.layer(held.service());
    let mut requests: Vec<_> = (0..104).map(|_| spawn(&service, "greedy")).collect();
    settle().await;
    assert_eq!((layer.in_flight(), layer.queued()), (4, 100), "alone, it may use everything");
    requests.push(spawn(&service, "polite"));
    settle().await;
    held.end_one().await;
    assert_eq!(held.at_work().last().unwrap(), "polite", "the next that starts is the other one's");
    while !held.at_work().is_empty() {
        held.end_one().await;
    }
    assert_eq!(held.peak.load(Ordering::SeqCst), 4);
    join_all(requests).await;
    assert_eq!((layer.in_flight(), layer.keys()), (0, 0), "no key is kept");
}

#[tokio::test(start_paused = true)]
async fn t39_under_contention_each_key_gets_its_share() {
    // One key asks for a hundred times as much as each of nine others.
    let layer = per_key(10).total(10).max_wait(10 * LONG).max_queue(10_000);
    let held = Held::default();
    let service = layer.layer(held.service());
    let mut requests: Vec<_> = (0..2_000).map(|_| spawn(&service, "greedy")).collect();
    for _ in 0..20 {
        requests.extend((0..9).map(|polite| spawn(&service, &format!("polite-{polite}"))));
    }
    settle().await;
    let mut ended = std::collections::HashMap::<String, f64>::new();
    for _ in 0..200 {
        *ended.entry(held.end_one().await).or_default() += 1.0;
    }
    let (sum, squares) =
        ended.values().fold((0.0, 0.0), |(sum, squares), count| (sum + count, squares + count * count));
    let jain = sum * sum / (10.0 * squares);
    assert!(jain >= 0.95, "{jain}: {ended:?}");
    requests.iter().for_each(tokio::task::JoinHandle::abort);
    settle().await;
    join_all(requests).await;
    assert_eq!((layer.in_flight(), layer.queued(), layer.keys()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn t39_a_key_at_its_own_limit_delays_nobody_else() {
    let layer = per_key(1).total(3).max_wait(LONG);
    let held = Held::default();
    let service = layer.layer(held.service());
    let mut requests: Vec<_> = (0..5).map(|_| spawn(&service, "limited")).collect();
    settle().await;
    requests.extend([spawn(&service, "a"), spawn(&service, "b")]);
    settle().await;
    assert_eq!(held.at_work(), ["limited", "a", "b"]);
    layer.set_total(1);
    layer.set_limit(3);
    settle().await;
    assert_eq!(layer.in_flight(), 3);
    held.end_one().await;
    held.end_one().await;
    assert_eq!(layer.in_flight(), 1);
    while !held.at_work().is_empty() {
        held.end_one().await;
    }
    join_all(requests).await;
    assert_eq!(layer.keys(), 0);
}

#[tokio::test]
async fn who_does_not_say_who_it_is_is_told_so() {
    let service = per_key(1).layer(accepting());
    let mut nobody = request("a");
    nobody.headers_mut().remove("x-account");
    let refused = answer(&service, nobody).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (400, None));
    let mut twice = request("a");
    twice.headers_mut().append("x-account", "b".parse().unwrap());
    assert_eq!(status(&service, twice).await, 400);
    let panics = ConcurrencyLayer::new(1).weight(|_| panic!("no weight"));
    let service = panics.layer(accepting());
    assert_eq!(status(&service, request("a")).await, 500);
    assert_eq!(panics.in_flight(), 0);
}
