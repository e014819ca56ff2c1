//! Keeps those whom another side has told to come back from coming back all at once.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Up to a twentieth of a wait, at random.
pub(crate) fn jitter(wait: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    let twentieth = u64::try_from((wait / 20).as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(random % twentieth.saturating_add(1))
}
