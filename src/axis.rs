//! One dimension that is counted.

mod builder;
mod inner;

use std::fmt;
use std::sync::Arc;

pub use self::builder::AxisBuilder;
pub(crate) use self::inner::AxisCore;
use crate::config_error::ConfigError;
use crate::key::Key;
use crate::name::{Axis, Label, sealed};
use crate::question::Owner;
use crate::quota::Quota;
use crate::store::StoreError;

/// An axis that counts each key apart: an account, an address, a mailbox.
///
/// A handle, made by [`Group::per_key`](crate::Group::per_key): cheap to clone, and all clones are the same axis.
#[derive(Clone)]
pub struct PerKeyAxis(Arc<AxisCore>);

/// An axis that everybody shares: the capacity of a service, the quota of a project.
///
/// A handle, made by [`Group::shared`](crate::Group::shared): cheap to clone, and all clones are the same axis.
#[derive(Clone)]
pub struct SharedAxis(Arc<AxisCore>);

/// What both kinds of handle offer.
macro_rules! axis_handle {
    ($handle:ident) => {
        impl $handle {
            pub(crate) fn new(core: AxisCore) -> Self {
                Self(Arc::new(core))
            }

            pub(crate) fn core(&self) -> &Arc<AxisCore> {
                &self.0
            }

            /// The name of the axis within its group.
            pub fn name(&self) -> &'static str {
                self.0.label.axis
            }

            /// The quota that the next decision is judged by, unless a plan says otherwise
            /// ([`Measure::quota_by`](crate::Measure::quota_by)).
            pub fn quota(&self) -> Quota {
                self.0.quota()
            }

            /// Judges the next decisions by another quota: a [`Quota`], what a constructor returned, or text.
            ///
            /// What is used stays used, so nothing is refilled; only another algorithm or period counts from zero, on a
            /// counter of its own.
            ///
            /// # Errors
            ///
            /// The quota's own, with the field named from the group.
            pub fn set_quota<T>(&self, quota: T) -> Result<(), ConfigError>
            where
                T: TryInto<Quota, Error: Into<ConfigError>>,
            {
                self.0.set_quota(quota)
            }
        }

        impl Axis for $handle {}

        impl sealed::Sealed for $handle {
            fn label(&self) -> &'static Label {
                self.0.label
            }
        }

        impl fmt::Debug for $handle {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($handle))
                    .field("group", &self.0.label.group)
                    .field("name", &self.0.label.axis)
                    .field("quota", &self.quota())
                    .finish_non_exhaustive()
            }
        }
    };
}

axis_handle!(PerKeyAxis);
axis_handle!(SharedAxis);

impl PerKeyAxis {
    /// Forgets what `key` has used, on the counter of the axis's own algorithm and period: that of a plan with another
    /// period stays.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn reset(&self, key: &Key) -> Result<(), StoreError> {
        self.0.reset(&Owner::Key(key.clone())).await
    }
}

impl SharedAxis {
    /// Forgets what has been used, on the counter of the axis's own algorithm and period, and its watermark's episodes
    /// with it.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn reset(&self) -> Result<(), StoreError> {
        self.0.reset(&Owner::Everybody).await
    }
}
