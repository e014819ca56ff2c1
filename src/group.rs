//! Axes that can be decided together.

use std::sync::Arc;

use crate::axis::{AxisBuilder, PerKeyAxis, SharedAxis};
use crate::config_error::ConfigError;
use crate::failure::OnStoreFailure;
use crate::ledger::Ledger;
use crate::name;
use crate::quota::Quota;
use crate::store::Store;

/// Axes that can be decided together: a name for their counters, the store that counts, and what happens when it cannot.
///
/// A handle: cheap to clone, and all clones are the same group. Two groups of one name over one store count on the same
/// counters; that is how a configuration is built anew without forgetting what is used.
///
/// Groups and axes are meant to be as many as a configuration names, not one for each tenant: their names, and the
/// counters of shared axes, are kept for the life of the process. What there are many of is the key.
///
/// ```
/// use tower_quota_core::{Group, HOUR, MemoryStore, Quota};
///
/// let items = Group::new("item", MemoryStore::new())?;
/// let account = items.per_key("account", Quota::fixed_window(30, HOUR)).build()?;
/// let capacity = items.shared("capacity", "aligned 3000/h").build()?;
/// # let _ = (account, capacity);
/// # Ok::<(), tower_quota_core::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Group(Arc<Ledger>);

impl Group {
    #[cfg(feature = "waiting")]
    pub(crate) fn ledger(&self) -> &Arc<Ledger> {
        &self.0
    }

    /// A group of this name over this store, with the default policies.
    ///
    /// # Errors
    ///
    /// `group.name`, unless it is 1 to 64 ASCII letters, digits, `-`, `_` or `.`.
    pub fn new(name: &str, store: impl Store) -> Result<Self, ConfigError> {
        Self::builder(name).build(store)
    }

    /// A group with policies of its own.
    pub fn builder(name: &str) -> GroupBuilder {
        GroupBuilder { name: name.to_owned(), on_store_failure: OnStoreFailure::default(), most_waiting: 1_024 }
    }

    /// The name of the group.
    pub fn name(&self) -> &str {
        &self.0.group
    }

    /// An axis that counts each key apart. The quota is a [`Quota`], what a constructor returned, or text.
    pub fn per_key<T>(&self, name: &str, quota: T) -> AxisBuilder<PerKeyAxis>
    where
        T: TryInto<Quota, Error: Into<ConfigError>>,
    {
        AxisBuilder::new(Arc::clone(&self.0), name, quota)
    }

    /// An axis that everybody shares. The quota is a [`Quota`], what a constructor returned, or text.
    pub fn shared<T>(&self, name: &str, quota: T) -> AxisBuilder<SharedAxis>
    where
        T: TryInto<Quota, Error: Into<ConfigError>>,
    {
        AxisBuilder::new(Arc::clone(&self.0), name, quota)
    }
}

/// Sets up a group.
#[derive(Clone, Debug)]
#[must_use = "a group exists once it is built"]
pub struct GroupBuilder {
    name: String,
    on_store_failure: OnStoreFailure,
    most_waiting: usize,
}

impl GroupBuilder {
    /// What happens to a request when the store cannot answer: it is let through by default.
    pub fn on_store_failure(mut self, policy: OnStoreFailure) -> Self {
        self.on_store_failure = policy;
        self
    }

    /// How many charges may [wait](crate::Charge::wait_up_to) for one counter at once: 1,024 by default. The next one is
    /// made or refused at once.
    #[cfg(feature = "waiting")]
    pub fn most_waiting(mut self, charges: usize) -> Self {
        self.most_waiting = charges;
        self
    }

    /// The group, over this store.
    ///
    /// # Errors
    ///
    /// As [`Group::new`], and `on_store_failure.percent` of the group, of a share that is not 1 to 100.
    pub fn build(self, store: impl Store) -> Result<Group, ConfigError> {
        name::check("group", &self.name)?;
        self.on_store_failure.check().map_err(|error| error.within(&self.name))?;
        Ok(Group(Arc::new(Ledger::new(self.name, store, self.on_store_failure, self.most_waiting))))
    }
}
