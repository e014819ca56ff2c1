//! Past one Redis: a cluster whose nodes fail and whose slots move, and a primary that Sentinels choose.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tower_quota::testing::{FakeClock, conformance, conformance_of_settlement};
use tower_quota::{ChargeError, CountedBy, Group, HOUR, Key, Meter, OnStoreFailure, Quota, RedisStore};

use super::Items;
use crate::support::{Cluster, Server, Watched};

fn redis() -> &'static Path {
    Path::new("redis-server")
}

fn builder(cluster: &Cluster) -> tower_quota::RedisStoreBuilder {
    let urls = cluster.urls();
    RedisStore::cluster(urls.iter().map(String::as_str))
}

/// Groups whose names lie in slots of each third of the cluster, and a meter of each.
fn groups(cluster: &Cluster) -> Vec<(u16, Meter<str>)> {
    ["a", "b", "c", "d", "e", "f"]
        .iter()
        .map(|name| {
            let group = Group::new(name, builder(cluster).build().unwrap()).unwrap();
            let account = group.per_key("account", Quota::fixed_window(1_000_000, HOUR)).build().unwrap();
            let all = group.shared("all", Quota::fixed_window(1_000_000, HOUR)).build().unwrap();
            let slot: u16 =
                ::redis::cmd("CLUSTER").arg("KEYSLOT").arg(name).query(&mut cluster.nodes[0].look()).unwrap();
            (slot, Meter::new(account.by(|name: &str| Key::from(name))).and(&all).unwrap())
        })
        .collect()
}

/// Charges of one group at some 170 a second, until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Outcome>,
}

#[derive(Debug, Default)]
struct Outcome {
    counted: u64,
    uncounted: u64,
    /// The longest time without a decision of the store.
    longest: Duration,
}

impl Load {
    fn start(meter: &Meter<str>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (meter, stopped) = (meter.clone(), Arc::clone(&stop));
        let task = tokio::spawn(async move {
            let (mut outcome, mut last) = (Outcome::default(), Instant::now());
            let mut ticks = tokio::time::interval(Duration::from_millis(6));
            while !stopped.load(Ordering::Relaxed) {
                ticks.tick().await;
                match meter.charge("alice", 1).await.unwrap().counted_by() {
                    CountedBy::Store => {
                        outcome.counted += 1;
                        outcome.longest = outcome.longest.max(last.elapsed());
                        last = Instant::now();
                    }
                    _ => outcome.uncounted += 1,
                }
            }
            outcome.longest = outcome.longest.max(last.elapsed());
            outcome
        });
        Self { stop, task }
    }

