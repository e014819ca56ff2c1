//! Connections, made when they are needed and given up when they are no good.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::Shared;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::connection::{Connection, Connector};
use super::fault::Fault;

/// How long one attempt to connect may take. Decisions wait for it no longer than their own deadline.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// After how long an attempt is no longer waited for: the runtime that it runs on is not driven any more.
const ABANDONED_AFTER: Duration = Duration::from_secs(2);

/// A fixed number of connections, taken in turn.
pub(super) struct Pool {
    connector: Arc<dyn Connector>,
    slots: Box<[Slot]>,
    next: AtomicUsize,
}

type Slot = Arc<Mutex<State>>;

enum State {
    Closed,
    /// Since then.
    Connecting(Attempt, Instant),
    Open(Arc<Lane>),
}

/// An attempt to connect, on its way for all who wait for it: it belongs to no single one of them.
type Attempt = Shared<oneshot::Receiver<Result<Arc<Lane>, Fault>>>;

/// A connection in use.
pub(super) struct Lane {
    pub(super) connection: Arc<dyn Connection>,
    /// Held by whoever sends the whole script, so that many who miss it send it once.
    pub(super) loading: tokio::sync::Mutex<()>,
    /// How many times it was sent.
    pub(super) loads: AtomicU64,
}

impl Pool {
    pub(super) fn new(connector: Arc<dyn Connector>, size: usize) -> Self {
        let slot = || Arc::new(Mutex::new(State::Closed));
        Self { connector, slots: (0..size).map(|_| slot()).collect(), next: AtomicUsize::new(0) }
    }

    /// The next connection, made if there is none.
    pub(super) async fn lane(&self) -> Result<Arc<Lane>, Fault> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len();
        let slot = &self.slots[index];
        let attempt = {
            let mut state = slot.lock();
            match &*state {
                State::Open(lane) if lane.connection.is_open() => return Ok(Arc::clone(lane)),
                State::Connecting(attempt, since) if since.elapsed() < ABANDONED_AFTER => attempt.clone(),
                State::Connecting(..) | State::Open(_) | State::Closed => {
                    let since = Instant::now();
                    let attempt = self.start(slot, since)?;
                    *state = State::Connecting(attempt.clone(), since);
                    attempt
                }
            }
        };
        attempt.await.unwrap_or_else(|_| {
            // The runtime that the attempt ran on has ended.
            let mut state = slot.lock();
            if matches!(&*state, State::Connecting(attempt, _) if attempt.peek().is_some()) {
                *state = State::Closed;
            }
            Err(Fault::unreachable("the runtime ended while connecting"))
        })
    }

    fn start(&self, slot: &Slot, since: Instant) -> Result<Attempt, Fault> {
        let runtime = runtime()?;
        let (done, attempt) = oneshot::channel();
        let (connecting, slot) = (self.connector.connect(), Arc::clone(slot));
        runtime.spawn(async move {
            let made = match timeout(CONNECT_WITHIN, AssertUnwindSafe(connecting).catch_unwind()).await {
                Ok(Ok(made)) => made.map(Lane::new).map_err(|error| Fault::of_connecting(&error)),
                Ok(Err(_)) => Err(Fault::of_panic()),
                Err(_) => Err(Fault::unreachable("no connection within a second")),
            };
            let mut state = slot.lock();
            // Another attempt has been made if this one was taken for abandoned.
            if matches!(&*state, State::Connecting(_, current) if *current == since) {
                *state = match &made {
                    Ok(lane) => State::Open(Arc::clone(lane)),
                    Err(_) => State::Closed,
                };
            }
            drop(state);
            // Those who waited may have gone.
            let _ = done.send(made);
        });
        Ok(attempt.shared())
    }

    /// Gives up a connection, if it is still in use.
    pub(super) fn give_up(&self, lane: &Arc<Lane>) {
        for slot in &self.slots {
            let mut state = slot.lock();
            if matches!(&*state, State::Open(open) if Arc::ptr_eq(open, lane)) {
                *state = State::Closed;
            }
        }
    }

    /// Gives up all connections.
    pub(super) fn give_up_all(&self) {
        for slot in &self.slots {
            let mut state = slot.lock();
            if matches!(&*state, State::Open(_)) {
                *state = State::Closed;
            }
        }
    }
}

/// The runtime that this is awaited on.
pub(super) fn runtime() -> Result<Handle, Fault> {
    Handle::try_current().map_err(|_| Fault::unreachable("a decision in Redis is to be awaited on a tokio runtime"))
}

impl Lane {
    fn new(connection: Arc<dyn Connection>) -> Arc<Self> {
        Arc::new(Self { connection, loading: tokio::sync::Mutex::new(()), loads: AtomicU64::new(0) })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;
    use redis::RedisResult;

    use super::*;
    use crate::store::contract::{StoreError, StoreErrorKind};

    /// What a TLS library does in a process that has not installed its cryptography.
    struct Panicking;

    impl Connector for Panicking {
        fn connect(&self) -> BoxFuture<'static, RedisResult<Arc<dyn Connection>>> {
            Box::pin(async { panic!("no process-level CryptoProvider") })
        }
    }

    #[test]
    fn connecting_that_panics_is_a_failure_that_says_what_to_do() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let pool = Pool::new(Arc::new(Panicking), 1);
        for _ in 0..2 {
            let error: StoreError = runtime.block_on(pool.lane()).err().unwrap().into();
            assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
            assert!(error.to_string().contains("crypto provider"), "{error}");
        }
    }

    /// Takes a moment, and then there is nobody.
    struct Slow;

    impl Connector for Slow {
        fn connect(&self) -> BoxFuture<'static, RedisResult<Arc<dyn Connection>>> {
            Box::pin(async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Err((redis::ErrorKind::Io, "nobody is there").into())
            })
        }
    }

    #[test]
    fn an_attempt_on_a_runtime_that_stands_still_is_not_waited_for_by_another() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (still, other) = (runtime(), runtime());
        let pool = Pool::new(Arc::new(Slow), 1);
        let within = async |time| timeout(Duration::from_millis(time), pool.lane()).await;
        assert!(still.block_on(within(5)).is_err());
        assert!(other.block_on(within(50)).is_err(), "it may yet be made");
        std::thread::sleep(ABANDONED_AFTER);
        let error: StoreError = other.block_on(within(500)).expect("it is made anew").err().unwrap().into();
        assert!(error.to_string().contains("nobody is there"), "{error}");
    }
}
