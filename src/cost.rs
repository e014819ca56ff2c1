//! What one request takes.

use smallvec::SmallVec;

use crate::name::{Axis, Label};

/// Units that a request takes from each axis of a decision: one number, or other numbers for some axes.
///
/// An unsigned integer of up to 64 bits is a cost, and so are `i32` and `i64`. A negative one never fits, so that a wrong subtraction cannot refund anything; nor does one
/// above the axis's limit. A cost of 0 looks and charges nothing.
///
/// ```
/// use tower_quota_core::{Cost, Group, MINUTE, MemoryStore, Quota};
///
/// let models = Group::new("model", MemoryStore::new())?;
/// let requests = models.per_key("requests", Quota::per_minute(60)).build()?;
/// let tokens = models.per_key("tokens", Quota::token_bucket(12_000, 12_000, MINUTE)).build()?;
///
/// let cost = Cost::units(1).on(&tokens, 850);
/// # let _ = (requests, cost);
/// # Ok::<(), tower_quota_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    units: u64,
    others: SmallVec<[OtherCost; 2]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct OtherCost {
    axis: &'static Label,
    units: u64,
}

impl Cost {
    /// `units` on every axis that no [`on`](Self::on) names.
    pub fn units(units: u64) -> Self {
        Self { units, others: SmallVec::new() }
    }

    /// Other `units` on one axis; the last number for an axis counts.
    ///
    /// An axis that is not part of the decision is an error of that decision
    /// ([`ChargeError::ForeignAxis`](crate::ChargeError::ForeignAxis)), never ignored.
    pub fn on(mut self, axis: &impl Axis, units: u64) -> Self {
        let axis = axis.label();
        self.others.retain(|other| other.axis != axis);
        self.others.push(OtherCost { axis, units });
        self
    }

    /// The units, if they are the same on every axis.
    #[inline]
    pub(crate) fn everywhere(&self) -> Option<u64> {
        self.others.is_empty().then_some(self.units)
    }

    pub(crate) fn for_axis(&self, axis: &Label) -> u64 {
        self.others.iter().find(|other| other.axis == axis).map_or(self.units, |other| other.units)
    }

    /// An axis that this cost has a number for and that `is_known` does not know.
    #[inline]
    pub(crate) fn foreign_axis(&self, is_known: impl Fn(&Label) -> bool) -> Option<&'static Label> {
        self.others.iter().map(|other| other.axis).find(|axis| !is_known(axis))
    }
}

/// `From` for the integers that a cost is counted in.
macro_rules! cost_from {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Cost {
            fn from(units: $integer) -> Self {
                // Beyond 64 bits or below zero: more than any limit can be.
                Self::units(u64::try_from(units).unwrap_or(u64::MAX))
            }
        }
    )*};
}

cost_from!(u8, u16, u32, u64, usize, i32, i64);
