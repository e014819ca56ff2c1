//! Counters of shared axes: one lock and its counter in one place, since every decision of a service comes by.

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::held::{Found, Held};
use crate::algorithm::{Assessment, State};
use crate::digest::Digest;
use crate::watermark::Mark;

/// More than there are shared axes, most of the time, so that each has a cell for itself.
const CELLS: usize = 64;

pub(super) struct Shared {
    cells: Box<[CachePadded<Mutex<Cell>>]>,
}

/// The counters of the axes that fall into this cell: mostly none or one.
type Cell = SmallVec<[Counter; 1]>;

pub(super) struct Counter {
    digest: Digest,
    pub(super) state: State,
    pub(super) mark: Mark,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self { cells: (0..CELLS).map(|_| CachePadded::default()).collect() }
    }

    /// Which lock holds the counter of this digest.
    #[expect(clippy::cast_possible_truncation, reason = "any bits of a digest will do")]
    #[inline]
    pub(super) fn lock_of(digest: Digest) -> usize {
        digest.lock as usize % CELLS
    }

    /// The counters under one lock.
    #[inline]
    pub(super) fn lock(&self, lock: usize) -> Locked<'_> {
        Locked(self.cells[lock % CELLS].lock())
    }

    /// Forgets a counter.
    pub(super) fn remove(&self, digest: Digest) {
        self.cells[Self::lock_of(digest)].lock().retain(|counter| counter.digest != digest);
    }
}

/// The counters under one lock, held.
pub(super) struct Locked<'s>(MutexGuard<'s, Cell>);

impl Locked<'_> {
    #[inline]
    pub(super) fn counter(&mut self, digest: Digest) -> Option<&mut Counter> {
        self.0.iter_mut().find(|counter| counter.digest == digest)
    }
}

impl Held for Locked<'_> {
    const IS_BOUNDED: bool = false;

    fn find(&mut self, digest: Digest) -> Option<Found> {
        self.counter(digest).map(|counter| Found { state: counter.state, mark: counter.mark })
    }

    fn write(&mut self, digest: Digest, charged: &Assessment, mark: Mark) {
        let state = charged.state;
        match self.counter(digest) {
            Some(counter) => (counter.state, counter.mark) = (state, mark),
            None => self.0.push(Counter { digest, state, mark }),
        }
    }

    fn rewrite(&mut self, digest: Digest, written: &Assessment, mark: Mark) {
        self.write(digest, written, mark);
    }

    fn keep_until(&mut self, _: Digest, _: u64) {
        // A shared counter is never forgotten.
    }
}
