//! Counters of keys: spread over many locked tables, bounded in number, forgotten once they equal fresh ones.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

use super::entry::Entry;
use super::held::{Found, Held};
use super::lock::{Guard, Lock};
use super::table::Table;
use crate::algorithm::Assessment;
use crate::digest::Digest;
use crate::watermark::Mark;

/// Counters in one table when the store is full: few enough to sweep within a fraction of a millisecond.
const IN_A_TABLE: usize = 4_096;
/// Microseconds between two tables swept in passing.
const SWEEP_EVERY: u64 = 10_000;
/// Seconds for which a counter is kept after it equals a fresh one, for decisions whose reading of the clock is older
/// than that of the decision that forgets it.
const GRACE: u32 = 1;

pub(super) struct Keyed {
    shards: Box<[CachePadded<Shard>]>,
    max: usize,
    seconds: Seconds,
    held: CachePadded<AtomicUsize>,
    sweep: CachePadded<Sweep>,
}

struct Shard {
    /// No counter of this table is forgotten before this second. Written under the lock.
    nothing_before: AtomicU32,
    table: Lock<Table>,
}

/// The sweep in passing: when the next table is due, and which.
#[derive(Default)]
struct Sweep {
    due: AtomicU64,
    next: AtomicUsize,
}

impl Keyed {
    pub(super) fn new(max: usize, made: u64) -> Self {
        let shard = || Shard { nothing_before: AtomicU32::new(u32::MAX), table: Lock::default() };
        Self {
            shards: (0..tables_for(max)).map(|_| CachePadded::new(shard())).collect(),
            max,
            seconds: Seconds { made },
            held: CachePadded::default(),
            sweep: CachePadded::default(),
        }
    }

    /// The second from which a counter may be forgotten that equals a fresh one at this time in microseconds.
    #[inline]
    pub(super) fn to_forget_at(&self, fresh_at: u64) -> u32 {
        self.seconds.to_forget_at(fresh_at)
    }

    pub(super) fn len(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Which lock holds the counter of this digest.
    #[expect(clippy::cast_possible_truncation, reason = "less than the number of tables")]
    #[inline]
    pub(super) fn lock_of(&self, digest: Digest) -> usize {
        // Of a number below 2^64, its part of the number of tables. Within a table the other half of the digest counts.
        ((u128::from(digest.lock) * self.shards.len() as u128) >> 64) as usize
    }

    /// The counters under the lock of this one, to which none will be added.
    #[inline(always)]
    pub(super) fn lock_known(&self, digest: Digest) -> Locked<'_> {
        let shard = &self.shards[self.lock_of(digest)];
        Locked { shard, seconds: self.seconds, table: shard.table.lock() }
    }

