//! What a request asks a gate for.

use std::task::{Context, Poll};

use tower_quota_core::Key;

use super::gate::{Entry, Exit, Gate};
use super::word::MOST;

/// What a request takes, and of whose lane.
pub(super) struct Place {
    key: LaneKey,
    weight: usize,
}

/// Whose lane it is; `None` where there is one for all. In a box, since it is carried around.
type LaneKey = Option<Box<Key>>;

impl Place {
    pub(super) fn new(key: LaneKey, weight: usize) -> Self {
        // What took nothing would not be limited.
        Self { key, weight: weight.clamp(1, MOST) }
    }

    /// Asks for it at this gate.
    #[inline]
    pub(super) fn ask(&self, gate: &Gate, most_queued: usize) -> Entry {
        gate.enter(self.key.as_deref(), self.weight, most_queued)
    }

    /// Whether it has been let through, as the waiter of this number, or had to make room for another.
    pub(super) fn poll(&self, gate: &Gate, number: u64, context: &Context<'_>) -> Poll<Exit> {
        gate.poll(self.key.as_deref(), number, context)
    }

    /// Waits no longer as this number.
    pub(super) fn leave_queue(&self, gate: &Gate, number: u64) {
        gate.leave_queue(self.key.as_deref(), number, self.weight);
    }

    /// The request is over.
    #[inline]
    pub(super) fn give_back(&self, gate: &Gate) {
        gate.give_back(self.key.as_deref(), self.weight);
    }
}
