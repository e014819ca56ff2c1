//! Places for each key, under a total.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join_all, select};
use http::{Request, Response};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_quota::{ConcurrencyLayer, key};

use super::{Held, LONG, settle, spawn};
use crate::support::{Body, Log, accepting, answer, header, request, status};

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
async fn t39_a_greedy_key_does_not_fill_the_queue() {
    let layer = per_key(2).total(2).max_wait(LONG).max_queue(4);
    let held = Held::default();
    let service = layer.layer(held.service());
    let mut requests: Vec<_> = (0..6).map(|_| spawn(&service, "greedy")).collect();
    settle().await;
    assert_eq!((layer.in_flight(), layer.queued()), (2, 4));
    // Alone in the queue, its own next one finds no room; others get some of what it has taken, whoever came last first.
    requests.push(spawn(&service, "greedy"));
    for polite in ["polite-1", "polite-2", "polite-3", "polite-4"] {
        requests.push(spawn(&service, polite));
        settle().await;
    }
    assert_eq!((layer.in_flight(), layer.queued(), layer.keys()), (2, 4, 4), "the fourth would not be better off");
    while !held.at_work().is_empty() {
        held.end_one().await;
    }
    let statuses: Vec<u16> = join_all(requests).await.into_iter().map(|answer| answer.unwrap()).collect();
    let admitted = [200, 200, 200];
    assert_eq!(statuses[..3], admitted);
    assert_eq!(statuses[3..7], [503; 4], "three made room, one found none");
    assert_eq!(statuses[7..], [200, 200, 200, 503]);
    assert_eq!((layer.in_flight(), layer.queued(), layer.keys()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn whoever_made_room_and_is_dropped_gives_nothing_back() {
    let layer = per_key(1).total(1).max_wait(LONG).max_queue(2);
    let held = Held::default();
    let service = layer.layer(held.service());
    let _first = spawn(&service, "greedy");
    settle().await;
    let _second = spawn(&service, "greedy");
    settle().await;
    let mut third = Box::pin(service.clone().oneshot(request("greedy")));
    assert!(third.as_mut().now_or_never().is_none());
    // Nobody leaves for one who may not wait.
    let at_once = layer.clone().max_wait(Duration::ZERO).layer(held.service());
    assert_eq!(status(&at_once, request("polite")).await, 503);
    assert_eq!((layer.in_flight(), layer.queued(), layer.keys()), (1, 2, 1));
    let polite = spawn(&service, "polite");
    settle().await;
    assert_eq!((layer.in_flight(), layer.queued(), layer.keys()), (1, 2, 2));
    // It has made room, and does not know yet.
    drop(third);
    assert_eq!((layer.in_flight(), layer.queued()), (1, 2));
    while !held.at_work().is_empty() {
        held.end_one().await;
    }
    polite.await.unwrap();
    assert_eq!((layer.in_flight(), layer.queued(), layer.keys()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_takes_little_goes_past_another_key_that_waits_for_much() {
    let layer = per_key(10)
        .total(4)
        .max_wait(LONG)
        .weight(|parts| parts.headers.get("x-weight").map_or(1, |weight| weight.to_str().unwrap().parse().unwrap()));
    let held = Held::default();
    let service = layer.layer(held.service());
    let weighing = |account: &str, weight: &str| {
        let mut request = request(account);
        request.headers_mut().insert("x-weight", weight.parse().unwrap());
        tokio::spawn(service.clone().oneshot(request))
    };
    let mut requests = vec![weighing("heavy", "3"), weighing("heavy", "3")];
    settle().await;
    assert_eq!((layer.in_flight(), layer.queued()), (3, 1));
    // A key with nothing in flight goes first, and there is room for it.
    requests.push(weighing("light", "1"));
    settle().await;
    assert_eq!((layer.in_flight(), layer.queued()), (4, 1));
    while !held.at_work().is_empty() {
        held.end_one().await;
    }
    join_all(requests).await;
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

#[tokio::test(start_paused = true)]
async fn t39_a_thousand_keys_of_one_call_wait_no_longer_than_one_of_the_thousand_calls_of_another() {
    const SERVICE: Duration = Duration::from_millis(100);
    let layer = per_key(4).total(4).max_wait(100 * LONG).max_queue(10_000);
    let service = layer.layer(service_fn(|_: Request<Body>| async {
        tokio::time::sleep(SERVICE).await;
        Ok::<_, Infallible>(Response::new(Body::default()))
    }));
    let greedy: Vec<_> = (0..1_000).map(|_| spawn(&service, "greedy")).collect();
    let mut polite = Vec::new();
    for number in 0..1_000 {
        // Two thirds of what there is.
        tokio::time::sleep(Duration::from_millis(37)).await;
        let (service, arrived) = (service.clone(), Instant::now());
        polite.push(tokio::spawn(async move {
            assert_eq!(status(&service, request(&format!("polite-{number}"))).await, 200);
            arrived.elapsed() - SERVICE
        }));
    }
    let longest = join_all(polite).await.into_iter().map(Result::unwrap).max().unwrap();
    assert!(longest <= SERVICE + Duration::from_millis(5), "{longest:?}");
    assert!(layer.queued() > 100, "the greedy one still has most of its calls to make");
    join_all(greedy).await;
    assert_eq!((layer.in_flight(), layer.queued(), layer.keys()), (0, 0, 0));
}

/// Counts as running for as long as it lives.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn t39_of_calls_from_many_threads_nothing_is_left() {
    const THREADS: usize = 16;
    const ROUNDS: usize = 600;
    const TOTAL: usize = 5;
    for gives_up in [false, true] {
        let layer = per_key(3).total(TOTAL).max_wait(LONG).max_queue(40);
        let (running, peak, served) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let service = layer.layer(service_fn({
            let peak = Arc::clone(&peak);
            move |_: Request<Body>| {
                let (running, peak) = (Arc::clone(&running), Arc::clone(&peak));
                async move {
                    peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let _running = Running(running);
                    for _ in 0..5 {
                        tokio::task::yield_now().await;
                    }
                    Ok::<_, Infallible>(Response::new(Body::default()))
                }
            }
        }));
        let calls = async |thread: usize| {
            for round in 0..ROUNDS {
                let call = |number| status(&service, request(&format!("key-{}", (thread + round + number) % 7)));
                let calls = join_all((0..3).map(call).map(Box::pin));
                let yields = async {
                    for _ in 0..round % 7 {
                        tokio::task::yield_now().await;
                    }
                };
                if gives_up && round % 3 == 0 {
                    // Dropped wherever they are then.
                    select(calls, std::pin::pin!(yields)).await;
                } else {
                    let ended = calls.await.into_iter().filter(|status| *status == 200).count();
                    served.fetch_add(ended, Ordering::SeqCst);
                }
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let calls = &calls;
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                    runtime.block_on(calls(thread));
                });
            }
        });
        assert!(served.load(Ordering::SeqCst) > THREADS * ROUNDS);
        assert_eq!(peak.load(Ordering::SeqCst), TOTAL);
        assert_eq!((layer.in_flight(), layer.queued(), layer.keys()), (0, 0, 0));
    }
}

#[tokio::test]
async fn who_does_not_say_who_it_is_is_told_so() {
    let (log, service) = (Log::start(), per_key(1).layer(accepting()));
    let nobody = || {
        let mut nobody = request("a");
        nobody.headers_mut().remove("x-account");
        nobody
    };
    assert_eq!(status(&service, nobody()).await, 400);
    let refused = answer(&service, nobody()).await;
    let [line] = &log.lines("a request has no key")[..] else { panic!("told once") };
    assert!(line.contains("x-account"), "{line}");
    assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (400, None));
    let mut twice = request("a");
    twice.headers_mut().append("x-account", "b".parse().unwrap());
    assert_eq!(status(&service, twice).await, 400);
    let panics = ConcurrencyLayer::new(1).weight(|_| panic!("no weight"));
    let service = panics.layer(accepting());
    assert_eq!(status(&service, request("a")).await, 500);
    assert_eq!(panics.in_flight(), 0);
}