    /// The counters under one lock.
    #[inline(always)]
    pub(super) fn lock(&self, lock: usize, now: u64) -> Locked<'_> {
        let shard = &self.shards[lock];
        let mut table = shard.table.lock();
        // Rather forget than grow.
        if table.len() == table.capacity() && shard.may_forget(self.seconds.of(now)) {
            self.forget(shard, &mut table, self.seconds.of(now));
        }
        Locked { shard, seconds: self.seconds, table }
    }

    /// Takes room for so many new counters, or for none.
    #[inline]
    pub(super) fn reserve(&self, new: usize) -> bool {
        if new == 0 {
            return true;
        }
        let fits = |held: usize| held.checked_add(new).filter(|held| *held <= self.max);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Forgets a counter.
    pub(super) fn remove(&self, digest: Digest) {
        if self.shards[self.lock_of(digest)].table.lock().remove(digest) {
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Forgets what equals a fresh counter, up to the first table that had some; whether any had.
    ///
    /// No table may be locked by the caller.
    pub(super) fn make_room(&self, now: u64) -> bool {
        let second = self.seconds.of(now);
        self.shards
            .iter()
            .any(|shard| shard.may_forget(second) && self.forget(shard, &mut shard.table.lock(), second) > 0)
    }

    /// Forgets what equals a fresh counter, one table every few milliseconds, whichever decision comes by.
    #[inline]
    pub(super) fn sweep_in_passing(&self, now: u64) {
        let due = self.sweep.due.load(Ordering::Relaxed);
        if now < due {
            return;
        }
        // After a pause at most one round is caught up on.
        let round = SWEEP_EVERY * self.shards.len() as u64;
        let next_due = due.max(now.saturating_sub(round)) + SWEEP_EVERY;
        if self.sweep.due.compare_exchange(due, next_due, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let next = self.sweep.next.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        let (shard, second) = (&self.shards[next], self.seconds.of(now));
        if shard.may_forget(second)
            && let Some(mut table) = shard.table.try_lock()
        {
            self.forget(shard, &mut table, second);
        }
    }

    /// Forgets what of this table may be forgotten at this second; how many counters that was.
    fn forget(&self, shard: &Shard, table: &mut Table, second: u32) -> usize {
        let (before, mut nothing_before) = (table.len(), u32::MAX);
        table.retain(|entry| {
            let keep = second < entry.forget_at;
            if keep {
                nothing_before = nothing_before.min(entry.forget_at);
            }
            keep
        });
        shard.nothing_before.store(nothing_before, Ordering::Relaxed);
        let forgotten = before - table.len();
        self.held.fetch_sub(forgotten, Ordering::Relaxed);
        forgotten
    }
}

/// How many tables a store of so many counters is spread over: at least 64, so that threads seldom meet, and some thousands
/// at most.
fn tables_for(max: usize) -> usize {
    max.div_ceil(IN_A_TABLE).clamp(64, 8_192)
}

impl Shard {
    fn may_forget(&self, second: u32) -> bool {
        self.nothing_before.load(Ordering::Relaxed) <= second
    }
}

/// The counters under one lock, held.
pub(super) struct Locked<'k> {
    shard: &'k Shard,
    seconds: Seconds,
    table: Guard<'k, Table>,
}

impl Locked<'_> {
    #[inline(always)]
    pub(super) fn entry(&mut self, digest: Digest) -> Option<&mut Entry> {
        self.table.find_mut(digest)
    }
}

impl Held for Locked<'_> {
    const IS_BOUNDED: bool = true;

    fn find(&mut self, digest: Digest) -> Option<Found> {
        self.entry(digest).map(|entry| Found { state: entry.state(), mark: Mark::default() })
    }

    fn write(&mut self, digest: Digest, charged: &Assessment, _: Mark) {
        let forget_at = self.seconds.to_forget_at(charged.fresh_at);
        if let Some(entry) = self.entry(digest) {
            return entry.write(charged, forget_at);
        }
        let entry = Entry::new(digest, charged, forget_at);
        if !self.shard.may_forget(entry.forget_at) {
            self.shard.nothing_before.store(entry.forget_at, Ordering::Relaxed);
        }
        self.table.insert(entry);
    }

    fn rewrite(&mut self, digest: Digest, written: &Assessment, mark: Mark) {
        let forget_at = self.seconds.to_forget_at(written.fresh_at);
        match self.entry(digest) {
            Some(entry) => entry.rewrite(written, forget_at),
            None => self.write(digest, written, mark),
        }
        if !self.shard.may_forget(forget_at) {
            self.shard.nothing_before.store(forget_at, Ordering::Relaxed);
        }
    }

    fn keep_until(&mut self, digest: Digest, fresh_at: u64) {
        let forget_at = self.seconds.to_forget_at(fresh_at);
        if let Some(entry) = self.entry(digest) {
            entry.forget_at = entry.forget_at.max(forget_at);
        }
    }
}

/// Seconds since a store was made, so that they fit into half a word.
#[derive(Clone, Copy)]
struct Seconds {
    /// When the store was made, in microseconds.
    made: u64,
}

impl Seconds {
    /// The second that a time in microseconds lies in.
    fn of(self, micros: u64) -> u32 {
        // The last second, after 136 years, is never reached, so that what is to be kept until then is kept.
        u32::try_from(micros.saturating_sub(self.made) / 1_000_000).unwrap_or(u32::MAX).min(u32::MAX - 1)
    }

    /// The second from which a counter may be forgotten that equals a fresh one at this time: rounded up, and the grace.
    #[inline]
    fn to_forget_at(self, fresh_at: u64) -> u32 {
        self.of(fresh_at).saturating_add(1 + GRACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::State;

    #[test]
    fn a_full_store_has_little_room_left_over() {
        for max in [300_000, 1_000_000] {
            let keyed = Keyed::new(max, 0);
            assert!(keyed.reserve(max));
            for key in 0..max {
                let digest = Digest::of_axis("group", "axis").with(key as u64, &[]);
                let assessment = Assessment {
                    state: State { first: 1, second: 0, third: 0 },
                    used: 1,
                    fits_at: None,
                    fresh_at: 1,
                    is_resting: false,
                };
                keyed.lock(keyed.lock_of(digest), 0).write(digest, &assessment, Mark::default());
            }
            let room: usize = keyed.shards.iter().map(|shard| shard.table.lock().capacity()).sum();
            assert!((max..max + max / 4).contains(&room), "{room} of {max}");
        }
    }

    #[test]
    fn there_are_some_tables_and_not_too_many() {
        for max in [1, 200_000, 1_000_000, 10_000_000, 1_000_000_000, usize::MAX] {
            assert!((64..=8_192).contains(&tables_for(max)), "{max}");
        }
        assert_eq!(tables_for(1_000_000), 245);
    }

    #[test]
    fn a_counter_is_kept_for_a_second_after_it_is_fresh() {
        let seconds = Seconds { made: 5_000_000 };
        assert_eq!(seconds.to_forget_at(5_000_000), 2);
        assert_eq!(seconds.to_forget_at(6_999_999), 3);
        // A clock that was set back keeps what it counts.
        assert!(seconds.of(0) < seconds.to_forget_at(0));
        assert!(seconds.of(u64::MAX) < seconds.to_forget_at(u64::MAX));
    }
}
