//! One decision on its way: sent, sent again where that is safe, given up at its deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use tokio::time::timeout;

use super::breaker::{Admission, Breakers};
use super::cluster::Detour;
use super::fault::{Fault, Then};
use super::names::Names;
use super::pool::{Lane, Pool, runtime};
use super::route::Route;
use super::script::{DECIDE, SETTLE, Script};
use crate::clock::Clock;
use crate::store::contract::{StoreError, StoreErrorKind};

/// How long a probe waits for its answer, whatever the deadline of the decision is that it is made of.
const PROBE_WITHIN: Duration = Duration::from_secs(1);

/// What is told while the breaker is open.
pub(super) fn blocked() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable).because("it has not answered for a while").nothing_done()
}

/// What all decisions of a store share.
pub(super) struct Client {
    pub(super) names: Names,
    pub(super) route: Route,
    pub(super) breakers: Breakers,
    /// Tells this instance from all others.
    pub(super) instance: u64,
    pub(super) clock: Option<Box<dyn Clock>>,
    pub(super) deadline: Duration,
    pub(super) requests_kept: Duration,
    pub(super) serial: AtomicU64,
}

impl Client {
    /// Lets a decision through, or not.
    pub(super) fn admit(&self, slot: u16) -> Result<Admission, StoreError> {
        match self.breakers.of(slot).admit() {
            Admission::Blocked => Err(blocked()),
            admission => Ok(admission),
        }
    }

