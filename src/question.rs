//! What one decision asks of a store.

use std::time::Duration;

use smallvec::SmallVec;

use crate::key::Key;
use crate::name::Label;
use crate::quota::Quota;
use crate::rate::Rate;
use crate::watermark::Watermark;

/// Demands on axes of one group, in the order in which they are judged.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    demands: SmallVec<[Demand<'a>; 4]>,
}

impl<'a> Question<'a> {
    pub(crate) fn new(demands: impl Iterator<Item = Demand<'a>>) -> Self {
        Self { demands: demands.collect() }
    }

    /// What is asked of each axis, in the order judged; no axis stands twice.
    pub fn demands(&self) -> &[Demand<'a>] {
        &self.demands
    }
}

/// What a question asks of one axis.
///
/// A counter is named by group, axis, owner, and the algorithm and period of the quota. The rest, the limit above all,
/// is an argument of this one decision: another limit finds the same counter.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    pub(crate) label: &'static Label,
    pub(crate) rate: Rate,
    pub(crate) owner: &'a Owner,
    pub(crate) units: u64,
    pub(crate) retry_when_closed: Duration,
    pub(crate) watermark: Option<&'a Watermark>,
}

/// Whose counter is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// The one counter of an axis that everybody shares.
    Everybody,
    /// The counter of this caller.
    Key(Key),
    /// The one counter of all callers without a key.
    Anonymous,
    /// No counter, because the axis does not count this caller. No demand has such an owner.
    Nobody,
}

impl<'a> Demand<'a> {
    /// The name of the group.
    pub fn group(&self) -> &'static str {
        self.label.group
    }

    /// The name of the axis within its group.
    pub fn axis(&self) -> &'static str {
        self.label.axis
    }

    /// The quota to judge by.
    pub fn quota(&self) -> &Quota {
        &self.rate.quota
    }

    /// Whose counter it is.
    pub fn owner(&self) -> &'a Owner {
        self.owner
    }

    /// The units to charge. At 0 the demand always fits and charges nothing.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// The mark above which usage of this axis raises an event.
    pub fn watermark(&self) -> Option<&'a Watermark> {
        self.watermark
    }

    /// Whether the demand can fit at some time: it is not more than the whole limit.
    pub(crate) fn can_fit(&self) -> bool {
        self.units <= self.quota().limit()
    }

    /// Whether the axis is closed to this demand: its limit is 0.
    pub fn is_closed(&self) -> bool {
        !self.can_fit() && self.quota().limit() == 0
    }

    /// Whether the demand can never fit: it is more than the whole limit.
    pub fn never_fits(&self) -> bool {
        !self.can_fit() && self.quota().limit() > 0
    }
}
