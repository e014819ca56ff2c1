//! What is known of a decision whose reply does not come: nothing is charged twice, and everything ends in a verdict.

use std::time::Duration;

use tower_quota::{ChargeError, CountedBy, RedisStore};

use super::Items;
use crate::support::{Proxy, Server, Wire};

/// A store behind a wire, with its first connection made and its script loaded.
async fn wired(server: &Server) -> (Proxy, Items) {
    let proxy = Proxy::to(server.port);
    let store = RedisStore::builder(&proxy.url()).deadline(Duration::from_millis(400)).build().unwrap();
    let items = Items::over(store, 100, 100);
    items.used("alice").await;
    (proxy, items)
}

#[tokio::test]
async fn t41_a_decision_whose_reply_is_lost_is_charged_once_and_left_to_the_policy() {
    let server = Server::start();
    for lost in [Wire::SwallowsReplies, Wire::EndsAtReply] {
        let (proxy, items) = wired(&server).await;
        items.account.reset(&"alice".into()).await.unwrap();
        let sent = server.calls("evalsha");
        proxy.set(lost.clone());
        assert_eq!(items.charge("alice").await, Ok(CountedBy::Nobody), "{lost:?}");
        proxy.set(Wire::Works);
        assert_eq!(server.calls("evalsha"), sent + 1, "{lost:?}: it was sent once");
        assert_eq!(items.used("alice").await[0], 1, "{lost:?}: the server has charged it");
    }
}

