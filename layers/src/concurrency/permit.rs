//! What a request holds while it is in flight.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_quota_core::Key;

use super::gate::{Entry, Gate};

/// A place among the requests in flight, given back when it is dropped.
pub(super) struct Held {
    gate: Arc<Gate>,
    key: LaneKey,
    weight: usize,
}

/// Whose lane it is; `None` where there is one for all. In a box, since it is carried around.
type LaneKey = Option<Box<Key>>;

impl Held {
    /// Goes through the gate at once, or waits in front of it, or finds no place to wait.
    pub(super) fn ask(gate: &Arc<Gate>, key: LaneKey, weight: usize, most_queued: usize) -> Asked {
        // What took nothing would not be limited.
        let weight = weight.max(1);
        match gate.enter(key.as_deref(), weight, most_queued) {
            Entry::Through => Asked::Through(Self { gate: Arc::clone(gate), key, weight }),
            Entry::Queued(number) => {
                Asked::Queued(Waiting { gate: Arc::clone(gate), place: Some(Place { key, weight, number }) })
            }
            Entry::Full => Asked::Full,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gate.give_back(self.key.as_deref(), self.weight);
    }
}

/// What asking for a place came to.
pub(super) enum Asked {
    Through(Held),
    Queued(Waiting),
    Full,
}

/// A place in the queue, left when it is dropped.
pub(super) struct Waiting {
    gate: Arc<Gate>,
    /// `None`: it has been taken through.
    place: Option<Place>,
}

struct Place {
    key: LaneKey,
    weight: usize,
    number: u64,
}

impl Future for Waiting {
    type Output = Held;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Held> {
        let Some(Place { key, number, .. }) = &self.place else {
            panic!("a future is not polled after it is ready");
        };
        if self.gate.poll(key.as_deref(), *number, context).is_pending() {
            return Poll::Pending;
        }
        let Some(Place { key, weight, .. }) = self.place.take() else { unreachable!("it was there") };
        Poll::Ready(Held { gate: Arc::clone(&self.gate), key, weight })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(Place { key, weight, number }) = self.place.take() {
            self.gate.leave_queue(key.as_deref(), number, weight);
        }
    }
}

/// What a request holds while it is in flight: its place is given back when the last clone is dropped.
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
pub struct Permit(#[expect(dead_code, reason = "it is held")] Arc<Held>);

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

/// A place that is the response's alone, or shared with the handler.
pub(super) enum Holding {
    Alone(#[expect(dead_code, reason = "it is held")] Held),
    Shared(#[expect(dead_code, reason = "it is held")] Permit),
}

impl Holding {
    /// The response's hold, and one for the handler.
    pub(super) fn shared(held: Held) -> (Self, Permit) {
        let permit = Permit(Arc::new(held));
        (Self::Shared(permit.clone()), permit)
    }
}

/// Every order of threads that a scheduler can think of, or as many as there is time for:
/// `RUSTFLAGS="--cfg shuttle" cargo test -p tower-quota --lib permit`.
#[cfg(all(test, shuttle))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use shuttle::future::{block_on, spawn, yield_now};

    use super::super::gate::Limits;
    use super::*;

    const LIMIT: usize = 2;

    /// Five requests, of which one gives up while it waits and one changes the limit: all end, no more than the limit are
    /// in flight, and nothing is left.
    fn requests_come_and_go(gate: &Arc<Gate>, keys: &'static [&'static str]) {
        let in_flight = Arc::new(AtomicUsize::new(0));
        let requests: Vec<_> = (0..5)
            .map(|number| {
                let (gate, in_flight) = (Arc::clone(gate), Arc::clone(&in_flight));
                let key = keys.get(number % keys.len().max(1)).map(|key| Box::new(Key::from(*key)));
                spawn(async move {
                    let held = match Held::ask(&gate, key, 1, 10) {
                        Asked::Through(held) => held,
                        Asked::Queued(waiting) if number == 3 => match waiting.now_or_never() {
                            Some(held) => held,
                            None => return,
                        },
                        Asked::Queued(waiting) => waiting.await,
                        Asked::Full => panic!("there is room to wait"),
                    };
                    assert!(in_flight.fetch_add(1, Ordering::SeqCst) < LIMIT);
                    yield_now().await;
                    in_flight.fetch_sub(1, Ordering::SeqCst);
                    drop(held);
                    if number == 1 {
                        gate.set_limits(|limits| limits.total = 1);
                        gate.set_limits(|limits| limits.total = LIMIT);
                    }
                })
            })
            .collect();
        block_on(async {
            for request in requests {
                request.await.unwrap();
            }
        });
        assert_eq!((gate.in_flight(), gate.queued()), (0, 0));
    }

    #[test]
    fn no_permit_is_lost_and_none_is_given_twice() {
        shuttle::check_random(|| requests_come_and_go(&Arc::new(Gate::new(LIMIT)), &[]), 20_000);
    }

    #[test]
    fn nor_between_keys() {
        let limits = Limits { lane: 1, total: LIMIT };
        shuttle::check_random(move || requests_come_and_go(&Arc::new(Gate::per_key(limits)), &["a", "b", "c"]), 20_000);
    }
}
