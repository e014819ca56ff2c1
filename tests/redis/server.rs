//! Servers with a state of their own: full, busy, locked, evicting.

use std::time::Duration;

use tower_quota::{ChargeError, Cooldown, CountedBy, Group, HOUR, OnStoreFailure, RedisStore, StoreErrorKind};

use super::Items;
use crate::support::{Log, Server};

async fn a_full_server_goes_on_with_what_is_there(server: Server) {
    let store = || RedisStore::connect(&server.url()).unwrap();
    let closed = Items::with_policy(store(), 3, 1_000, OnStoreFailure::Closed);
    let open = Items::over(store(), 3, 1_000);
    closed.charge("known").await.unwrap();
    let reserved = closed.both.reserve("reserved", 3).await.unwrap();
    let pushes = Group::new("push", store()).unwrap().cooldown("school", Cooldown::after_attempts(1).rest(HOUR));
    let pushes = pushes.lease(HOUR).build().unwrap();
    let call = pushes.begin(&"north".into(), 1).await.unwrap();
    let mut look = server.look();
    let () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1").query(&mut look).unwrap();

    let Err(ChargeError::Store(error)) = closed.charge("new").await else { panic!("there is no room") };
    assert_eq!(error.kind(), StoreErrorKind::StoreFull);
    assert_eq!(open.charge("new").await, Ok(CountedBy::Nobody));
    // Those who are there are counted, admitted and refused.
    assert_eq!(closed.charge("known").await, Ok(CountedBy::Store));
    assert_eq!(closed.charge("known").await, Ok(CountedBy::Store));
    assert!(matches!(closed.charge("known").await, Err(ChargeError::Refused(_))));
    assert_eq!(closed.used("known").await, [3, 6]);
    // What is given back to them is, and their calls end.
    assert_eq!(reserved.settle(1).await.unwrap().reports()[0].used(), 1);
    call.end().await.unwrap();
    let Err(ChargeError::Refused(resting)) = pushes.begin(&"north".into(), 1).await else { panic!("it rests") };
    assert!(resting.wait() <= HOUR, "since the call has ended, not from the end of its lease on");
    for _ in 0..100 {
        assert_eq!(open.charge("new").await, Ok(CountedBy::Nobody), "one full server does not open the breaker");
    }
    assert_eq!(closed.used("known").await, [3, 4], "what found no room has charged nothing");

    let () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("0").query(&mut look).unwrap();
    assert_eq!(closed.charge("new").await, Ok(CountedBy::Store), "as soon as there is room");
}

#[tokio::test]
async fn t47_a_full_server_refuses_new_counters_and_goes_on_with_those_that_are_there() {
    a_full_server_goes_on_with_what_is_there(Server::start()).await;
    for name in ["redis-6.2", "redis-8.2", "valkey-8.1", "valkey-9.1"] {
        a_full_server_goes_on_with_what_is_there(Server::other(name)).await;
    }
}