#[tokio::test]
async fn t41_with_a_request_id_it_is_sent_again_and_charged_once() {
    let server = Server::start();
    for lost in [Wire::SwallowsOneReply, Wire::EndsAtReply] {
        let (proxy, items) = wired(&server).await;
        items.account.reset(&"alice".into()).await.unwrap();
        proxy.set(lost.clone());
        let mending = lost == Wire::EndsAtReply;
        let charge = items.both.charge("alice", 1).request_id(format!("{lost:?}"));
        let charging = tokio::spawn({
            let charged = charge.ask();
            async move {
                match charged {
                    tower_quota::Asked::Waiting(pending) => pending.await,
                    tower_quota::Asked::Answered(outcome) => outcome,
                }
            }
        });
        if mending {
            // The wire works again as soon as the first connection has ended.
            while server.calls("evalsha") == 0 {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            proxy.set(Wire::Works);
        }
        let verdict = charging.await.unwrap().unwrap();
        if verdict.counted_by() == CountedBy::Store {
            assert_eq!(verdict.reports()[0].used(), 1, "{lost:?}: the recorded verdict");
        }
        assert_eq!(items.used("alice").await[0], 1, "{lost:?}");
        assert!(proxy.connections() >= 2, "{lost:?}: on another connection");
    }
}

#[tokio::test]
async fn t41_the_same_request_again_and_again_has_one_verdict() {
    let server = Server::start();
    let items = Items::over(RedisStore::connect(&server.url()).unwrap(), 100, 100);
    let mut verdicts = Vec::new();
    for _ in 0..5 {
        verdicts.push(items.both.charge("alice", 3).request_id("one").await.unwrap());
    }
    assert!(verdicts.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(items.used("alice").await, [3, 3]);
}

#[tokio::test]
async fn t52_a_settlement_whose_reply_is_lost_gives_nothing_back_twice() {
    let server = Server::start();
    for lost in [Wire::SwallowsReplies, Wire::EndsAtReply] {
        let (proxy, items) = wired(&server).await;
        items.account.reset(&"alice".into()).await.unwrap();
        // From now on the server knows the script.
        items.both.reserve("alice", 0).await.unwrap().settle(10).await.unwrap();
        let reserved = items.both.reserve("alice", 20).await.unwrap();
        proxy.set(lost.clone());
        let told = reserved.settle(5).await;
        assert!(matches!(told, Err(ChargeError::Store(_))), "{lost:?}: {told:?}");
        proxy.set(Wire::Works);
        for worth in [5, 0] {
            let told = reserved.settle(worth).await.unwrap();
            assert_eq!(told.reports()[0].used(), 15, "{lost:?}: the server had settled it");
        }
    }
}

#[tokio::test]
async fn a_settlement_that_was_provably_not_taken_down_may_be_tried_again() {
    let server = Server::start();
    for (reply, did_nothing) in [("-OOM no memory\r\n", true), ("-ERR of some kind\r\n", false)] {
        let (proxy, items) = wired(&server).await;
        items.account.reset(&"alice".into()).await.unwrap();
        let reserved = items.both.reserve("alice", 20).await.unwrap();
        proxy.set(Wire::Replies(reply));
        let Err(ChargeError::Store(error)) = reserved.settle(5).await else { panic!("{reply}") };
        assert_eq!(error.did_nothing(), did_nothing, "{reply}");
        proxy.set(Wire::Works);
        let used = reserved.settle(5).await.unwrap().reports()[0].used();
        assert_eq!(used, if did_nothing { 5 } else { 20 }, "{reply}");
        // Nor does a look that fails make it unsettled.
        proxy.set(Wire::Replies(reply));
        assert!(reserved.settle(0).await.is_err());
        proxy.set(Wire::Works);
        assert_eq!(reserved.settle(0).await.unwrap().reports()[0].used(), used, "settled once");
    }
}

#[tokio::test]
async fn t42_a_script_that_is_flushed_in_between_settles() {
    let server = Server::start();
    let (_proxy, items) = wired(&server).await;
    for round in 1..=5 {
        let reserved = items.both.reserve("alice", 4).await.unwrap();
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.look()).unwrap();
        assert_eq!(reserved.settle(1).await.unwrap().reports()[0].used(), round);
    }
}

#[tokio::test]
async fn a_reply_to_another_question_is_not_taken_for_ours() {
    let server = Server::start();
    let (proxy, items) = wired(&server).await;
    // One reply is lost on a connection that goes on: every later one would be a verdict on somebody else.
    proxy.set(Wire::SwallowsOneReply);
    assert_eq!(items.charge("alice").await, Ok(CountedBy::Nobody));
    for round in 1..=10 {
        let verdict = items.both.charge("bob", 1).await.unwrap();
        assert_eq!(verdict.counted_by(), CountedBy::Store);
        assert_eq!(verdict.reports()[0].used(), round);
    }
    // The same on one connection with many decisions on it at once.
    let names: Vec<String> = (0..50).map(|name| name.to_string()).collect();
    proxy.set(Wire::SwallowsOneReply);
    let charges = names.iter().map(|name| items.both.charge(name.as_str(), 1).into_future());
    for verdict in futures_util::future::join_all(charges).await {
        let verdict = verdict.unwrap();
        assert!(verdict.reports().iter().take(1).all(|report| report.used() == 1), "{verdict:?}");
    }
}

#[tokio::test]
async fn a_reply_that_is_no_verdict_is_a_failure_of_the_store() {
    let server = Server::start();
    for reply in ["+OK\r\n", ":7\r\n", "*1\r\n:7\r\n", "$-1\r\n", "*0\r\n", "-ERR something else\r\n"] {
        let (proxy, items) = wired(&server).await;
        proxy.set(Wire::Replies(reply));
        assert_eq!(items.charge("alice").await, Ok(CountedBy::Nobody), "{reply:?}");
        proxy.set(Wire::Works);
        assert_eq!(items.charge("alice").await, Ok(CountedBy::Store), "{reply:?}");
    }
}

#[tokio::test]
async fn what_a_server_in_trouble_says_is_left_to_the_policy_and_soon_over() {
    let server = Server::start();
    for reply in [
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-BUSY Redis is busy running a script.\r\n",
        "-MASTERDOWN Link with MASTER is down\r\n",
        "-CLUSTERDOWN The cluster is down\r\n",
        "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
        "-MISCONF Redis is configured to save RDB snapshots\r\n",
        "-CROSSSLOT Keys in request don't hash to the same slot\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        "-NOPERM User default has no permissions to run the 'evalsha' command\r\n",
    ] {
        let (proxy, items) = wired(&server).await;
        items.account.reset(&"alice".into()).await.unwrap();
        proxy.set(Wire::Replies(reply));
        assert_eq!(items.charge("alice").await, Ok(CountedBy::Nobody), "{reply:?}");
        proxy.set(Wire::Works);
        assert_eq!(items.charge("alice").await, Ok(CountedBy::Store), "{reply:?}");
        assert_eq!(items.used("alice").await[0], 1, "{reply:?}");
        assert_eq!(proxy.connections(), 1, "{reply:?}: the connection is as good as before");
    }
}

#[tokio::test]
async fn t43_a_demoted_primary_is_left_for_the_new_one_without_a_failure() {
    let (mut old, new) = (Server::start(), Server::start());
    let (proxy, items) = wired(&old).await;
    items.charge("alice").await.unwrap();
    let () = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(new.port).query(&mut old.look()).unwrap();
    // The name that the store knows the primary by leads to the new one, and the old connection stays open.
    proxy.lead_to(new.port);
    for round in 1..=100 {
        assert_eq!(items.charge("alice").await, Ok(CountedBy::Store), "round {round}");
    }
    assert_eq!(items.used("alice").await, [100, 100]);
    assert_eq!(proxy.connections(), 2);
    old.stop();
}

#[tokio::test]
async fn t43_as_long_as_there_is_only_a_replica_the_policy_decides() {
    let (old, new) = (Server::start(), Server::start());
    let (proxy, items) = wired(&old).await;
    let mut look = old.look();
    let () = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(new.port).query(&mut look).unwrap();
    for _ in 0..5 {
        assert_eq!(items.charge("alice").await, Ok(CountedBy::Nobody));
    }
    let () = redis::cmd("REPLICAOF").arg("NO").arg("ONE").query(&mut look).unwrap();
    assert_eq!(items.charge("alice").await, Ok(CountedBy::Store));
    assert!(proxy.connections() <= 12, "one reconnection for each");
}
