//! Whether the store of a group answers, told once for each change.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::throttle::Throttle;

/// Whether a store answers, as it was last told.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failing: AtomicBool,
    /// Decisions without the store since that was told.
    without: AtomicU64,
    /// A store that fails now and then is told of once a second at most.
    told: Throttle,
}

impl Health {
    /// A decision had to do without the store. `tell` runs if it is the first.
    pub(crate) fn failed(&self, tell: impl FnOnce()) {
        self.without.fetch_add(1, Ordering::Relaxed);
        if !self.failing.load(Ordering::Relaxed) {
            self.told.at_most_each_second(|_| {
                self.failing.store(true, Ordering::Relaxed);
                tell();
            });
        }
    }

    /// The store has answered. `tell` runs, with the number of decisions that had to do without it, if it did not before.
    #[inline]
    pub(crate) fn answered(&self, tell: impl FnOnce(u64)) {
        if self.failing.load(Ordering::Relaxed) {
            self.told.at_most_each_second(|_| {
                self.failing.store(false, Ordering::Relaxed);
                tell(self.without.swap(0, Ordering::Relaxed));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_change_is_told_once_and_flapping_once_a_second() {
        let health = Health::default();
        let lines = std::cell::RefCell::new(Vec::new());
        let fail = || health.failed(|| lines.borrow_mut().push(None));
        let answer = || health.answered(|without| lines.borrow_mut().push(Some(without)));
        answer();
        for _ in 0..1_000 {
            fail();
            fail();
            answer();
        }
        assert!(lines.borrow().len() <= 3, "{lines:?}");
        thread::sleep(Duration::from_millis(1_100));
        fail();
        thread::sleep(Duration::from_millis(1_100));
        answer();
        answer();
        let without: u64 = lines.borrow().iter().flatten().sum();
        assert_eq!((lines.borrow().last().unwrap().is_some(), without), (true, 2_001), "{lines:?}");
    }
}
