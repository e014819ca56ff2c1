//! What a request holds while it is in flight.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::gate::Exit;
use super::place::Place;
use super::rules::Rules;

/// A place among the requests in flight, given back when it is dropped.
pub(super) struct Held {
    of: Arc<Rules>,
    place: Place,
}

impl Held {
    /// What has gone through.
    #[inline]
    pub(super) fn new(of: Arc<Rules>, place: Place) -> Self {
        Self { of, place }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        self.place.give_back(&self.of.gate);
    }
}

/// A place in the queue, left when it is dropped.
pub(super) struct Waiting {
    of: Arc<Rules>,
    number: u64,
    /// `None`: it waits no more.
    place: Option<Place>,
}

impl Waiting {
    /// What waits as this number.
    pub(super) fn new(of: Arc<Rules>, place: Place, number: u64) -> Self {
        Self { of, number, place: Some(place) }
    }
}

impl Future for Waiting {
    /// `None`: it had to make room for another.
    type Output = Option<Held>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Held>> {
        let place = self.place.as_ref().expect("a future is not polled after it is ready");
        let exit = ready!(place.poll(&self.of.gate, self.number, context));
        let place = self.place.take();
        Poll::Ready(place.filter(|_| exit == Exit::Through).map(|place| Held::new(Arc::clone(&self.of), place)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            place.leave_queue(&self.of.gate, self.number);
        }
    }
}

/// What a request holds while it is in flight: its place is given back when the last clone is dropped. Of layers around each
/// other it holds the place in each.
///
/// A handler that upgrades the connection finds it in the request's extensions, and keeps it in the task that goes on
/// with the connection: otherwise the place is given back with the response. It is there only for requests that ask for
/// an upgrade (an `Upgrade` header, or `CONNECT`).
///
/// ```
/// use tower_quota::Permit;
///
/// fn upgraded(request: &http::Request<()>) -> Option<Permit> {
///     request.extensions().get().cloned()
/// }
/// # let _ = upgraded;
/// ```
#[derive(Clone)]
pub struct Permit {
    #[expect(dead_code, reason = "it is held")]
    lease: Arc<Lease>,
    /// That of a layer further out.
    #[expect(dead_code, reason = "it is held")]
    outer: Option<Arc<Permit>>,
}

/// A place that several hold, and that may be given back before all of them have let go.
pub(super) struct Lease {
    held: Mutex<Option<Held>>,
    /// Ends the hold in time.
    timer: OnceLock<AbortHandle>,
}

impl Lease {
    /// A hold that ends after `at_most`, if there is a runtime to tell the time.
    fn new(held: Held, at_most: Option<Duration>) -> Arc<Self> {
        let lease = Arc::new(Self { held: Mutex::new(Some(held)), timer: OnceLock::new() });
        if let (Some(time), Ok(runtime)) = (at_most, Handle::try_current()) {
            let held = Arc::downgrade(&lease);
            let timer = runtime.spawn(async move {
                tokio::time::sleep(time).await;
                if let Some(lease) = held.upgrade() {
                    drop(lease.held.lock().unwrap_or_else(PoisonError::into_inner).take());
                }
            });
            let _ = lease.timer.set(timer.abort_handle());
        }
        lease
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.get() {
            timer.abort();
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

/// A place that is the response's alone, or shared with the handler or a timer.
pub(super) enum Holding {
    Alone(#[expect(dead_code, reason = "it is held")] Held),
    Shared(#[expect(dead_code, reason = "it is held")] Arc<Lease>),
}

impl Holding {
    /// The response's hold on its place.
    #[inline]
    pub(super) fn new(held: Held) -> Self {
        match held.of.max_hold {
            None => Self::Alone(held),
            at_most => Self::Shared(Lease::new(held, at_most)),
        }
    }

    /// The response's hold, and one for the handler beside that of a layer further out.
    pub(super) fn with_handler(held: Held, outer: Option<Permit>) -> (Self, Permit) {
        let at_most = held.of.max_hold;
        let lease = Lease::new(held, at_most);
        (Self::Shared(Arc::clone(&lease)), Permit { lease, outer: outer.map(Arc::new) })
    }
}

/// Every order of threads that a scheduler can think of, or as many as there is time for:
/// `RUSTFLAGS="--cfg shuttle" cargo test -p tower-quota --lib permit`.
#[cfg(all(test, shuttle))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use shuttle::future::{block_on, spawn, yield_now};

    use super::super::gate::{Entry, Gate, Limits};
    use super::*;

    const LIMIT: usize = 2;

    /// Five requests, of which one gives up while it waits and one changes the limit: all end, no more than the limit are
    /// in flight, and nothing is left.
    fn requests_come_and_go(gate: Gate, keys: &'static [&'static str]) {
        let rules = Arc::new(Rules::new(gate, None));
        let in_flight = Arc::new(AtomicUsize::new(0));
        let requests: Vec<_> = (0..5)
            .map(|number| {
                let (rules, in_flight) = (Arc::clone(&rules), Arc::clone(&in_flight));
                let place = Place::new(keys.get(number % keys.len().max(1)).map(|key| Box::new((*key).into())), 1);
                spawn(async move {
                    let held = match place.ask(&rules.gate, 10) {
                        Entry::Through => Held::new(rules.clone(), place),
                        Entry::Queued(waiter) if number == 3 => {
                            match Waiting::new(rules.clone(), place, waiter).now_or_never() {
                                Some(held) => held.expect("nobody makes room"),
                                None => return,
                            }
                        }
                        Entry::Queued(waiter) => {
                            let held = Waiting::new(rules.clone(), place, waiter).await;
                            held.expect("nobody makes room")
                        }
                        Entry::Full => panic!("there is room to wait"),
                    };
                    assert!(in_flight.fetch_add(1, Ordering::SeqCst) < LIMIT);
                    yield_now().await;
                    in_flight.fetch_sub(1, Ordering::SeqCst);
                    drop(held);
                    if number == 1 {
                        rules.gate.set_limits(|limits| limits.total = 1);
                        rules.gate.set_limits(|limits| limits.total = LIMIT);
                    }
                })
            })
            .collect();
        block_on(async {
            for request in requests {
                request.await.unwrap();
            }
        });
        assert_eq!((rules.gate.in_flight(), rules.gate.queued()), (0, 0));
    }

    #[test]
    fn no_permit_is_lost_and_none_is_given_twice() {
        shuttle::check_random(|| requests_come_and_go(Gate::new(LIMIT), &[]), 20_000);
    }

    #[test]
    fn nor_between_keys() {
        let limits = Limits { lane: 1, total: LIMIT };
        shuttle::check_random(move || requests_come_and_go(Gate::per_key(limits), &["a", "b", "c"]), 20_000);
    }
}
