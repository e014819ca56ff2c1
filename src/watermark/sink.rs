//! Hands events to somebody else's code, on a thread of its own.

use std::collections::VecDeque;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

use super::WatermarkEvent;
use crate::quiet::quietly;

/// How many events wait for a sink that is busy.
const MOST_WAITING: usize = 64;

#[derive(Clone)]
pub(super) struct Sink(Arc<Shared>);

struct Shared {
    handle: Box<dyn Fn(&WatermarkEvent) + Send + Sync>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<WatermarkEvent>,
    has_thread: bool,
}

impl Sink {
    pub(super) fn new(handle: impl Fn(&WatermarkEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { handle: Box::new(handle), queue: Mutex::default() }))
    }

    /// Leaves the event with the sink's thread, which is started if there is none.
    pub(super) fn send(&self, event: WatermarkEvent) {
        let mut queue = self.0.queue.lock();
        let is_full = queue.waiting.len() == MOST_WAITING;
        if is_full {
            queue.waiting.pop_front();
        }
        queue.waiting.push_back(event);
        let starts = !mem::replace(&mut queue.has_thread, true);
        drop(queue);
        if is_full {
            quietly(|| {
                tracing::warn!(target: "tower_quota::watermark", "a sink is too slow: its oldest event is dropped");
            });
        }
        if starts {
            self.start();
        }
    }

    fn start(&self) {
        let worker = Worker(Arc::clone(&self.0));
        let thread = thread::Builder::new().name("tower-quota-watermark".into());
        if let Err(error) = thread.spawn(move || worker.hand_over()) {
            // The event waits for the next one to try again.
            self.0.queue.lock().has_thread = false;
            tracing::error!(target: "tower_quota::watermark", %error, "no thread for a sink");
        }
    }
}

/// What the sink's thread does. However it ends, another can be started.
struct Worker(Arc<Shared>);

impl Worker {
    fn hand_over(&self) {
        while let Some(event) = self.next() {
            if catch_unwind(AssertUnwindSafe(|| (self.0.handle)(&event))).is_err() {
                tracing::error!(target: "tower_quota::watermark", "a sink panicked");
            }
        }
    }

    /// The next event; without one the thread is over.
    fn next(&self) -> Option<WatermarkEvent> {
        let mut queue = self.0.queue.lock();
        let event = queue.waiting.pop_front();
        queue.has_thread = event.is_some();
        event
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.queue.lock().has_thread = false;
        }
    }
}
