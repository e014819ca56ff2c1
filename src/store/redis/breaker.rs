//! Keeps decisions from waiting for a server that does not answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Time between the starts of two probes, at least.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// One for each slot that decisions are made in, since one node of a cluster may fail while the others work.
pub(super) struct Breakers {
    most_failures: u32,
    by_slot: Mutex<HashMap<u16, Arc<Breaker>>>,
}

impl Breakers {
    pub(super) fn new(most_failures: u32) -> Self {
        Self { most_failures, by_slot: Mutex::default() }
    }

    pub(super) fn of(&self, slot: u16) -> Arc<Breaker> {
        let mut by_slot = self.by_slot.lock();
        Arc::clone(by_slot.entry(slot).or_insert_with(|| Arc::new(Breaker::new(self.most_failures))))
    }
}

/// Opens after so many failures in a row. While it is open one decision at a time goes through, as a probe; the first
/// that succeeds closes it.
pub(super) struct Breaker {
    most_failures: u32,
    failures: AtomicU32,
    open: AtomicBool,
    made: Instant,
    /// When the next probe may start, in milliseconds after `made`.
    next_probe: AtomicU64,
    probing: Arc<AtomicBool>,
}

/// What becomes of a decision.
pub(super) enum Admission {
    Pass,
    /// It goes through, to find out whether the server answers again.
    Probe(Probe),
    Blocked,
}

/// A probe under way, until it is dropped.
pub(super) struct Probe(Arc<AtomicBool>);

impl Breaker {
    pub(super) fn new(most_failures: u32) -> Self {
        Self {
            most_failures,
            failures: AtomicU32::new(0),
            open: AtomicBool::new(false),
            made: Instant::now(),
            next_probe: AtomicU64::new(0),
            probing: Arc::new(AtomicBool::new(false)),
        }
    }

    pub(super) fn admit(&self) -> Admission {
        if !self.is_open() {
            return Admission::Pass;
        }
        let now = self.millis();
        let due = self.next_probe.load(Ordering::Relaxed);
        // One that should have ended long ago runs on a runtime that is not driven any more.
        let is_abandoned = now >= due + 2 * millis(PROBE_EVERY);
        let may_probe = now >= due && (is_abandoned || !self.probing.load(Ordering::Acquire));
        let next = now + millis(PROBE_EVERY);
        if may_probe && self.next_probe.compare_exchange(due, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.probing.store(true, Ordering::Release);
            return Admission::Probe(Probe(Arc::clone(&self.probing)));
        }
        Admission::Blocked
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub(super) fn succeeded(&self) {
        // A failure may open it that was counted before, and comes late.
        if self.failures.load(Ordering::Relaxed) > 0 || self.is_open() {
            self.failures.store(0, Ordering::Relaxed);
            self.open.store(false, Ordering::Release);
        }
    }

    /// Whether this failure has opened it.
    pub(super) fn failed(&self) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        failures >= self.most_failures && !self.open.swap(true, Ordering::AcqRel)
    }

    fn millis(&self) -> u64 {
        millis(self.made.elapsed())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(breaker: &Breaker) -> bool {
        matches!(breaker.admit(), Admission::Pass)
    }

    #[test]
    fn it_opens_after_so_many_failures_in_a_row() {
        let breaker = Breaker::new(3);
        for _ in 0..10 {
            assert!(!breaker.failed() && !breaker.failed());
            assert!(passes(&breaker));
            breaker.succeeded();
        }
        assert!(!breaker.failed() && !breaker.failed() && breaker.failed());
        assert!(!breaker.failed(), "it was open");
        assert!(!passes(&breaker));
        breaker.succeeded();
        assert!(passes(&breaker));
    }

    #[test]
    fn it_closes_though_a_late_failure_opened_it_after_a_success() {
        let breaker = Breaker::new(1);
        breaker.failed();
        breaker.succeeded();
        // Counted before the success, and only now taken for the one too many.
        breaker.open.store(true, Ordering::Release);
        breaker.succeeded();
        assert!(passes(&breaker));
    }

    #[test]
    fn one_probe_goes_through_in_a_second_and_one_at_a_time() {
        let breaker = Breaker::new(1);
        breaker.failed();
        let Admission::Probe(probe) = breaker.admit() else { panic!("the first request is a probe") };
        std::thread::sleep(PROBE_EVERY + Duration::from_millis(50));
        assert!(matches!(breaker.admit(), Admission::Blocked), "a probe is under way");
        drop(probe);
        let Admission::Probe(probe) = breaker.admit() else { panic!("it took more than a second") };
        drop(probe);
        assert!(matches!(breaker.admit(), Admission::Blocked), "it has just been tried");

        std::thread::sleep(PROBE_EVERY);
        let Admission::Probe(_stands_still) = breaker.admit() else { panic!("it took more than a second") };
        std::thread::sleep(3 * PROBE_EVERY);
        assert!(matches!(breaker.admit(), Admission::Probe(_)), "a probe that does not end is not waited for");
    }
}
