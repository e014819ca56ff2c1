//! A Redis Cluster: which node has which slot, and what to do when that changes.
//!
//! Calls are sent by us, not by a client that sends them again by itself: only what proves not to have been executed is.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::Value;
use tokio::time::{sleep, timeout};

use super::connection::Single;
use super::fault::{Fault, Then};
use super::pool::{Pool, runtime};
use crate::config_error::ConfigError;

const SLOTS: u16 = 16_384;
/// Between two looks at who has which slot, and between two tries of a call that has to wait for a change.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long one node may take to tell who has which slot.
const LOOK_WITHIN: Duration = Duration::from_millis(500);

/// The slot of a group: that of the text in braces in the names of its counters.
pub(super) fn slot_of(group: &str) -> u16 {
    crc16(group.as_bytes()) % SLOTS
}

/// CRC-16/XMODEM, by which a cluster chooses slots.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| crc << 1 ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
    })
}

pub(super) struct Cluster {
    seeds: Vec<Single>,
    connections: usize,
    state: Mutex<State>,
    /// Held by whoever looks who has which slot.
    looking: tokio::sync::Mutex<()>,
}

/// What is left to try after a fault, beside a second sending.
pub(super) enum Detour {
    /// Nothing: the failure policy decides.
    None,
    /// The same again, as soon as the cluster may have changed.
    Again,
    /// Another node has the slot for this call alone.
    Ask(Arc<Pool>),
}

#[derive(Default)]
struct State {
    /// Pools by the address of the node.
    nodes: HashMap<String, Arc<Pool>>,
    /// First and last slot, and the address of the node that has them.
    ranges: Vec<(u16, u16, String)>,
    /// Slots that have moved since the ranges were looked up.
    moved: HashMap<u16, String>,
    looked: Option<Instant>,
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Single>, connections: usize) -> Result<Self, ConfigError> {
        if seeds.is_empty() {
            return Err(ConfigError::new("redis.urls", "are none: name at least one node of the cluster"));
        }
        Ok(Self { seeds, connections, state: Mutex::default(), looking: tokio::sync::Mutex::new(()) })
    }

    /// The node that has the slot.
    pub(super) async fn owner(self: &Arc<Self>, slot: u16) -> Result<Arc<Pool>, Fault> {
        if let Some(owner) = self.known_owner(slot) {
            return Ok(owner);
        }
        self.look_after(Duration::ZERO).await;
        self.known_owner(slot).ok_or_else(|| Fault::unreachable("no node of the cluster tells who has the slot"))
    }

    fn known_owner(&self, slot: u16) -> Option<Arc<Pool>> {
        let mut state = self.state.lock();
        let address = state.moved.get(&slot).cloned().or_else(|| {
            let range = state.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
            range.map(|(_, _, address)| address.clone())
        })?;
        Some(self.node(&mut state, &address))
    }

    /// The pool of a node, made if there is none.
    fn node(&self, state: &mut State, address: &str) -> Arc<Pool> {
        if let Some(pool) = state.nodes.get(address) {
            return Arc::clone(pool);
        }
        let pool = Arc::new(Pool::new(Arc::new(self.seeds[0].at(address)), self.connections));
        state.nodes.insert(address.to_owned(), Arc::clone(&pool));
        pool
    }

    /// Looks up who has which slot, after a while, and goes on with that when the decision that needs it has no time left.
    async fn look_after(self: &Arc<Self>, delay: Duration) {
        if let Ok(runtime) = runtime() {
            let cluster = Arc::clone(self);
            let looking = async move {
                if !delay.is_zero() {
                    sleep(delay).await;
                }
                cluster.look().await;
            };
            let _ = runtime.spawn(looking).await;
        }
    }

    /// Looks up who has which slot, at whichever node answers first; those who come together look once.
    async fn look(&self) {
        let called = Instant::now();
        // Whoever holds it for longer stands still, with its runtime.
        let _looking = timeout(2 * LOOK_WITHIN, self.looking.lock()).await;
        if self.state.lock().looked.is_some_and(|looked| looked + LOOK_EVERY > called) {
            return;
        }
        let known: Vec<Arc<Pool>> = {
            let mut state = self.state.lock();
            let seeds: Vec<String> = self.seeds.iter().map(Single::address).collect();
            for seed in seeds {
                self.node(&mut state, &seed);
            }
            state.nodes.values().cloned().collect()
        };
        // All at once: a node that hangs holds up nobody.
        let mut asked: Vec<_> = known.iter().map(|pool| Box::pin(ranges_of(pool))).collect();
        while !asked.is_empty() {
            let (answer, _, others) = futures_util::future::select_all(asked).await;
            asked = others;
            if let Some(ranges) = answer {
                let mut state = self.state.lock();
                let primaries = ranges.iter().map(|(_, _, address)| address.clone());
                // Seeds are asked again, by whatever name.
                let kept: HashSet<String> = primaries.chain(self.seeds.iter().map(Single::address)).collect();
                state.nodes.retain(|address, _| kept.contains(address));
                state.ranges = ranges;
                state.moved.clear();
                break;
            }
        }
        self.state.lock().looked = Some(Instant::now());
    }

    /// What a fault leaves to try.
    pub(super) async fn detour(self: &Arc<Self>, slot: u16, fault: &Fault) -> Detour {
        match (fault.rule.then, fault.node()) {
            (Then::Redirect, Some(address)) => {
                let mut state = self.state.lock();
                let pool = self.node(&mut state, &address);
                if fault.is_for_one_call() {
                    return Detour::Ask(pool);
                }
                state.moved.insert(slot, address);
                Detour::Again
            }
            // Nobody but the node that was asked knows who has it for this call.
            (Then::Redirect, None) if fault.is_for_one_call() => Detour::None,
            (Then::LookAgain | Then::Redirect, _) => {
                self.look_after(LOOK_EVERY).await;
                Detour::Again
            }
            (Then::Reconnect, _) => {
                self.look_after(Duration::ZERO).await;
                Detour::None
            }
            (Then::SendScript | Then::Policy, _) => Detour::None,
        }
    }

    pub(super) fn give_up_owner(&self, slot: u16) {
        if let Some(owner) = self.known_owner(slot) {
            owner.give_up_all();
        }
    }

    pub(super) fn each_pool(&self, mut give_up: impl FnMut(&Pool)) {
        self.state.lock().nodes.values().for_each(|pool| give_up(pool));
    }
}

