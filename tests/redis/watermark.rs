//! One alert for each episode, however many instances see it.

use std::sync::mpsc;
use std::time::Duration;

use tower_quota::testing::FakeClock;
use tower_quota::{Group, HOUR, Meter, Quota, RedisStore, SharedAxis, Watermark, WatermarkEvent};

use crate::support::{Proxy, Server, Wire};

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(300);

type Told = (&'static str, WatermarkEvent);

struct Instance {
    axis: SharedAxis,
    meter: Meter<()>,
}

fn instance(url: &str, clock: &FakeClock, tell: &mpsc::Sender<Told>) -> Instance {
    let store = RedisStore::builder(url).clock(clock.clone()).deadline(Duration::from_millis(500)).build().unwrap();
    let group = Group::new("item", store).unwrap();
    let (raised, cleared) = (tell.clone(), tell.clone());
    let watermark = Watermark::percent(66)
        .cleared_at(50)
        .notify(move |event| raised.send(("raised", event.clone())).unwrap())
        .notify_cleared(move |event| cleared.send(("cleared", event.clone())).unwrap());
    let axis = group.shared("capacity", Quota::token_bucket(1_000, 1_000, HOUR)).watermark(watermark).build().unwrap();
    Instance { meter: Meter::new(&axis), axis }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_instances_that_cross_together_raise_one_event_and_clear_it_once() {
    let server = Server::start();
    let clock = FakeClock::new();
    let (tell, told) = mpsc::channel();
    let instances: Vec<_> = (0..8).map(|_| instance(&server.url(), &clock, &tell)).collect();
    let mut episodes = Vec::new();
    for round in 0..5 {
        let charges = (0..640).map(|index| instances[index % 8].meter.charge(&(), 1).into_future());
        for outcome in futures_util::future::join_all(charges).await {
            outcome.unwrap();
        }
        assert!(told.recv_timeout(SHORT).is_err(), "round {round}: 640 of 1,000 is below the mark");
        let charges = (0..160).map(|index| instances[index % 8].meter.charge(&(), 1).into_future());
        for outcome in futures_util::future::join_all(charges).await {
            outcome.unwrap();
        }
        let (kind, event) = told.recv_timeout(LONG).unwrap();
        assert_eq!((kind, event.group, event.axis, event.limit), ("raised", "item", "capacity", 1_000));
        assert!((660..=800).contains(&event.used), "{event:?}");
        episodes.push(event.episode);
        // Hovering around the mark is no news.
        for _ in 0..20 {
            clock.advance(HOUR / 10);
            for instance in &instances {
                instance.meter.charge(&(), 12).await.unwrap();
            }
        }
        assert!(told.recv_timeout(SHORT).is_err(), "round {round}: one event for each episode");
        clock.advance(HOUR / 2);
        for instance in &instances {
            instance.meter.charge(&(), 1).await.unwrap();
        }
        let (kind, event) = told.recv_timeout(LONG).unwrap();
        assert_eq!((kind, event.episode), ("cleared", episodes[round]));
        assert!(told.recv_timeout(SHORT).is_err(), "round {round}: it is cleared once");
        clock.advance(HOUR);
    }
    episodes.dedup();
    assert_eq!(episodes.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_raised_though_the_reply_of_the_crossing_call_is_lost() {
    let server = Server::start();
    let clock = FakeClock::new();
    let (tell, told) = mpsc::channel();
    let proxy = Proxy::to(server.port);
    let crossing = instance(&proxy.url(), &clock, &tell);
    let others: Vec<_> = (0..3).map(|_| instance(&server.url(), &clock, &tell)).collect();
    crossing.meter.charge(&(), 600).await.unwrap();
    proxy.set(Wire::EndsAtReply);
    assert!(!crossing.meter.charge(&(), 100).await.unwrap().was_counted());
    assert!(told.recv_timeout(SHORT).is_err(), "nobody has seen it yet");
    for other in &others {
        other.meter.charge(&(), 1).await.unwrap();
    }
    assert_eq!(told.recv_timeout(LONG).unwrap().0, "raised");
    proxy.set(Wire::Works);
    for instance in others.iter().chain([&crossing]) {
        instance.meter.charge(&(), 1).await.unwrap();
    }
    assert!(told.recv_timeout(SHORT).is_err(), "once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_starts_in_the_middle_of_an_episode_says_nothing_again() {
    let server = Server::start();
    let clock = FakeClock::new();
    let (tell, told) = mpsc::channel();
    instance(&server.url(), &clock, &tell).meter.charge(&(), 700).await.unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap().0, "raised");
    for _ in 0..5 {
        let later = instance(&server.url(), &clock, &tell);
        let verdict = later.meter.charge(&(), 1).await.unwrap();
        assert!(verdict.of(&later.axis).unwrap().is_above_watermark());
    }
    assert!(told.recv_timeout(SHORT).is_err());
}
