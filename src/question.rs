//! What one decision asks of a store.

use std::time::Duration;

use smallvec::SmallVec;

use crate::digest::Digest;
use crate::key::Key;
use crate::name::Label;
use crate::quota::Quota;
use crate::rate::Rate;
use crate::watermark::Watermark;

/// Demands on axes of one group, in the order in which they are judged.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    demands: SmallVec<[Demand<'a>; 4]>,
    request_id: Option<&'a Key>,
}

impl<'a> Question<'a> {
    pub(crate) fn new(demands: impl Iterator<Item = Demand<'a>>) -> Self {
        Self { demands: demands.collect(), request_id: None }
    }

    /// This question, asked by the request of this id.
    pub(crate) fn of_request(self, request_id: Option<&'a Key>) -> Self {
        Self { request_id, ..self }
    }

    /// This question, asked for the call of this number.
    pub(crate) fn of_call(mut self, call: u64) -> Self {
        self.demands.iter_mut().for_each(|demand| demand.terms.call = call);
        self
    }

    /// This question, with `percent` of each limit instead of all of it, and without watermarks; `None` if some demand
    /// fits only the whole limit.
    pub(crate) fn by_share(&self, percent: u8) -> Option<Self> {
        let share = |demand: &Demand<'a>| {
            let shared = demand.by_share(percent);
            let fits_only_the_whole = demand.terms.can_fit() && !shared.terms.can_fit();
            (!fits_only_the_whole).then_some(shared)
        };
        let demands = self.demands.iter().map(share).collect::<Option<_>>()?;
        Some(Self { demands, ..*self })
    }

    /// What is asked of each axis, in the order judged; no axis stands twice.
    pub fn demands(&self) -> &[Demand<'a>] {
        &self.demands
    }

    /// What the request calls itself, if it is not to be charged twice: a store that has charged this very question for
    /// this id gives the same verdict again, and changes nothing.
    pub fn request_id(&self) -> Option<&'a Key> {
        self.request_id
    }
}

/// What a question asks of one axis: its [`Terms`], and whose counter it is about.
///
/// A counter is named by group, axis, owner, and the algorithm and period of the quota. The rest, the limit above all,
/// is an argument of this one decision: another limit finds the same counter.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    pub(crate) terms: Terms,
    pub(crate) rate: Rate,
    pub(crate) owner: &'a Owner,
    pub(crate) watermark: Option<&'a Watermark>,
}

/// What a demand is judged by: all that a store needs to [report](crate::Report::new) on it later, when the question is
/// gone.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub(crate) label: &'static Label,
    pub(crate) quota: Quota,
    pub(crate) units: u64,
    pub(crate) retry_when_closed: Duration,
    /// What the call is known by that is charged, where a counter has to know whose end it waits for; else 0.
    pub(crate) call: u64,
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
    /// This demand, judged by `percent` of the limit instead of all of it, and without a watermark.
    pub(crate) fn by_share(&self, percent: u8) -> Self {
        let quota = self.terms.quota.share(percent);
        let terms = Terms { quota, ..self.terms };
        Self { terms, rate: Rate::of(terms.label, quota), watermark: None, ..*self }
    }

    /// What it is judged by.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Whose counter it is.
    pub fn owner(&self) -> &'a Owner {
        self.owner
    }

    /// Stands in this process for all that names the counter.
    pub(crate) fn counter(&self) -> Digest {
        match self.owner {
            Owner::Key(key) => self.rate.counter_of(key.as_bytes()),
            Owner::Anonymous => self.rate.digest.with(2, &[]),
            Owner::Everybody | Owner::Nobody => self.rate.digest,
        }
    }

    /// The mark above which usage of this axis raises an event.
    pub fn watermark(&self) -> Option<&'a Watermark> {
        self.watermark
    }
}

impl Terms {
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
        &self.quota
    }

    /// The units to charge. At 0 the demand always fits and charges nothing.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Whether the demand can fit at some time: it is not more than the whole limit.
    pub fn can_fit(&self) -> bool {
        self.units <= self.quota.limit()
    }

    /// Whether the axis is closed to this demand: its limit is 0.
    pub fn is_closed(&self) -> bool {
        !self.can_fit() && self.quota.limit() == 0
    }

    /// Whether the demand can never fit: it is more than the whole limit.
    pub fn never_fits(&self) -> bool {
        !self.can_fit() && self.quota.limit() > 0
    }
}
