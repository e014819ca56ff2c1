//! One counter in a table.

use crate::algorithm::{Assessment, State};
use crate::digest::Digest;

/// One counter, in 32 bytes; or a vacant place for one, whose tag is 0.
#[derive(Clone, Copy, Default)]
pub(super) struct Entry {
    pub(super) tag: u64,
    first: u64,
    second: u64,
    third: u32,
    /// The second from which this counter may be forgotten.
    pub(super) forget_at: u32,
}

impl Entry {
    pub(super) fn new(digest: Digest, charged: &Assessment, forget_at: u32) -> Self {
        let State { first, second, third } = charged.state;
        Self { tag: Self::tag_of(digest), first, second, third, forget_at }
    }

    /// What tells a counter from all others in its table: 63 bits of its digest, of which the other half has chosen the
    /// table. By chance, two of a million counters are taken for one with a probability below 10^-9.
    #[inline(always)]
    pub(super) fn tag_of(digest: Digest) -> u64 {
        digest.place | 1
    }

    #[inline(always)]
    pub(super) fn is_vacant(&self) -> bool {
        self.tag == 0
    }

    #[inline(always)]
    pub(super) fn state(&self) -> State {
        State { first: self.first, second: self.second, third: self.third }
    }

    /// Writes a counter that was charged.
    #[inline(always)]
    pub(super) fn write(&mut self, charged: &Assessment, forget_at: u32) {
        self.rewrite(charged, self.forget_at.max(forget_at));
    }

    /// Writes it, to be forgotten from this second on, be it earlier than before.
    #[inline(always)]
    pub(super) fn rewrite(&mut self, written: &Assessment, forget_at: u32) {
        let State { first, second, third } = written.state;
        (self.first, self.second, self.third) = (first, second, third);
        self.forget_at = forget_at;
    }
}
