//! Counters of shared axes: one lock and its counter in one place, since every decision of a service comes by.

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;

use super::held::{Found, Held};
use super::lock::{Guard, Lock};
use crate::algorithm::{Assessment, State};
use crate::digest::Digest;
use crate::watermark::Mark;

/// More than there are shared axes, most of the time, so that each has a cell for itself.
const CELLS: usize = 64;

pub(super) struct Shared {
    cells: Box<[CachePadded<Lock<Cell>>]>,
}

/// The counters of the axes that fall into this cell: mostly none or one.
type Cell = SmallVec<[Counter; 1]>;

/// In 48 bytes, so that it is in one cache line with its lock: threads hand both to each other.
pub(super) struct Counter {
    digest: Digest,
    first: u64,
    second: u64,
    third: u32,
    above: bool,
    episode: u64,
}

impl Counter {
    #[inline(always)]
    pub(super) fn state(&self) -> State {
        State { first: self.first, second: self.second, third: self.third }
    }

    #[inline(always)]
    pub(super) fn mark(&self) -> Mark {
        Mark { above: self.above, episode: self.episode }
    }

    #[inline(always)]
    pub(super) fn write(&mut self, state: State) {
        let State { first, second, third } = state;
        (self.first, self.second, self.third) = (first, second, third);
    }
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
pub(super) struct Locked<'s>(Guard<'s, Cell>);

impl Locked<'_> {
    #[inline]
    pub(super) fn counter(&mut self, digest: Digest) -> Option<&mut Counter> {
        self.0.iter_mut().find(|counter| counter.digest == digest)
    }
}

impl Held for Locked<'_> {
    const IS_BOUNDED: bool = false;

    fn find(&mut self, digest: Digest) -> Option<Found> {
        self.counter(digest).map(|counter| Found { state: counter.state(), mark: counter.mark() })
    }

    fn write(&mut self, digest: Digest, charged: &Assessment, mark: Mark) {
        let (State { first, second, third }, Mark { above, episode }) = (charged.state, mark);
        let written = Counter { digest, first, second, third, above, episode };
        match self.counter(digest) {
            Some(counter) => *counter = written,
            None => self.0.push(written),
        }
    }

    fn rewrite(&mut self, digest: Digest, written: &Assessment, mark: Mark) {
        self.write(digest, written, mark);
    }

    fn keep_until(&mut self, _: Digest, _: u64) {
        // A shared counter is never forgotten.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_and_its_lock_are_in_one_cache_line() {
        assert!(size_of::<Lock<Cell>>() <= 64);
    }
}
