//! What a decision does with counters whose lock it holds, whichever kind they are.

use crate::algorithm::{Assessment, State};
use crate::digest::Digest;
use crate::watermark::Mark;

/// Some counters, locked.
pub(super) trait Held {
    /// Whether room for a new counter must be reserved.
    const IS_BOUNDED: bool;

    fn find(&mut self, digest: Digest) -> Option<Found>;

    /// Writes a counter that was charged.
    fn write(&mut self, digest: Digest, charged: &Assessment, mark: Mark);

    /// Writes a counter whose end is known exactly, be it earlier than before.
    fn rewrite(&mut self, digest: Digest, written: &Assessment, mark: Mark);

    /// Keeps a counter that was looked at until this time in microseconds, if it would be forgotten earlier: its quota
    /// may refill more slowly than when it was charged.
    fn keep_until(&mut self, digest: Digest, fresh_at: u64);
}

/// A counter as it stands.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) state: State,
    pub(super) mark: Mark,
}
