//! The lock that a few counters have in common.

use std::time::Duration;
use std::{hint, thread};

use spinning_top::RawSpinlock;
use spinning_top::lock_api::{Mutex, MutexGuard};
use spinning_top::relax::Relax;

/// Taken by one atomic operation and given back by a plain store: half of what a lock costs that knows who sleeps on it.
/// Whoever holds it computes for some tens of nanoseconds, or sweeps a table, and waits for nothing but other locks.
pub(super) type Lock<T> = Mutex<RawSpinlock<Patience>, T>;

/// A lock, held.
pub(super) type Guard<'l, T> = MutexGuard<'l, RawSpinlock<Patience>, T>;

/// How to wait for a lock: spin for as long as most hold it, then let other threads run; and sleep if that did not help,
/// since whoever holds it was suspended, and may need this very processor.
#[derive(Default)]
pub(super) struct Patience {
    waited: u32,
}

impl Patience {
    const SPINS: u32 = 6;
    const YIELDS: u32 = 10;
}

impl Relax for Patience {
    #[cold]
    fn relax(&mut self) {
        if self.waited < Self::SPINS {
            (0..1 << self.waited).for_each(|_| hint::spin_loop());
        } else if self.waited < Self::SPINS + Self::YIELDS {
            thread::yield_now();
        } else {
            return thread::sleep(Duration::from_micros(50));
        }
        self.waited += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn each_finds_what_the_one_before_has_left() {
        let lock = Lock::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 80_000);
    }

    #[test]
    fn whoever_waits_for_long_sleeps_and_gets_it_in_the_end() {
        let lock = Lock::new(0);
        let (held, is_held) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut value = lock.lock();
                held.send(Instant::now()).unwrap();
                thread::sleep(Duration::from_millis(20));
                *value = 1;
            });
            let since = is_held.recv().unwrap();
            assert_eq!(*lock.lock(), 1);
            assert!(since.elapsed() >= Duration::from_millis(20));
        });
    }
}
