//! 128-bit digests of counters in memory, keyed with a secret of this process.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

/// Two 64-bit hashes of one input under independent secrets.
///
/// By chance two of a million inputs share both with a probability of 10^-27; a table of counters goes by less, and says so.
/// No digest leaves the process, so nobody can look for such a pair without reading its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Digest {
    /// The half that chooses a lock.
    pub(crate) lock: u64,
    /// The half that chooses a place behind it, and tells it from others there.
    pub(crate) place: u64,
}

struct Secret {
    lanes: [SharedSeed; 2],
}

static SECRET: LazyLock<Secret> = LazyLock::new(|| {
    // The standard library's hasher is where a process gets random numbers from without a dependency.
    let random = || RandomState::new().build_hasher().finish();
    Secret { lanes: [SharedSeed::from_u64(random()), SharedSeed::from_u64(random())] }
});

impl Digest {
    /// What a group calls an axis.
    pub(crate) fn of_axis(group: &str, axis: &str) -> Self {
        Self::default().with(group.len() as u64, group.as_bytes()).with(axis.len() as u64, axis.as_bytes())
    }

    /// This digest, and a number and some bytes behind it.
    #[inline]
    pub(crate) fn with(self, number: u64, bytes: &[u8]) -> Self {
        let [lock, place] = &SECRET.lanes;
        let lane = |seed, secret| {
            let mut hasher = FoldHasher::with_seed(seed, secret);
            hasher.write_u64(number);
            hasher.write(bytes);
            hasher.finish()
        };
        Self { lock: lane(self.lock, lock), place: lane(self.place, place) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn digests_tell_inputs_apart() {
        let mut seen = HashSet::new();
        for (group, axis) in [("a", "bc"), ("ab", "c"), ("abc", ""), ("", "abc")] {
            for number in [0, 1, u64::MAX] {
                for bytes in [&b""[..], b"\0", b"\0\0", b"key", &[0; 100], &[0; 101]] {
                    assert!(seen.insert(Digest::of_axis(group, axis).with(number, bytes)));
                }
            }
        }
    }

    #[test]
    fn both_halves_depend_on_the_input() {
        let (one, other) = (Digest::of_axis("g", "a"), Digest::of_axis("g", "b"));
        assert_ne!(one.lock, other.lock);
        assert_ne!(one.place, other.place);
    }
}
