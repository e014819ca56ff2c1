//! An open-addressing table of counters, laid out so that looking for one waits for memory once.

use super::entry::Entry;
use crate::digest::Digest;

/// Counters of 32 bytes that fill one cache line.
const WIDTH: usize = 2;

/// Counters by their digests, in buckets that are searched one after the other (Knuth, The Art of Computer Programming,
/// volume 3, section 6.4).
///
/// A counter lies in the bucket that its digest points at, its home, or else in the first one behind that had room: no
/// bucket between the two has a vacant place. Nothing but the digest says where to look, and most are found in the first
/// line or the next: so a search waits for memory once, where a table with an index ahead of its counters would have it
/// wait twice. At most four fifths of the places are taken, and of a large table that grows at least some 0.64.
#[derive(Default)]
pub(super) struct Table {
    buckets: Box<[Bucket]>,
    len: usize,
}

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Bucket([Entry; WIDTH]);

impl Table {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// For how many counters there is room.
    pub(super) fn capacity(&self) -> usize {
        self.buckets.len() * WIDTH * 4 / 5
    }

    #[inline(always)]
    pub(super) fn find_mut(&mut self, digest: Digest) -> Option<&mut Entry> {
        let (bucket, place) = self.position(digest)?;
        Some(&mut self.buckets[bucket].0[place])
    }

    /// Takes in a counter that is not there.
    pub(super) fn insert(&mut self, entry: Entry) {
        if self.len >= self.capacity() {
            self.resize(self.buckets.len() + self.buckets.len() / 4 + 1);
        }
        self.put(entry);
    }

    /// Forgets a counter; whether it was there.
    pub(super) fn remove(&mut self, digest: Digest) -> bool {
        let position = self.position(digest);
        if let Some((bucket, place)) = position {
            self.vacate(bucket, place);
        }
        position.is_some()
    }

    /// Forgets all counters but those to `keep`, and gives back memory that the others need no more. Looks at each once.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        // From behind a bucket that no counter has passed: so all on the way of a counter are settled when it is its turn, and
        // it is put where it was or nearer to its home.
        let room = self.buckets.iter().position(Bucket::has_room);
        for bucket in self.way_from(room.map_or(0, |room| room + 1)) {
            for place in 0..WIDTH {
                let entry = std::mem::take(&mut self.buckets[bucket].0[place]);
                if entry.is_vacant() {
                    continue;
                }
                self.len -= 1;
                if keep(&entry) {
                    self.put(entry);
                }
            }
        }
        if self.len < self.capacity() / 4 {
            // Half full.
            self.resize(self.len + 1);
        }
    }

    /// The bucket and the place in it where a counter is.
    #[inline(always)]
    fn position(&self, digest: Digest) -> Option<(usize, usize)> {
        let tag = Entry::tag_of(digest);
        for at in self.way_from(self.home(tag)) {
            let bucket = &self.buckets[at];
            if let Some(place) = bucket.place_of(tag) {
                return Some((at, place));
            }
            if bucket.has_room() {
                break;
            }
        }
        None
    }

    /// The bucket in which a counter is looked for first.
    #[expect(clippy::cast_possible_truncation, reason = "less than the number of buckets")]
    #[inline(always)]
    fn home(&self, tag: u64) -> usize {
        ((u128::from(tag) * self.buckets.len() as u128) >> 64) as usize
    }

    /// All buckets in the order in which they are searched, from this one on.
    #[inline(always)]
    fn way_from(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        (first..self.buckets.len()).chain(0..first)
    }

    /// Puts a counter into the first vacant place on its way: there is one.
    fn put(&mut self, entry: Entry) {
        for at in self.way_from(self.home(entry.tag)) {
            if let Some(vacant) = self.buckets[at].0.iter_mut().find(|place| place.is_vacant()) {
                *vacant = entry;
                self.len += 1;
                return;
            }
        }
    }

    /// Takes a counter out, and moves up one that had passed its bucket, and so on, so that no search ends too early
    /// (Knuth's algorithm R).
    fn vacate(&mut self, mut bucket: usize, mut place: usize) {
        self.len -= 1;
        for next in self.way_from(bucket).skip(1) {
            let has_room = self.buckets[next].has_room();
            if let Some(moved) = (0..WIDTH).find(|moved| self.has_passed(bucket, next, *moved)) {
                self.buckets[bucket].0[place] = self.buckets[next].0[moved];
                (bucket, place) = (next, moved);
            }
            if has_room {
                break;
            }
        }
        self.buckets[bucket].0[place] = Entry::default();
    }

    /// Whether the counter in a place, if there is one, came by this bucket on its way.
    fn has_passed(&self, bucket: usize, at: usize, place: usize) -> bool {
        let entry = &self.buckets[at].0[place];
        let way_to = |from: usize| (at + self.buckets.len() - from) % self.buckets.len();
        !entry.is_vacant() && way_to(self.home(entry.tag)) >= way_to(bucket)
    }

    fn resize(&mut self, buckets: usize) {
        let before = std::mem::take(self);
        self.buckets = vec![Bucket::default(); buckets].into_boxed_slice();
        for entry in before.buckets.iter().flat_map(|bucket| bucket.0) {
            if !entry.is_vacant() {
                self.put(entry);
            }
        }
    }
}

