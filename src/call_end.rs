//! The end of a call that was counted before it was made.

use std::time::Duration;

use crate::algorithm::{Ending, Outcome};
use crate::question::Demand;

/// What a store is told when a call has ended that was charged on the counter of a `Cooldown`.
#[derive(Clone, Debug)]
pub struct CallEnd<'a> {
    pub(crate) demand: Demand<'a>,
    pub(crate) ending: Ending,
}

impl<'a> CallEnd<'a> {
    /// The counter that the call was charged on.
    pub fn demand(&self) -> &Demand<'a> {
        &self.demand
    }

    /// What the call was charged as; 0 if it was none at the boundary.
    pub fn call(&self) -> u64 {
        self.ending.call
    }

    /// When it was charged, by the store's clock.
    pub fn charged_at(&self) -> Duration {
        Duration::from_micros(self.ending.charged_at)
    }

    /// For how long the counter shall rest at least, since the other side asked for it; zero if it did not.
    pub fn rest_at_least(&self) -> Duration {
        Duration::from_micros(self.ending.rest_at_least)
    }

    /// What came of it.
    pub fn outcome(&self) -> Outcome {
        self.ending.outcome
    }
}