    async fn stop(self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

async fn used(meter: &Meter<str>) -> u64 {
    let verdict = meter.charge("alice", 0).await.unwrap();
    assert!(verdict.was_counted());
    verdict.reports()[1].used()
}

async fn a_cluster_conforms(cluster: Cluster) {
    let make = |clock: FakeClock| builder(&cluster).clock(clock).deadline(Duration::from_secs(10)).build().unwrap();
    conformance(make).await;
    conformance_of_settlement(make).await;
    for node in &cluster.nodes {
        assert_eq!(node.info("errorstats", "errorstat_CROSSSLOT"), None);
    }
}

#[tokio::test]
async fn a_cluster_of_debians_redis_conforms() {
    a_cluster_conforms(Cluster::start(redis(), 3, 1)).await;
}

#[tokio::test]
async fn a_cluster_of_valkey_9_conforms() {
    let server = Server::program_of("valkey-9.1");
    a_cluster_conforms(Cluster::start(&server, 3, 1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t12_a_million_decisions_cross_no_slot_whatever_accounts_are_called() {
    const DECISIONS: usize = 1_000_000;
    let cluster = Cluster::start(redis(), 3, 1);
    let store = || builder(&cluster).deadline(Duration::from_secs(20)).build().unwrap();
    let groups = ["a", "b", "c", "d", "item", "group.of-a_long.name"].map(|name| {
        let group = Group::builder(name).on_store_failure(OnStoreFailure::Closed).build(store()).unwrap();
        let account = group.per_key("account", Quota::fixed_window(1 << 40, HOUR)).build().unwrap();
        let all = group.shared("all", Quota::per_hour(1 << 26)).build().unwrap();
        Meter::new(account.by(|name: &String| Key::from(name))).and(&all).unwrap()
    });
    let names: Arc<Vec<String>> = Arc::new(["alice", "{", "}", "{}", "{a}", "}{", "a{b}c"].map(str::to_owned).to_vec());
    let tasks = (0..240).map(|task: usize| {
        let (meter, names) = (groups[task % groups.len()].clone(), Arc::clone(&names));
        tokio::spawn(async move {
            for decision in 0..=DECISIONS / 240 {
                meter.charge(&names[decision % names.len()], 1).await.unwrap();
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    let mut sent = Vec::new();
    for node in &cluster.nodes {
        assert_eq!(node.info("errorstats", "errorstat_CROSSSLOT"), None);
        sent.extend(Some(node.calls("evalsha")).filter(|calls| *calls > 0));
    }
    assert!(sent.len() == 3 && sent.iter().all(|calls| *calls > 50_000), "spread over the primaries: {sent:?}");
    assert!(sent.iter().sum::<u64>() >= DECISIONS as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t43_each_primary_fails_over_and_nothing_is_lost_or_counted_twice() {
    let cluster = Cluster::start(redis(), 3, 1);
    let groups = groups(&cluster);
    let loads: Vec<_> = groups.iter().map(|(_, meter)| Load::start(meter)).collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut owners: Vec<usize> = groups.iter().map(|(slot, _)| cluster.owner(*slot)).collect();
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), 3, "there is load on each primary");
    for owner in owners {
        let replica = cluster.replica_of(owner);
        let () = ::redis::cmd("CLUSTER").arg("FAILOVER").query(&mut cluster.nodes[replica].look()).unwrap();
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
    for ((_, meter), load) in groups.iter().zip(loads) {
        let outcome = load.stop().await;
        assert!(outcome.longest < Duration::from_secs(2), "{outcome:?}");
        assert!(outcome.counted > 500, "{outcome:?}");
        let used = used(meter).await;
        assert!((outcome.counted..=outcome.counted + outcome.uncounted).contains(&used), "{used}: {outcome:?}");
        // The replica that takes over has never seen the script.
        assert!(outcome.uncounted <= 30, "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_no_more_is_admitted_than_the_limit_and_what_the_replication_lost() {
    const LIMIT: usize = 1_000;
    let mut cluster = Cluster::start(redis(), 3, 1);
    let store = builder(&cluster).deadline(Duration::from_secs(5)).build().unwrap();
    let group = Group::builder("item").on_store_failure(OnStoreFailure::Closed).build(store).unwrap();
    let meter: Meter<()> = Meter::new(&group.shared("all", Quota::fixed_window(LIMIT as u64, HOUR)).build().unwrap());
    let charge = || meter.charge(&(), 1).into_future();
    let mut admitted = 0;
    for _ in 0..10 {
        admitted += join_all((0..40).map(|_| charge())).await.into_iter().flatten().count();
    }
    assert_eq!(admitted, 400);
    let slot = ::redis::cmd("CLUSTER").arg("KEYSLOT").arg("item").query(&mut cluster.nodes[0].look()).unwrap();
    let owner = cluster.owner(slot);
    cluster.nodes[owner].stop();
    let deadline = Instant::now() + Duration::from_secs(20);
    let kept = loop {
        match meter.charge(&(), 0).await {
            Ok(verdict) => break usize::try_from(verdict.reports()[0].used()).unwrap(),
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    let lost = admitted - kept;
    for _ in 0..30 {
        admitted += join_all((0..40).map(|_| charge())).await.into_iter().flatten().count();
    }
    assert_eq!(admitted, LIMIT + lost, "{lost} lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t43_a_primary_is_killed_and_its_replica_followed_while_the_others_do_not_notice() {
    a_primary_is_lost(Server::stop, Duration::from_secs(3)).await;
}

/// Its connections stay, and say nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t44_a_primary_hangs_and_its_replica_is_followed_while_the_others_do_not_notice() {
    // Until the breaker opens each decision takes its deadline, and then there is a probe each second.
    a_primary_is_lost(|primary| primary.pause(), Duration::from_secs(5)).await;
}

async fn a_primary_is_lost(lose: impl FnOnce(&mut Server), longest: Duration) {
    let mut cluster = Cluster::start(redis(), 3, 1);
    let groups = groups(&cluster);
    let loads: Vec<_> = groups.iter().map(|(_, meter)| Load::start(meter)).collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let killed = cluster.owner(groups[0].0);
    let owners: Vec<usize> = groups.iter().map(|(slot, _)| cluster.owner(*slot)).collect();
    lose(&mut cluster.nodes[killed]);
    tokio::time::sleep(longest + Duration::from_secs(2)).await;
    for (((_, meter), load), owner) in groups.iter().zip(loads).zip(owners) {
        let outcome = load.stop().await;
        let used = used(meter).await;
        if owner == killed {
            // Half a second until it is missed, and the election.
            assert!(outcome.longest < longest, "{outcome:?}");
            // Admitted by the store, and lost with the replication of the last moment.
            let lost = outcome.counted.saturating_sub(used);
            assert!(lost <= 20, "{lost} lost of {outcome:?}");
        } else {
            assert!(outcome.longest < Duration::from_millis(800), "another node's trouble: {outcome:?}");
            assert!((outcome.counted..=outcome.counted + outcome.uncounted).contains(&used), "{used}: {outcome:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_while_it_is_counted_in_and_every_charge_is_counted_once() {
    let cluster = Cluster::start(redis(), 3, 1);
    let groups = groups(&cluster);
    let (slot, meter) = &groups[0];
    let load = Load::start(meter);
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..4 {
        let from = cluster.owner(*slot);
        let to = cluster.another_primary(from);
        let (mut source, mut target) = (cluster.nodes[from].look(), cluster.nodes[to].look());
        let id =
            |look: &mut ::redis::Connection| -> String { ::redis::cmd("CLUSTER").arg("MYID").query(look).unwrap() };
        let (source_id, target_id) = (id(&mut source), id(&mut target));
        let set = |look: &mut ::redis::Connection, state: &str, node: &str| {
            let () = ::redis::cmd("CLUSTER").arg("SETSLOT").arg(slot).arg(state).arg(node).query(look).unwrap();
        };
        set(&mut target, "IMPORTING", &source_id);
        set(&mut source, "MIGRATING", &target_id);
        // Key by key, so that for a while the slot is in both.
        loop {
            let keys: Vec<String> =
                ::redis::cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(1).query(&mut source).unwrap();
            let Some(key) = keys.first() else { break };
            let mut migrate = ::redis::cmd("MIGRATE");
            let () = migrate
                .arg("127.0.0.1")
                .arg(cluster.nodes[to].port)
                .arg(key)
                .arg(0)
                .arg(5_000)
                .query(&mut source)
                .unwrap();
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
        for look in [&mut target, &mut source] {
            set(look, "NODE", &target_id);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(cluster.owner(*slot), to);
    }
    let outcome = load.stop().await;
    assert!(outcome.longest < Duration::from_secs(1), "{outcome:?}");
    let used = used(meter).await;
    assert!((outcome.counted..=outcome.counted + outcome.uncounted).contains(&used), "{used}: {outcome:?}");
    assert!(outcome.uncounted <= 10, "{outcome:?}");
}

#[tokio::test]
async fn a_node_that_hangs_costs_its_own_groups_their_deadline_and_others_nothing() {
    let cluster = Cluster::start(redis(), 3, 0);
    let groups = groups(&cluster);
    for (_, meter) in &groups {
        meter.charge("alice", 1).await.unwrap();
    }
    let owners: Vec<usize> = groups.iter().map(|(slot, _)| cluster.owner(*slot)).collect();
    let hangs = owners[0];
    cluster.nodes[hangs].pause();
    let started = Instant::now();
    for _ in 0..5 {
        assert_eq!(groups[0].1.charge("alice", 1).await.unwrap().counted_by(), CountedBy::Nobody);
    }
    assert!(started.elapsed() < 5 * Duration::from_millis(50) + Duration::from_millis(500), "{:?}", started.elapsed());
    let other = groups.iter().zip(&owners).find(|(_, owner)| **owner != hangs).unwrap().0;
    assert_eq!(other.1.charge("alice", 1).await.unwrap().counted_by(), CountedBy::Store);
    cluster.nodes[hangs].go_on();
}

#[tokio::test]
async fn a_node_of_a_cluster_is_no_server_of_its_own_and_says_so() {
    let cluster = Cluster::start(redis(), 3, 0);
    let mut told = 0;
    for name in ["a", "b", "c"] {
        let store = RedisStore::builder(&cluster.nodes[0].url()).deadline(Duration::from_secs(2)).build().unwrap();
        let group = Group::builder(name).on_store_failure(OnStoreFailure::Closed).build(store).unwrap();
        let meter: Meter<()> = Meter::new(&group.shared("all", "fixed 10/h").build().unwrap());
        if let Err(ChargeError::Store(error)) = meter.charge(&(), 1).await {
            assert_eq!(error.kind(), tower_quota::StoreErrorKind::Misconfigured);
            assert!(error.to_string().contains("use RedisStore::cluster"), "{error}");
            told += 1;
        }
    }
    assert!(told >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_is_followed_as_the_sentinels_tell_it() {
    let mut watched = Watched::start();
    let urls = watched.urls();
    let store = RedisStore::sentinel(urls.iter().map(String::as_str), Watched::NAME).build().unwrap();
    let items = Items::over(store, 1_000_000, 1_000_000);
    let load = Load::start(&items.both);
    tokio::time::sleep(Duration::from_millis(500)).await;
    for _ in 0..2 {
        let primary = watched.primary().unwrap();
        watched.servers[primary].stop();
        tokio::time::sleep(Duration::from_millis(800)).await;
        let deadline = Instant::now() + Duration::from_secs(20);
        while watched.primary() != Some(1 - primary) {
            assert!(Instant::now() < deadline, "nobody is promoted");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let promoted = Instant::now();
        while items.charge("bob").await.unwrap() != CountedBy::Store {
            assert!(promoted.elapsed() < Duration::from_secs(3), "it is not followed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        watched.servers[primary].start_again();
        while !watched.is_in_step() {
            assert!(Instant::now() < deadline + Duration::from_secs(20), "it does not come back as a replica");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let outcome = load.stop().await;
    assert!(outcome.counted > 300, "{outcome:?}");
}

#[test]
fn servers_that_are_none_do_not_build() {
    let field = |builder: tower_quota::RedisStoreBuilder| builder.build().unwrap_err().field().to_owned();
    assert_eq!(field(RedisStore::cluster([])), "redis.urls");
    assert_eq!(field(RedisStore::cluster(["redis://a", "b"])), "redis.url");
    assert_eq!(field(RedisStore::cluster(["redis://a/3"])), "redis.url", "a cluster has one database");
    assert_eq!(field(RedisStore::cluster(["redis+unix:///a"])), "redis.url");
    assert_eq!(field(RedisStore::sentinel([], "counters")), "redis.urls");
    assert_eq!(field(RedisStore::sentinel(["http://a"], "counters")), "redis.url");
}
