//! At most so many requests at once, first come, first served, each until its body ends.

mod bodies;
mod per_key;
mod queue;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::{Semaphore, oneshot};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_quota::{Concurrency, ConcurrencyLayer, Permit, PermitBody, Reason, Rejection, SplitBody};

use self::bodies::Frames;
use crate::support::{Body, accepting, answer, header, request, status, text};

const LONG: Duration = Duration::from_secs(30);

/// Requests at work, the oldest first, and how each is let go.
type AtWork = VecDeque<(String, oneshot::Sender<()>)>;

/// A service whose requests wait until they are let go, in the order in which they came.
#[derive(Clone, Default)]
struct Held {
    waiting: Arc<Mutex<AtWork>>,
    running: Arc<AtomicUsize>,
    peak: Arc<AtomicUsize>,
}

impl Held {
    fn service(
        &self,
    ) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + use<> {
        let held = self.clone();
        service_fn(move |request: Request<Body>| {
            let held = held.clone();
            async move {
                let (go, gone) = oneshot::channel();
                let name = request.headers()["x-account"].to_str().unwrap().to_owned();
                held.waiting.lock().unwrap().push_back((name, go));
                let running = held.running.fetch_add(1, Ordering::SeqCst) + 1;
                held.peak.fetch_max(running, Ordering::SeqCst);
                let _ = gone.await;
                held.running.fetch_sub(1, Ordering::SeqCst);
                Ok(Response::new(Body::default()))
            }
        })
    }

    /// The requests that are at work, in the order in which they started.
    fn at_work(&self) -> Vec<String> {
        self.waiting.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }

    /// Ends the oldest request at work.
    async fn end_one(&self) -> String {
        let (name, go) = self.waiting.lock().unwrap().pop_front().expect("one is at work");
        let _ = go.send(());
        settle().await;
        name
    }
}

/// Lets all tasks go on until they wait for something.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

fn spawn<S, B>(service: &Concurrency<S>, account: &str) -> tokio::task::JoinHandle<u16>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible, Future: Send> + Clone + Send + Sync + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let (service, request) = (service.clone(), request(account));
    tokio::spawn(async move { status(&service, request).await })
}

#[tokio::test]
async fn past_the_limit_a_request_is_refused_at_once() {
    let (layer, held) = (ConcurrencyLayer::new(2), Held::default());
    let service = layer.layer(held.service());
    let running = [spawn(&service, "a"), spawn(&service, "b")];
    settle().await;
    let refused = answer(&service, request("c")).await;
    assert_eq!((refused.status(), header(&refused, "retry-after")), (StatusCode::SERVICE_UNAVAILABLE, Some("1")));
    let for_ever = layer.clone().retry_after(Duration::MAX).layer(held.service());
    assert_eq!(header(&answer(&for_ever, request("c")).await, "retry-after"), Some("18446744073709551615"));
    assert_eq!(header(&refused, "cache-control"), Some("no-store"));
    assert_eq!(Rejection::of(&refused).unwrap().reason(), Reason::Busy);
    assert!(text(refused).await.contains("\"status\":503"));
    assert_eq!((layer.in_flight(), layer.queued()), (2, 0));
    held.end_one().await;
    held.end_one().await;
    for running in running {
        assert_eq!(running.await.unwrap(), 200);
    }
    assert_eq!(layer.in_flight(), 0);
}

#[tokio::test]
async fn a_future_that_nobody_polls_and_a_clone_that_is_ready_hold_nothing() {
    let layer = ConcurrencyLayer::new(1);
    let mut service = layer.layer(accepting());
    let mut clones: Vec<_> = (0..10).map(|_| service.clone()).collect();
    let mut unpolled = Vec::new();
    for clone in &mut clones {
        unpolled.push(clone.ready().await.unwrap().call(request("a")));
    }
    assert_eq!(layer.in_flight(), 0);
    assert_eq!(service.ready().await.unwrap().call(request("b")).await.unwrap().status(), 202);
}