    /// What `read` makes of the reply to a decision; `None` from it is a reply that is not ours.
    pub(super) async fn decide<T: Send + 'static>(
        self: Arc<Self>,
        slot: u16,
        call: Cmd,
        has_request_id: bool,
        admission: Admission,
        read: impl FnOnce(&Value) -> Option<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let deadline = self.deadline;
        let Admission::Probe(probe) = admission else {
            return self.decide_within(slot, deadline, call, has_request_id, read).await;
        };
        // A probe goes on when its caller has gone.
        let probing = runtime()?.spawn(async move {
            let decided = self.decide_within(slot, PROBE_WITHIN, call, has_request_id, read).await;
            drop(probe);
            decided
        });
        match timeout(deadline, probing).await {
            Ok(Ok(decided)) => decided,
            _ => Err(Fault::timed_out().into()),
        }
    }

    async fn decide_within<T>(
        &self,
        slot: u16,
        time: Duration,
        call: Cmd,
        has_request_id: bool,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, StoreError> {
        let call = Arc::new(call);
        let decided = self.ask_for(slot, &DECIDE, &call, time, has_request_id, read).await;
        match decided {
            Ok(decided) => {
                self.breakers.of(slot).succeeded();
                Ok(decided)
            }
            Err(fault) => {
                self.note(slot, &fault);
                Err(fault.into())
            }
        }
    }

    /// What `read` makes of the reply to a settlement, which is sent once.
    pub(super) async fn settle<T>(
        &self,
        slot: u16,
        call: Cmd,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, StoreError> {
        Ok(self.ask_for(slot, &SETTLE, &Arc::new(call), self.deadline, false, read).await?)
    }

    /// One command that is no decision, within the deadline.
    pub(super) async fn call(&self, slot: u16, script: &Script, call: Arc<Cmd>) -> Result<Value, StoreError> {
        let (_, reply) = self.ask(slot, script, &call, self.deadline, false).await?;
        Ok(reply)
    }

    /// Sends a plain command, whose second sending does no harm, within the deadline.
    pub(super) async fn send(&self, slot: u16, command: Cmd) -> Result<Value, StoreError> {
        let (_, reply) =
            self.within(slot, self.deadline, self.deadline, true, &Call::Plain(&Arc::new(command))).await?;
        Ok(reply)
    }

    fn note(&self, slot: u16, fault: &Fault) {
        let breaker = self.breakers.of(slot);
        if !fault.is_the_servers() {
            breaker.succeeded();
        } else if breaker.failed() {
            // Whatever they wait for, a probe does not.
            self.route.give_up_all(slot);
        }
    }

    /// What `read` makes of the reply; a connection on which another comes has lost count, and is given up.
    async fn ask_for<T>(
        &self,
        slot: u16,
        script: &Script,
        call: &Arc<Cmd>,
        time: Duration,
        has_request_id: bool,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, Fault> {
        let (lane, reply) = self.ask(slot, script, call, time, has_request_id).await?;
        read(&reply).ok_or_else(|| {
            self.route.give_up(&lane);
            Fault::not_ours()
        })
    }

    /// The reply, and the connection that it came on, within this time. The call is sent twice only if it cannot have an
    /// effect twice; one that has a request id waits for half of the time before that.
    async fn ask(
        &self,
        slot: u16,
        script: &Script,
        call: &Arc<Cmd>,
        time: Duration,
        has_request_id: bool,
    ) -> Result<(Arc<Lane>, Value), Fault> {
        let first = if has_request_id { time / 2 } else { time };
        self.within(slot, time, first, has_request_id, &Call::Script(script, call)).await
    }

    /// Sends a call, and once more if that does no harm; in a cluster, as often as it is told that it was not executed.
    async fn within(
        &self,
        slot: u16,
        time: Duration,
        first: Duration,
        may_repeat: bool,
        call: &Call<'_>,
    ) -> Result<(Arc<Lane>, Value), Fault> {
        let started = Instant::now();
        let left = |of: Duration| of.saturating_sub(started.elapsed());
        let (mut patience, mut has_repeated, mut node, mut did_nothing) = (first, false, None, true);
        loop {
            let fault = match self.try_once(slot, node.take(), call, left(patience)).await {
                Err(fault) => fault.after(did_nothing),
                answered => return answered,
            };
            did_nothing = fault.did_nothing;
            // What comes of it is known only from the next sending.
            let detour = within(left(time), async { Ok(self.route.detour(slot, &fault).await) }).await;
            match detour {
                Ok(Detour::Again) => {}
                Ok(Detour::Ask(pool)) => node = Some(pool),
                _ if fault.may_repeat(may_repeat) && !std::mem::replace(&mut has_repeated, true) => {}
                _ => return Err(self.route.last_word(fault)),
            }
            if left(time).is_zero() {
                return Err(fault);
            }
            patience = time;
        }
    }

    /// Sends a call to the node that has the slot, or to another that has it for this call.
    async fn try_once(
        &self,
        slot: u16,
        node: Option<Arc<Pool>>,
        call: &Call<'_>,
        time: Duration,
    ) -> Result<(Arc<Lane>, Value), Fault> {
        let started = Instant::now();
        let is_asking = node.is_some();
        let lane = match node {
            Some(pool) => within(time, pool.lane()).await?,
            None => within(time, self.route.lane(slot)).await?,
        };
        match within(time.saturating_sub(started.elapsed()), call.run(&lane, is_asking)).await {
            Ok(reply) => Ok((lane, reply)),
            Err(fault) => {
                if fault.rule.then == Then::Reconnect {
                    self.route.give_up(&lane);
                }
                Err(fault)
            }
        }
    }

    /// The time to decide at, in microseconds, if it is not the server's.
    pub(super) fn now(&self) -> Option<u64> {
        /// Twice of it is exact in the script.
        const LATEST: u64 = 1 << 52;
        let clock = self.clock.as_ref()?;
        Some(u64::try_from(clock.now().as_micros()).unwrap_or(LATEST).clamp(1, LATEST))
    }

    /// The serial of the next decision.
    pub(super) fn next_serial(&self) -> u64 {
        /// A reply is exact below 2^53.
        const SERIALS: u64 = 1 << 52;
        self.serial.fetch_add(1, Ordering::Relaxed) % SERIALS
    }
}

/// What comes of an attempt within this time.
async fn within<T>(time: Duration, attempt: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    runtime()?;
    timeout(time, attempt).await.unwrap_or_else(|_| Err(Fault::timed_out()))
}

/// What is sent.
enum Call<'c> {
    Script(&'c Script, &'c Arc<Cmd>),
    Plain(&'c Arc<Cmd>),
}

impl Call<'_> {
    async fn run(&self, lane: &Lane, is_asking: bool) -> Result<Value, Fault> {
        match self {
            Self::Script(script, call) => run(lane, script, call, is_asking).await,
            Self::Plain(command) => send(lane, Arc::clone(command), is_asking).await,
        }
    }
}

/// Runs a script that the server may not know yet: whoever finds it missing sends it whole, one at a time, so that many
/// who find it missing together send it once.
async fn run(lane: &Lane, script: &Script, call: &Arc<Cmd>, is_asking: bool) -> Result<Value, Fault> {
    /// A server that forgets it again and again is sent it whole by everybody.
    const TRIES: usize = 3;
    for _ in 0..TRIES {
        let loads = lane.loads.load(Ordering::Acquire);
        match send(lane, Arc::clone(call), is_asking).await {
            Err(fault) if fault.rule.then == Then::SendScript => {}
            answered => return answered,
        }
        let _loading = lane.loading.lock().await;
        if lane.loads.load(Ordering::Acquire) == loads {
            let answered = send(lane, Arc::new(script.whole(call)), is_asking).await;
            lane.loads.fetch_add(1, Ordering::Release);
            return answered;
        }
    }
    send(lane, Arc::new(script.whole(call)), is_asking).await
}

async fn send(lane: &Lane, call: Arc<Cmd>, is_asking: bool) -> Result<Value, Fault> {
    let connection = &lane.connection;
    let sent = if is_asking { connection.send_asking(call) } else { connection.send(call) };
    sent.await.map_err(|error| Fault::of_command(&error))
}