impl Bucket {
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.0.iter().any(Entry::is_vacant)
    }

    /// Where in this bucket a counter is. All places are compared before it is known which it is: a processor could only
    /// guess.
    #[inline(always)]
    fn place_of(&self, tag: u64) -> Option<usize> {
        let found = (0..WIDTH).fold(0, |found, place| found | u32::from(self.0[place].tag == tag) << place);
        (found != 0).then(|| found.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::algorithm::{Assessment, State};

    #[test]
    fn a_bucket_fills_one_cache_line() {
        assert_eq!((size_of::<Bucket>(), align_of::<Bucket>()), (64, 64));
    }

    /// Digests that point at a few homes, the last and the first among them, so that ways are long and lead around the end.
    fn crowded(number: u64) -> Digest {
        let home = [0, u64::MAX << 32, u64::MAX / 3, 1 << 62][usize::try_from(number % 4).unwrap()];
        Digest { lock: 0, place: home ^ (number << 1) }
    }

    fn entry(digest: Digest, forget_at: u32) -> Entry {
        let state = State { first: digest.place, second: 0, third: 0 };
        let charged = Assessment { state, used: 1, fits_at: None, fresh_at: 1, is_resting: false };
        Entry::new(digest, &charged, forget_at)
    }

    /// Does with a table and with a map what these numbers say, and compares them after each step.
    fn compare(numbers: impl Iterator<Item = u64>, keys: u64) {
        let (mut table, mut model) = (Table::default(), BTreeMap::new());
        for number in numbers {
            let (key, forget_at) = (number / 8 % keys, u32::try_from(number >> 40).unwrap());
            match number % 8 {
                0 if number % 256 == 0 => {
                    table.retain(|entry| entry.forget_at > forget_at);
                    model.retain(|_, kept_until| *kept_until > forget_at);
                }
                0..3 => assert_eq!(table.remove(crowded(key)), model.remove(&key).is_some()),
                _ => {
                    let found = table.find_mut(crowded(key));
                    assert_eq!(found.is_some(), model.insert(key, forget_at).is_some(), "{key}");
                    match found {
                        Some(found) => found.forget_at = forget_at,
                        None => table.insert(entry(crowded(key), forget_at)),
                    }
                }
            }
            assert_eq!(table.len(), model.len());
            let found = |key| table.position(crowded(key)).map(|(at, place)| table.buckets[at].0[place]);
            for key in 0..keys {
                assert_eq!(found(key).map(|found| found.forget_at), model.get(&key).copied(), "{key}");
            }
        }
    }

    #[test]
    fn a_table_holds_what_a_map_holds() {
        for keys in 1..40 {
            let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ keys;
            let numbers = std::iter::from_fn(|| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                Some(random)
            });
            compare(numbers.take(5_000), keys);
        }
    }

    #[test]
    fn a_table_gives_back_what_it_does_not_need() {
        let mut table = Table::default();
        (0..10_000).for_each(|number| table.insert(entry(Digest::default().with(number, &[]), 1)));
        let room = table.capacity();
        assert!((10_000..12_600).contains(&room), "{room}");
        let mut seen = 0;
        table.retain(|_| {
            seen += 1;
            seen <= 100
        });
        assert_eq!((seen, table.len()), (10_000, 100));
        assert!((100..200).contains(&table.capacity()), "{}", table.capacity());
    }
}
