//! What a charge turned out to be worth.

use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::Settled;
use crate::question::{Demand, Question};

/// What a store is told when it is known what a charge was worth that it has made.
#[derive(Clone, Debug)]
pub struct Settlement<'a> {
    pub(crate) charged: Question<'a>,
    worth: SmallVec<[u64; 4]>,
    charged_at: u64,
}

impl<'a> Settlement<'a> {
    /// The charge that `charged` asked for, worth these units on each of its axes.
    pub(crate) fn new(charged: Question<'a>, worth: impl Iterator<Item = u64>, charged_at: u64) -> Self {
        Self { charged, worth: worth.collect(), charged_at }
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
