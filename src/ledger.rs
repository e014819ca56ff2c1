//! Where the axes of a group are counted.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config_error::ConfigError;
use crate::failure::OnStoreFailure;
use crate::name::Label;
use crate::question::Question;
use crate::store::{Answer, MemoryStore, Store};
use crate::throttle::Throttle;
use crate::verdict::Verdict;

/// What all axes of a group share.
pub(crate) struct Ledger {
    pub(crate) group: String,
    store: Backend,
    pub(crate) on_store_failure: OnStoreFailure,
    pub(crate) failures: Throttle,
    axes: Mutex<HashSet<&'static str>>,
}

/// The store in memory is known as what it is, so that it can be asked without a question.
enum Backend {
    Memory(Arc<MemoryStore>),
    Other(Box<dyn Store>),
}

impl Ledger {
    pub(crate) fn new(group: String, store: impl Store, on_store_failure: OnStoreFailure) -> Self {
        Self { group, store: Backend::of(store), on_store_failure, failures: Throttle::new(), axes: Mutex::default() }
    }

    /// Takes a name for an axis, which no other axis of the group may have.
    pub(crate) fn register(&self, label: &Label) -> Result<(), ConfigError> {
        if self.axes.lock().insert(label.axis) {
            return Ok(());
        }
        let reason = "this group has an axis of that name: use a clone of its handle, or another name";
        Err(ConfigError::new("name", reason).within(&label.field()))
    }

    pub(crate) fn decide(&self, question: &Question<'_>) -> Answer<Verdict> {
        match &self.store {
            Backend::Memory(memory) => memory.decide(question),
            Backend::Other(store) => store.decide(question),
        }
    }

    pub(crate) fn reset(&self, question: &Question<'_>) -> Answer<()> {
        match &self.store {
            Backend::Memory(memory) => memory.reset(question),
            Backend::Other(store) => store.reset(question),
        }
    }

    /// The store, if it is the one in memory.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&MemoryStore> {
        match &self.store {
            Backend::Memory(memory) => Some(memory),
            Backend::Other(_) => None,
        }
    }
}

impl Backend {
    fn of(store: impl Store) -> Self {
        let mut store = Some(store);
        let given: &mut dyn Any = &mut store;
        if let Some(memory) = given.downcast_mut::<Option<MemoryStore>>().and_then(Option::take) {
            return Self::Memory(Arc::new(memory));
        }
        if let Some(memory) = given.downcast_mut::<Option<Arc<MemoryStore>>>().and_then(Option::take) {
            return Self::Memory(memory);
        }
        store.map_or_else(|| unreachable!("a store that was not taken is there"), |store| Self::Other(Box::new(store)))
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, store, on_store_failure, failures: _, axes } = self;
        f.debug_struct("Ledger")
            .field("group", group)
            .field("is_in_memory", &matches!(store, Backend::Memory(_)))
            .field("on_store_failure", on_store_failure)
            .field("axes", &*axes.lock())
            .finish_non_exhaustive()
    }
}
