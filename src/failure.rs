//! What happens to a request when the store cannot answer.

use std::cmp::Ordering;

use crate::config_error::ConfigError;

/// What happens to a request when the store cannot answer.
///
/// It is set for a [group](crate::GroupBuilder::on_store_failure); an axis may be
/// [stricter](crate::AxisBuilder::on_store_failure), and a decision takes the strictest of its axes. From the least strict
/// on: `Open`, `Local` with a large share, `Local` with a small one, `Closed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnStoreFailure {
    /// The request is let through, uncounted: its verdict says so
    /// ([`counted_by`](crate::Verdict::counted_by) is [`Nobody`](crate::CountedBy::Nobody)).
    #[default]
    Open,
    /// The request is turned away as a failure of the service ([`ChargeError::Store`](crate::ChargeError::Store)), never
    /// as a refusal of the caller. One that timed out may have been charged nevertheless.
    Closed,
    /// This process counts by itself, in memory, by its share of each limit and refill: `percent` of it, rounded down, at
    /// least 1. Its verdicts say so ([`LocalShare`](crate::CountedBy::LocalShare)).
    ///
    /// Of all instances together no more than instances × share passes; with `100 / instances` percent that is about the
    /// limit itself. What was counted so is not added to the store's counters when it is back. A cost above the share,
    /// which would fit the whole limit, is treated as if this were `Closed`.
    Local {
        /// This process's share of each limit, 1 to 100.
        percent: u8,
    },
}

impl OnStoreFailure {
    /// Refuses, as an error of its field, a share that is none.
    pub(crate) fn check(self) -> Result<(), ConfigError> {
        match self {
            Self::Local { percent: percent @ (0 | 101..) } => {
                let reason = format!("{percent} % is no share of a limit: use 1 to 100");
                Err(ConfigError::new("on_store_failure.percent", reason))
            }
            _ => Ok(()),
        }
    }

    fn strictness(self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Local { percent } => 101 - percent.min(100),
            Self::Closed => u8::MAX,
        }
    }
}

impl Ord for OnStoreFailure {
    fn cmp(&self, other: &Self) -> Ordering {
        self.strictness().cmp(&other.strictness())
    }
}

impl PartialOrd for OnStoreFailure {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_share_is_the_stricter_policy() {
        use OnStoreFailure::{Closed, Local, Open};
        let ordered = [Open, Local { percent: 100 }, Local { percent: 50 }, Local { percent: 1 }, Closed];
        assert!(ordered.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn a_share_is_1_to_100_percent() {
        for percent in 0..=u8::MAX {
            let checked = OnStoreFailure::Local { percent }.check();
            assert_eq!(checked.is_ok(), (1..=100).contains(&percent), "{percent}");
        }
    }
}
