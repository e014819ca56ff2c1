//! All counters of a store.

use super::held::Held;
use super::keyed::Keyed;
use super::shared::Shared;
use crate::algorithm;
use crate::call_end::CallEnd;
use crate::question::{Demand, Owner};
use crate::store::contract::{StoreError, StoreErrorKind};
use crate::watermark::Mark;

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

    /// Takes down that a call has ended.
    pub(super) fn end(&self, end: &CallEnd<'_>, now: u64) -> Result<(), StoreError> {
        let counter = end.demand.counter();
        let mut held = self.keyed.lock(self.keyed.lock_of(counter), now);
        let found = held.find(counter);
        let ended = algorithm::end(end.demand.terms.quota, found.map(|found| found.state), now, end.ending);
        match ended {
            Some(_) if found.is_none() && !self.keyed.reserve(1) => Err(StoreError::new(StoreErrorKind::StoreFull)),
            Some(ended) => {
                held.rewrite(counter, &ended, Mark::default());
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Forgets the counter of a demand.
    pub(super) fn remove(&self, demand: &Demand<'_>) {
        match demand.owner {
            Owner::Everybody => self.shared.remove(demand.counter()),
            _ => self.keyed.remove(demand.counter()),
        }
    }
}
