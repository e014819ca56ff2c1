//! Why a charge was not made.

use std::error::Error;
use std::fmt;

use crate::store::StoreError;
use crate::verdict::{Report, Verdict};

/// Why a charge was not made. Nothing has been charged on any axis, but for a store that failed after it was asked:
/// then it is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChargeError {
    /// The cost does not fit now; the verdict tells how long to [wait](Verdict::wait).
    Refused(Box<Verdict>),
    /// The cost is more than the whole limit of some axis: no wait helps.
    Never(Box<Verdict>),
    /// The subject does not say who it is, and the axis [refuses](crate::MissingKey::Refuse) such subjects.
    MissingKey {
        /// The axis.
        axis: &'static str,
    },
    /// What the subject says is no identity.
    MalformedKey {
        /// The axis.
        axis: &'static str,
    },
    /// The cost has a number for an axis that is no part of this decision: a mistake in the program.
    ForeignAxis {
        /// The axis.
        axis: &'static str,
    },
    /// What a charge was worth is below zero, or more than can be counted: a mistake in the program.
    Uncountable {
        /// The axis.
        axis: &'static str,
    },
    /// The store could not answer, and the failure policy is [closed](crate::OnStoreFailure::Closed).
    Store(StoreError),
}

impl fmt::Display for ChargeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axis = |verdict: &Verdict| verdict.refused_by().map_or("", Report::axis);
        match self {
            Self::Refused(verdict) => {
                write!(f, "the quota of axis {} is used up for {:?}", axis(verdict), verdict.wait())
            }
            Self::Never(verdict) => write!(f, "the cost is more than the whole limit of axis {}", axis(verdict)),
            Self::MissingKey { axis } => write!(f, "there is no key to count under on axis {axis}"),
            Self::MalformedKey { axis } => write!(f, "the key to count under on axis {axis} is malformed"),
            Self::ForeignAxis { axis } => write!(f, "the cost names axis {axis}, which is no part of this decision"),
            Self::Uncountable { axis } => {
                write!(f, "what was charged on axis {axis} cannot be worth less than nothing, or more than 2^52")
            }
            Self::Store(error) => write!(f, "no decision: {error}"),
        }
    }
}

impl Error for ChargeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}
