//! One trip for a decision, and a server that forgets its scripts.

use tower_quota::{Cost, CountedBy, Group, HOUR, Meter, Quota, RedisStore};

use super::Items;
use crate::support::Server;

#[tokio::test]
async fn a_decision_is_one_command_whatever_the_number_of_axes() {
    let server = Server::start();
    for count in [1, 3, 10] {
        let group = Group::new("many", RedisStore::connect(&server.url()).unwrap()).unwrap();
        let name = |index: usize| format!("axis-{count}-{index}");
        let axes: Vec<_> = (0..count)
            .map(|index| group.shared(&name(index), Quota::fixed_window(50, HOUR)).build().unwrap())
            .collect();
        let meter: Meter<()> = axes[1..].iter().fold(Meter::new(&axes[0]), |meter, axis| meter.and(axis).unwrap());
        meter.charge(&(), 0).await.unwrap();
        let () = redis::cmd("CONFIG").arg("RESETSTAT").query(&mut server.look()).unwrap();
        for _ in 0..50 {
            meter.charge(&(), 1).await.unwrap();
        }
        for _ in 0..50 {
            meter.charge(&(), 1).await.unwrap_err();
        }
        assert_eq!(server.calls("evalsha"), 100, "{count} axes");
        assert_eq!((server.calls("eval"), server.calls("script|load")), (0, 0), "{count} axes");
    }
}

#[tokio::test]
async fn t42_a_server_that_forgets_its_scripts_is_sent_them_and_nothing_fails() {
    let server = Server::start();
    let items = Items::over(RedisStore::connect(&server.url()).unwrap(), 1_000, 1_000);
    let mut look = server.look();
    for charged in 1..=50 {
        let () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut look).unwrap();
        assert_eq!(items.charge("alice").await, Ok(CountedBy::Store));
        assert_eq!(items.used("alice").await, [charged; 2]);
    }
}

#[tokio::test]
async fn t42_many_who_miss_the_script_together_send_it_once() {
    let server = Server::start();
    let store = RedisStore::builder(&server.url()).deadline(std::time::Duration::from_secs(5)).build().unwrap();
    let items = Items::over(store, 100_000, 100_000);
    items.charge("alice").await.unwrap();
    for round in 1..=5 {
        let () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.look()).unwrap();
        let loads = server.calls("eval");
        let charges = (0..200).map(|_| items.both.charge("alice", 1).into_future());
        for outcome in futures_util::future::join_all(charges).await {
            assert_eq!(outcome.unwrap().counted_by(), CountedBy::Store);
        }
        assert_eq!(server.calls("eval") - loads, 1, "one connection to one node");
        assert_eq!(items.used("alice").await, [200 * round + 1; 2]);
    }
}

/// Products of limit and period that are above 2^53, stamps of 16 digits, and numbers that a double cannot hold.
#[tokio::test]
async fn t03_no_number_is_too_large_for_the_script() {
    let server = Server::start();
    let largest = 1_u64 << 52;
    let group = Group::new("large", RedisStore::connect(&server.url()).unwrap()).unwrap();
    let fixed = group.shared("fixed", Quota::fixed_window(largest, HOUR)).build().unwrap();
    let bucket = group.shared("bucket", Quota::token_bucket(largest, 1 << 26, HOUR / 3_600)).build().unwrap();
    let meter: Meter<()> = Meter::new(&fixed).and(&bucket).unwrap();
    let used = |verdict: &tower_quota::Verdict| [verdict.reports()[0].used(), verdict.reports()[1].used()];

    assert_eq!(used(&meter.charge(&(), largest - 1).await.unwrap()), [largest - 1; 2]);
    let verdict = meter.charge(&(), Cost::units(0).on(&fixed, 1)).await.unwrap();
    assert_eq!(used(&verdict)[0], largest, "counted to the unit");
    for cost in [largest + 1, u64::MAX] {
        let outcome = meter.charge(&(), cost).await;
        assert!(matches!(outcome, Err(tower_quota::ChargeError::Never(_))), "{outcome:?}");
    }
    let state: Vec<u8> = redis::cmd("GET").arg("tq1:{large}:fixed:f3600000000:all").query(&mut server.look()).unwrap();
    let numbers: Vec<u64> = state.chunks_exact(8).map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap())).collect();
    let [start, used, 0, 0] = numbers[..] else { panic!("{numbers:?}") };
    #[expect(clippy::disallowed_methods, reason = "what the clock of the server is compared with")]
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
    assert!(u128::from(start).abs_diff(now) < 60_000_000, "the start of the window, to the microsecond: {start}");
    assert_eq!(used, largest);
}

#[tokio::test]
async fn t03_a_wait_below_a_second_arrives_as_it_is() {
    let server = Server::start();
    let clock = tower_quota::testing::FakeClock::new();
    let store = RedisStore::builder(&server.url()).clock(clock.clone()).build().unwrap();
    let group = Group::new("waits", store).unwrap();
    let axis = group.shared("axis", Quota::token_bucket(1, 3, HOUR / 3_600)).build().unwrap();
    let meter: Meter<()> = Meter::new(&axis);
    for round in 0..300 {
        meter.charge(&(), 1).await.unwrap();
        let Err(tower_quota::ChargeError::Refused(verdict)) = meter.charge(&(), 1).await else { panic!("it is empty") };
        assert!((333_333..=333_334).contains(&verdict.wait().as_micros()), "round {round}: {:?}", verdict.wait());
        clock.advance(verdict.wait());
    }
    let passed = tower_quota::Clock::now(&clock) - tower_quota::Clock::now(&tower_quota::testing::FakeClock::new());
    assert_eq!(passed.as_millis(), 100_000, "300 units at 3 a second");
}