#[tokio::test]
async fn t47_a_server_that_evicts_is_warned_of_once_and_one_that_does_not_tell_is_left_alone() {
    let warnings = |log: &Log| log.lines("evicts").len();
    for (options, expected) in [
        (&["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru"][..], 1),
        (&["--maxmemory", "4mb", "--maxmemory-policy", "noeviction"], 0),
        (&["--maxmemory-policy", "allkeys-lru"], 0),
        (&["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru", "--rename-command", "CONFIG", ""], 0),
    ] {
        let server = Server::with(options);
        let log = Log::start();
        let store = RedisStore::builder(&server.url()).connections(3).build().unwrap();
        let items = Items::over(store, 100, 100);
        for _ in 0..10 {
            assert_eq!(items.charge("alice").await, Ok(CountedBy::Store));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(warnings(&log), expected, "{options:?}");
    }
}

#[tokio::test]
async fn a_server_busy_with_somebody_s_script_is_left_to_the_policy_and_found_again() {
    let server = Server::with(&["--lua-time-limit", "5"]);
    let store = RedisStore::builder(&server.url()).deadline(Duration::from_secs(2)).build().unwrap();
    let items = Items::with_policy(store, 100, 100, OnStoreFailure::Closed);
    items.charge("alice").await.unwrap();
    let mut look = server.look();
    let endless = std::thread::spawn(move || {
        let _: redis::RedisResult<()> = redis::cmd("EVAL").arg("while true do end").arg(0).query(&mut look);
    });
    let mut reasons = Vec::new();
    while !reasons.iter().any(|reason: &String| reason.contains("BUSY")) {
        match items.charge("alice").await {
            Err(ChargeError::Store(error)) => reasons.push(error.to_string()),
            Ok(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            other => panic!("{other:?}"),
        }
        assert!(reasons.len() < 20, "{reasons:?}");
    }
    let used_before = reasons.len();
    let () = redis::cmd("SCRIPT").arg("KILL").query(&mut server_look_while_busy(&server)).unwrap();
    endless.join().unwrap();
    assert_eq!(items.charge("alice").await, Ok(CountedBy::Store), "{used_before} by policy meanwhile");
}

/// A connection that sends nothing by itself: a busy server answers little.
fn server_look_while_busy(server: &Server) -> redis::Connection {
    use redis::IntoConnectionInfo;
    let info = server.url().into_connection_info().unwrap();
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    redis::Client::open(info.set_redis_settings(settings)).unwrap().get_connection().unwrap()
}

#[tokio::test]
async fn a_password_is_used_and_a_wrong_one_is_told_without_showing_it() {
    let server = Server::with(&["--requirepass", "right"]);
    let url = |credentials: &str| format!("redis://{credentials}127.0.0.1:{}/", server.port);
    let items = Items::over(RedisStore::connect(&url(":right@")).unwrap(), 100, 100);
    assert_eq!(items.charge("alice").await, Ok(CountedBy::Store));

    for wrong in [":wrong@", "somebody:wrong@", ""] {
        let log = Log::start();
        let store = RedisStore::builder(&url(wrong)).deadline(Duration::from_secs(2)).build().unwrap();
        let items = Items::with_policy(store, 100, 100, OnStoreFailure::Closed);
        let Err(ChargeError::Store(error)) = items.charge("alice").await else { panic!("{wrong}") };
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{wrong}: {error}");
        assert!(error.to_string().contains("credentials") && !error.to_string().contains("wrong@"), "{error}");
        assert_eq!(log.lines("credentials").len(), 1);
    }
}

#[tokio::test]
async fn a_user_who_may_not_run_scripts_or_read_the_time_is_told() {
    let server = Server::start();
    let mut look = server.look();
    let mut user = |name: &str, rules: &[&str]| {
        let () = redis::cmd("ACL")
            .arg("SETUSER")
            .arg(name)
            .arg("on")
            .arg(">pass")
            .arg("~*")
            .arg(rules)
            .query(&mut look)
            .unwrap();
        RedisStore::builder(&format!("redis://{name}:pass@127.0.0.1:{}/", server.port)).deadline(Duration::from_secs(2))
    };
    let no_scripts = user("noscripts", &["+@all", "-evalsha"]);
    let items = Items::with_policy(no_scripts.build().unwrap(), 100, 100, OnStoreFailure::Closed);
    let Err(ChargeError::Store(error)) = items.charge("alice").await else { panic!("it may not") };
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error}");

    // T06: a server that refuses TIME in a script is served by a clock of ours.
    let no_time = user("notime", &["+@all", "-time"]);
    let items = Items::with_policy(no_time.build().unwrap(), 100, 100, OnStoreFailure::Closed);
    let Err(ChargeError::Store(error)) = items.charge("alice").await else { panic!("it may not") };
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error}");
    let own_clock = user("notime", &[]).clock(tower_quota::SystemClock::new());
    let items = Items::with_policy(own_clock.build().unwrap(), 100, 100, OnStoreFailure::Closed);
    assert_eq!(items.charge("alice").await, Ok(CountedBy::Store));
}

#[tokio::test]
async fn a_connection_of_the_application_serves_as_well() {
    let server = Server::start();
    let client = redis::Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let items = Items::over(RedisStore::over(connection).build().unwrap(), 2, 100);
    assert_eq!(items.charge("alice").await, Ok(CountedBy::Store));
    assert_eq!(items.charge("alice").await, Ok(CountedBy::Store));
    assert!(matches!(items.charge("alice").await, Err(ChargeError::Refused(_))));
}

#[test]
fn a_setup_that_cannot_work_is_told_by_its_field() {
    let field = |builder: tower_quota::RedisStoreBuilder| builder.build().unwrap_err().field().to_owned();
    let builder = || RedisStore::builder("redis://127.0.0.1/");
    for url in
        ["", "127.0.0.1", "http://127.0.0.1/", "redis://", "redis://h:port/", "redis://h/db", "redis://u:secret@h:x/"]
    {
        let error = RedisStore::connect(url).unwrap_err();
        assert_eq!(error.field(), "redis.url", "{url}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    assert_eq!(field(builder().deadline(Duration::ZERO)), "redis.deadline");
    assert_eq!(field(builder().connections(0)), "redis.connections");
    assert_eq!(field(builder().break_after(0)), "redis.break_after");
    assert_eq!(field(builder().remember_requests(Duration::ZERO)), "redis.remember_requests");
    assert_eq!(field(builder().remember_requests(2 * tower_quota::DAY)), "redis.remember_requests");
    assert_eq!(field(builder().prefix("a{b")), "redis.prefix.name");
    assert_eq!(field(builder().secret("")), "redis.secret");
}

#[tokio::test]
async fn a_request_is_remembered_for_the_time_that_was_set() {
    let server = Server::start();
    let clock = tower_quota::testing::FakeClock::new();
    let minutes = Duration::from_secs(180);
    let store = RedisStore::builder(&server.url()).clock(clock.clone()).remember_requests(minutes).build().unwrap();
    let items = Items::over(store, 100, 100);
    for (passes, expected) in
        [(Duration::ZERO, 1), (minutes - Duration::from_micros(1), 1), (Duration::from_micros(1), 2)]
    {
        clock.advance(passes);
        items.both.charge("alice", 1).request_id("r").await.unwrap();
        assert_eq!(items.used("alice").await[0], expected, "after {passes:?} more");
    }
}
