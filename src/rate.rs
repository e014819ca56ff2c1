//! The quota of an axis, read by every decision and changed now and then.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use parking_lot::Mutex;

use crate::digest::Digest;
use crate::name::Label;
use crate::quota::Quota;

/// A quota of an axis, and what stands in memory for all that names a counter of it but the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) quota: Quota,
    pub(crate) digest: Digest,
}

impl Rate {
    pub(crate) fn of(label: &Label, quota: Quota) -> Self {
        // A period has at most 49 bits.
        let identity = quota.named_period() << 8 | quota.algorithm() as u64;
        Self { quota, digest: label.digest.with(identity, &[]) }
    }

    /// Stands for the counter of a key.
    #[inline]
    pub(crate) fn counter_of(&self, key: &[u8]) -> Digest {
        self.digest.with(1, key)
    }
}

/// A rate that is read without a lock and without being moved around in memory: a sequence lock.
///
/// Source: "Can seqlocks get along with programming language memory models?" (H.-J. Boehm, 2012), the variant with
/// relaxed data and fences. The version is odd while a writer is at work, and a reader that saw it change reads again.
#[derive(Debug)]
pub(crate) struct LiveRate {
    version: AtomicU64,
    words: [AtomicU64; WORDS],
    writer: Mutex<()>,
}

const WORDS: usize = Quota::WORDS + 2;

impl LiveRate {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { version: AtomicU64::new(0), words: to_words(rate).map(AtomicU64::new), writer: Mutex::new(()) }
    }

    #[inline(always)]
    pub(crate) fn load(&self) -> Rate {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let words = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return from_words(words);
            }
            std::hint::spin_loop();
        }
    }

    /// Changes the rate; the one before.
    pub(crate) fn swap(&self, rate: Rate) -> Rate {
        let _writer = self.writer.lock();
        let before = self.load();
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, new) in self.words.iter().zip(to_words(rate)) {
            word.store(new, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
        before
    }
}

fn to_words(Rate { quota, digest }: Rate) -> [u64; WORDS] {
    let [limit, period, ticks, refill] = quota.to_words();
    [limit, period, ticks, refill, digest.lock, digest.place]
}

#[inline(always)]
fn from_words([limit, period, ticks, refill, lock, place]: [u64; WORDS]) -> Rate {
    Rate { quota: Quota::from_words([limit, period, ticks, refill]), digest: Digest { lock, place } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DAY, HOUR, SECOND};

    fn rates() -> [Rate; 4] {
        let label = Label::of("group", "rates", true);
        [
            Quota::fixed_window(1 << 52, HOUR),
            Quota::aligned_window(0, DAY),
            Quota::per_second(1 << 26),
            Quota::token_bucket(1 << 40, 1 << 26, SECOND),
        ]
        .map(|quota| Rate::of(label, quota.unwrap()))
    }

    #[test]
    fn a_rate_reads_as_it_was_written() {
        let live = LiveRate::new(rates()[0]);
        for rate in rates() {
            live.swap(rate);
            assert_eq!(live.load(), rate);
        }
    }

    #[test]
    fn no_reader_sees_half_of_a_change() {
        let live = LiveRate::new(rates()[0]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..100_000 {
                    live.swap(rates()[round % 4]);
                }
            });
            for _ in 0..100_000 {
                let rate = live.load();
                assert!(rates().contains(&rate), "{rate:?}");
            }
        });
    }
}
