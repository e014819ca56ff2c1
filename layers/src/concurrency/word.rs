//! Permits counted in one word, as long as nobody waits.

#[cfg(not(all(test, shuttle)))]
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(all(test, shuttle))]
use shuttle::sync::atomic::{AtomicUsize, Ordering};

/// What is in flight, and how much may be: without a lock, for the requests of one lane. Closed, it counts nothing, and
/// whoever closed it counts instead.
pub(super) struct Word {
    /// What is in flight, or, from `LEAST_CLOSED` up, that nothing is counted here.
    in_flight: AtomicUsize,
    limit: AtomicUsize,
}

const LEAST_CLOSED: usize = 1 << (usize::BITS - 1);

/// No limit and no weight is higher, so that what is in flight never makes a word a closed one.
pub(super) const MOST: usize = LEAST_CLOSED >> 1;

/// Far enough up to stay closed while all that is in flight is given back, one after the other, before whoever does sees
/// that it is not counted here.
const CLOSED: usize = LEAST_CLOSED + MOST;

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Done,
    NoRoom,
    Closed,
}

/// Whether so much more may be in flight. What is heavier than the limit goes when nothing else does.
#[inline]
pub(super) fn fits(in_flight: usize, weight: usize, limit: usize) -> bool {
    limit > 0 && (in_flight == 0 || in_flight.saturating_add(weight) <= limit)
}

/// What is in flight, if it is counted in the word.
fn counted(word: usize) -> usize {
    if word < LEAST_CLOSED { word } else { 0 }
}

impl Word {
    pub(super) fn closed() -> Self {
        Self { in_flight: AtomicUsize::new(CLOSED), limit: AtomicUsize::new(0) }
    }

    /// Takes so much, if there is room.
    #[inline]
    pub(super) fn take(&self, weight: usize) -> Attempt {
        let mut in_flight = self.in_flight.load(Ordering::Relaxed);
        loop {
            if in_flight >= LEAST_CLOSED {
                return Attempt::Closed;
            }
            if !fits(in_flight, weight, self.limit.load(Ordering::Relaxed)) {
                return Attempt::NoRoom;
            }
            match self.in_flight.compare_exchange_weak(
                in_flight,
                in_flight + weight,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Attempt::Done,
                Err(now) => in_flight = now,
            }
        }
    }

    /// Gives so much back; whether it was counted here.
    #[inline]
    pub(super) fn give_back(&self, weight: usize) -> bool {
        // Looked at first, so that a word that stays closed is left alone.
        self.in_flight.load(Ordering::Relaxed) < LEAST_CLOSED
            && self.in_flight.fetch_sub(weight, Ordering::Release) < LEAST_CLOSED
    }

    /// What is in flight here.
    pub(super) fn in_flight(&self) -> usize {
        counted(self.in_flight.load(Ordering::Acquire))
    }

    /// Counts no more; what was in flight.
    pub(super) fn close(&self) -> usize {
        counted(self.in_flight.swap(CLOSED, Ordering::AcqRel))
    }

    /// Counts from here on.
    pub(super) fn open(&self, in_flight: usize, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
        self.in_flight.store(in_flight, Ordering::Release);
    }
}
