//! What a charge turned out to be worth.

use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::{MOST_USED, Settled};
use crate::cost::Cost;
use crate::question::{Demand, Question};

/// What a store is told when it is known what a charge was worth that it has made.
#[derive(Clone, Debug)]
pub struct Settlement<'a> {
    pub(crate) charged: Question<'a>,
    worth: SmallVec<[u64; 4]>,
    charged_at: u64,
}

impl<'a> Settlement<'a> {
    /// The charge that `charged` asked for, and what it was worth.
    ///
    /// # Errors
    ///
    /// The name of an axis on which that cannot be counted.
    pub(crate) fn new(charged: Question<'a>, worth: &Cost, charged_at: u64) -> Result<Self, &'static str> {
        let worth = charged.demands().iter().map(|Demand { terms, .. }| match worth.for_axis(terms.label) {
            units if units <= MOST_USED => Ok(units),
            _ => Err(terms.axis()),
        });
        Ok(Self { worth: worth.collect::<Result<_, _>>()?, charged, charged_at })
    }

    /// The same, on counters that were charged by `percent` of each limit.
    pub(crate) fn by_share(&self, percent: u8) -> Option<Self> {
        Some(Self { charged: self.charged.by_share(percent)?, ..self.clone() })
    }

    /// What was demanded of each axis, with the units that were charged, and the units that it was worth.
    pub fn demands(&self) -> impl Iterator<Item = (&Demand<'a>, u64)> {
        self.charged.demands().iter().zip(self.worth.iter().copied())
    }

    /// When it was charged, as the [verdict](crate::Verdict::decided_at) told it.
    pub fn charged_at(&self) -> Duration {
        Duration::from_micros(self.charged_at)
    }

    /// The same, axis by axis, for the algorithms.
    pub(crate) fn settled(&self) -> impl Iterator<Item = (&Demand<'a>, Settled)> {
        let charged_at = self.charged_at;
        self.demands().map(move |(demand, worth)| (demand, Settled { charged_at, charged: demand.terms.units, worth }))
    }
}