#[tokio::test]
async fn a_service_that_fails_gives_its_place_back_though_the_future_lives_on() {
    let layer = ConcurrencyLayer::new(1);
    let mut service =
        layer.layer(service_fn(|_: Request<Body>| async { Err::<Response<Body>, _>(std::io::Error::other("broken")) }));
    let mut response = Box::pin(service.ready().await.unwrap().call(request("a")));
    assert!(response.as_mut().await.is_err());
    assert_eq!(layer.in_flight(), 0);
    drop(response);
    assert_eq!(layer.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn t36_whatever_happens_to_a_request_its_place_comes_back_once() {
    const RUNS: u64 = 10_000;
    const LIMIT: usize = 3;
    let layer = ConcurrencyLayer::new(LIMIT).max_wait(Duration::from_millis(20)).max_queue(8);
    // Whom nobody wakes waits for as long as it may.
    let patient = layer.clone().max_wait(100 * LONG);
    let mut random = 42_u64;
    let mut below = move |end: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % end
    };
    let mut tasks = Vec::new();
    for run in 0..RUNS {
        let (fate, before, during) = (below(8), below(30), below(30));
        let is_patient = below(4) == 0;
        let of_this = if is_patient { &patient } else { &layer };
        let service = of_this.layer(service_fn(move |_: Request<Body>| async move {
            tokio::time::sleep(Duration::from_millis(before)).await;
            if fate == 0 {
                // A panic, without a line for each.
                std::panic::resume_unwind(Box::new("the handler panics"));
            }
            if fate == 1 {
                return Err(std::io::Error::other("the handler fails"));
            }
            let mut frames = 0;
            Ok(Response::new(Frames::of(&["a", "b", "c"]).map_frame(move |frame| {
                frames += 1;
                if fate == 7 && frames == 2 {
                    std::panic::resume_unwind(Box::new("the body panics"));
                }
                frame
            })))
        }));
        let patience = if fate <= 3 && !is_patient { below(40) } else { 1_000_000 };
        tasks.push(tokio::spawn(async move {
            let arrived = tokio::time::Instant::now();
            let request = async {
                let response = service.oneshot(request("a")).await;
                assert!(arrived.elapsed() < LONG, "nobody has woken it");
                let Ok(response) = response else { return };
                let mut body = response.into_body();
                for _ in 0..fate {
                    tokio::time::sleep(Duration::from_millis(during)).await;
                    let _ = body.frame().await;
                }
            };
            // It is dropped wherever it is then: in the queue, in the handler, between head and body, inside the body.
            let _ = tokio::time::timeout(Duration::from_millis(patience), request).await;
        }));
        if run % 4 == 0 {
            tokio::time::sleep(Duration::from_millis(below(25))).await;
        }
        assert!(layer.in_flight() <= LIMIT);
    }
    let mut panics = HashMap::<&str, u32>::new();
    for panicked in join_all(tasks).await.into_iter().filter_map(Result::err) {
        *panics.entry(panicked.into_panic().downcast_ref::<&str>().expect("it says where")).or_default() += 1;
    }
    assert!(panics.len() == 2 && panics.values().all(|panicked| *panicked > 50), "{panics:?}");
    assert_eq!((layer.in_flight(), layer.queued()), (0, 0));
    // As many as the limit go through at once, and not one more.
    let held = Held::default();
    let service = layer.clone().max_wait(Duration::ZERO).layer(held.service());
    let requests: Vec<_> = (0..5).map(|_| spawn(&service, "a")).collect();
    settle().await;
    assert_eq!((layer.in_flight(), held.at_work().len()), (LIMIT, LIMIT));
    for _ in 0..LIMIT {
        held.end_one().await;
    }
    join_all(requests).await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_changes_while_requests_are_in_flight() {
    let layer = ConcurrencyLayer::new(1).max_wait(LONG);
    let held = Held::default();
    let service = layer.layer(held.service());
    let requests: Vec<_> = (0..8).map(|number| spawn(&service, &number.to_string())).collect();
    settle().await;
    assert_eq!((layer.in_flight(), layer.queued()), (1, 7));
    layer.set_limit(4);
    settle().await;
    assert_eq!((layer.in_flight(), layer.queued()), (4, 4), "up, at once");
    layer.set_limit(2);
    held.end_one().await;
    held.end_one().await;
    assert_eq!((layer.in_flight(), layer.queued()), (2, 4), "down, as they end");
    held.end_one().await;
    assert_eq!((layer.in_flight(), layer.queued()), (2, 3));
    layer.set_limit(0);
    held.end_one().await;
    held.end_one().await;
    assert_eq!((layer.in_flight(), layer.queued()), (0, 3), "closed");
    layer.set_limit(10);
    settle().await;
    while !held.at_work().is_empty() {
        held.end_one().await;
    }
    for request in requests {
        assert_eq!(request.await.unwrap(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_heavy_request_takes_more_and_is_not_overtaken() {
    let weight = |parts: &tower_quota::Parts| parts.headers["x-account"].to_str().unwrap().parse().unwrap();
    let layer = ConcurrencyLayer::new(4).max_wait(LONG).weight(weight);
    let held = Held::default();
    let service = layer.layer(held.service());
    let mut requests = Vec::new();
    for weight in ["3", "2", "1", "9", "0"] {
        requests.push(spawn(&service, weight));
        settle().await;
    }
    assert_eq!((layer.in_flight(), held.at_work()), (3, vec!["3".to_owned()]), "1 does not overtake 2");
    held.end_one().await;
    assert_eq!(held.at_work(), ["2", "1"]);
    held.end_one().await;
    held.end_one().await;
    assert_eq!((layer.in_flight(), held.at_work()), (9, vec!["9".to_owned()]), "what is too heavy goes alone");
    held.end_one().await;
    assert_eq!((layer.in_flight(), held.at_work()), (1, vec!["0".to_owned()]), "nothing takes less than one");
    held.end_one().await;
    join_all(requests).await;
}

#[tokio::test]
async fn a_refusal_may_be_answered_in_the_application_s_own_form() {
    let layer = ConcurrencyLayer::new(0).reject_with(|rejection, parts| {
        let text = format!("{} at {}", rejection.reason().status(), parts.uri.path());
        Response::builder().status(200).body(http_body_util::Full::new(Bytes::from(text))).unwrap()
    });
    let replaced = answer(&layer.layer(accepting()), request("a")).await;
    assert_eq!(replaced.status(), 200);
    assert_eq!(text(replaced).await, "503 Service Unavailable at /");
}

#[tokio::test]
async fn an_upgraded_connection_is_in_flight_as_long_as_its_task_keeps_the_permit() {
    let layer = ConcurrencyLayer::new(1);
    let (kept, keeps) =
        (Arc::new(Mutex::new(None)), |request: &Request<Body>| request.extensions().get::<Permit>().cloned());
    let handler = {
        let kept = Arc::clone(&kept);
        service_fn(move |request: Request<Body>| {
            *kept.lock().unwrap() = keeps(&request);
            async { Ok::<_, Infallible>(Response::builder().status(101).body(Body::default()).unwrap()) }
        })
    };
    let service = layer.layer(handler);
    let upgrade = || {
        let mut request = request("a");
        request.headers_mut().insert("upgrade", "websocket".parse().unwrap());
        request
    };
    assert_eq!(status(&service, upgrade()).await, 101);
    assert_eq!(layer.in_flight(), 1, "the head is sent, and the task goes on");
    assert_eq!(status(&service, upgrade()).await, 503);
    *kept.lock().unwrap() = None;
    assert_eq!(layer.in_flight(), 0);
    assert_eq!(status(&service, request("a")).await, 101);
    assert!(kept.lock().unwrap().is_none(), "a request that upgrades nothing needs no permit");

    // One of all routes around one of this route: the task holds a place in each.
    let all = ConcurrencyLayer::new(10);
    let nested = all.layer(service);
    assert_eq!(status(&nested, upgrade()).await, 101);
    assert_eq!((all.in_flight(), layer.in_flight()), (1, 1));
    *kept.lock().unwrap() = None;
    assert_eq!((all.in_flight(), layer.in_flight()), (0, 0));
}

#[tokio::test]
async fn five_hundred_calls_go_out_twelve_at_once_and_come_back_in_their_order() {
    use futures_util::{StreamExt, stream};
    let (running, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let upstream = {
        let (running, peak) = (Arc::clone(&running), Arc::clone(&peak));
        service_fn(move |request: Request<Body>| {
            let (running, peak) = (Arc::clone(&running), Arc::clone(&peak));
            async move {
                peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // Later ones are faster.
                let item: u64 = request.headers()["x-account"].to_str().unwrap().parse().unwrap();
                tokio::time::sleep(Duration::from_micros(500 - item)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Infallible>(Response::new(Body::from(item.to_string())))
            }
        })
    };
    let layer = ConcurrencyLayer::new(12).max_queue(500).max_wait(LONG);
    let client = layer.layer(upstream);
    let results: Vec<String> = stream::iter(0..500)
        .map(|item| {
            let client = client.clone();
            async move { text(client.oneshot(request(&item.to_string())).await.unwrap()).await }
        })
        .buffered(500)
        .collect()
        .await;
    assert!(results.iter().enumerate().all(|(item, result)| *result == item.to_string()));
    assert_eq!((peak.load(Ordering::SeqCst), layer.in_flight()), (12, 0));
}

#[tokio::test]
async fn a_call_that_waits_is_small() {
    let layer = ConcurrencyLayer::new(1).max_wait(LONG).max_queue(10_000);
    let permits = Arc::new(Semaphore::new(0));
    let service = {
        let permits = Arc::clone(&permits);
        layer.layer(service_fn(move |_: Request<Body>| {
            let permits = Arc::clone(&permits);
            async move {
                permits.acquire().await.unwrap().forget();
                Ok::<_, Infallible>(Response::new(Body::default()))
            }
        }))
    };
    let mut context = Context::from_waker(std::task::Waker::noop());
    let mut waiting: Vec<_> = (0..10_001).map(|_| (Some(request("a")), None)).collect();
    let memory = allocation_counter::measure(|| {
        for (request, future) in &mut waiting {
            let call = future.insert(Box::pin(service.clone().oneshot(request.take().unwrap())));
            assert!(call.as_mut().poll(&mut context).is_pending());
        }
    });
    assert_eq!(layer.queued(), 10_000);
    let each = memory.bytes_current / 10_001;
    assert!(each < 2_048, "{each} bytes for each call that waits");
    drop(waiting);
    assert_eq!((layer.in_flight(), layer.queued()), (0, 0));
}

#[tokio::test]
async fn types_are_send_sync_and_default_where_the_inner_ones_are() {
    fn send<T: Send>(_: &T) {}
    fn all<T: Send + Sync + Default>() {}
    fn shared<T: Send + Sync + Clone>() {}
    all::<PermitBody<Body>>();
    all::<SplitBody<Body>>();
    shared::<ConcurrencyLayer>();
    shared::<Concurrency<()>>();
    let service = ConcurrencyLayer::new(1).layer(accepting());
    send(&service.clone().oneshot(request("a")));
    assert!(service.oneshot(request("a")).now_or_never().is_some());
}