/// Who has which slots, as a node tells it.
async fn ranges_of(pool: &Pool) -> Option<Vec<(u16, u16, String)>> {
    let lane = timeout(LOOK_WITHIN, pool.lane()).await.ok()?.ok()?;
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let Ok(Ok(reply)) = timeout(LOOK_WITHIN, lane.connection.send(Arc::new(slots))).await else {
        pool.give_up(&lane);
        return None;
    };
    read_ranges(&reply, lane.connection.host())
}

/// The reply to `CLUSTER SLOTS` of the node at this host.
fn read_ranges(reply: &Value, asked: &str) -> Option<Vec<(u16, u16, String)>> {
    let Value::Array(ranges) = reply else { return None };
    let ranges: Vec<_> = ranges.iter().filter_map(|range| read_range(range, asked)).collect();
    // A node that knows of no slots has been forgotten by the others.
    (!ranges.is_empty()).then_some(ranges)
}

/// `[first slot, last slot, [host of the primary, port, …], …]`. A host that is not told is the one that was asked.
fn read_range(range: &Value, asked: &str) -> Option<(u16, u16, String)> {
    let Value::Array(range) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &range[..] else { return None };
    let [host, Value::Int(port), ..] = &primary[..] else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        _ => "",
    };
    let host = if host.is_empty() || host == "?" { asked } else { host };
    Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, format!("{host}:{port}")))
}

/// What is read of a node's reply to `CLUSTER SLOTS`, and of a redirection: the addresses that would be connected to. Only
/// for the fuzz targets, which must not connect to what they make up.
#[cfg(fuzzing)]
pub fn addresses_in(reply: Result<Value, redis::RedisError>) -> Vec<String> {
    let addresses = match reply {
        Ok(reply) => read_ranges(&reply, "127.0.0.1").into_iter().flatten().map(|(_, _, address)| address).collect(),
        Err(error) => Vec::from_iter(Fault::of_command(&error).node()),
    };
    let seed = Single::new("redis://127.0.0.1/").expect("an address");
    addresses.iter().map(|address| seed.at(address).address()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t12_slots_are_those_of_the_cluster() {
        for (tag, slot) in
            [("acct:42", 14_381), ("global", 10_408), ("q:acct:42:rpm", 2_584), ("q:acct:42:units", 14_782)]
        {
            assert_eq!(slot_of(tag), slot, "{tag}");
        }
        assert_eq!(crc16(b"123456789"), 0x31C3);
    }

    #[test]
    fn a_range_is_read_with_or_without_a_host() {
        let range = |host: Value| {
            let primary = Value::Array(vec![host, Value::Int(7_001), Value::BulkString(b"id".to_vec())]);
            read_range(&Value::Array(vec![Value::Int(0), Value::Int(5_460), primary]), "10.0.0.1")
        };
        assert_eq!(range(Value::BulkString(b"10.0.0.2".to_vec())), Some((0, 5_460, "10.0.0.2:7001".to_owned())));
        for untold in [Value::Nil, Value::BulkString(Vec::new()), Value::BulkString(b"?".to_vec())] {
            assert_eq!(range(untold), Some((0, 5_460, "10.0.0.1:7001".to_owned())));
        }
        assert_eq!(read_range(&Value::Nil, ""), None);
    }
}
