//! Keeps a flood of requests from becoming a flood of log lines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Lets one event through in a second, and counts those it held back.
#[doc(hidden)]
#[derive(Debug)]
pub struct Throttle {
    started: Instant,
    /// The second, from 1, of the last event that was let through; 0 is none.
    last: AtomicU64,
    held_back: AtomicU64,
}

impl Throttle {
    /// One that has let nothing through yet.
    pub fn new() -> Self {
        Self { started: Instant::now(), last: AtomicU64::new(0), held_back: AtomicU64::new(0) }
    }

    /// Runs `event` with the number of events held back before it, unless one ran in this second.
    pub fn at_most_each_second(&self, event: impl FnOnce(u64)) {
        let second = self.started.elapsed().as_secs() + 1;
        if self.last.swap(second, Ordering::Relaxed) == second {
            self.held_back.fetch_add(1, Ordering::Relaxed);
        } else {
            event(self.held_back.swap(0, Ordering::Relaxed));
        }
    }
}

impl Default for Throttle {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_events_is_a_line_a_second_with_a_count() {
        let throttle = Throttle::new();
        let mut lines = Vec::new();
        for _ in 0..1_000 {
            throttle.at_most_each_second(|held_back| lines.push(held_back));
        }
        assert!(lines.len() <= 2, "{lines:?}");
        throttle.last.store(0, Ordering::Relaxed);
        throttle.at_most_each_second(|held_back| lines.push(held_back));
        let seen = u64::try_from(lines.len()).unwrap() + lines.iter().sum::<u64>();
        assert_eq!(seen, 1_001);
    }
}
