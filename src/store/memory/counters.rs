//! All counters of a store.

use super::keyed::Keyed;
use super::shared::Shared;
use crate::question::{Demand, Owner};

/// Counters of keys, of which there may be very many, and counters that everybody shares, of which there are few.
pub(super) struct Counters {
    pub(super) keyed: Keyed,
    pub(super) shared: Shared,
}

impl Counters {
    /// No counters, and room for so many of keys, made at this time in microseconds.
    pub(super) fn new(max_keyed: usize, made: u64) -> Self {
        Self { keyed: Keyed::new(max_keyed, made), shared: Shared::new() }
    }

    /// Forgets the counter of a demand.
    pub(super) fn remove(&self, demand: &Demand<'_>) {
        match demand.owner {
            Owner::Everybody => self.shared.remove(demand.counter()),
            _ => self.keyed.remove(demand.counter()),
        }
    }
}
