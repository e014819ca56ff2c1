//! Where the axes of a group are counted.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

#[cfg(feature = "waiting")]
use crate::call_end::CallEnd;
use crate::config_error::ConfigError;
use crate::counts;
use crate::failure::OnStoreFailure;
use crate::health::Health;
use crate::name::Label;
use crate::question::Question;
use crate::settlement::Settlement;
use crate::store::{Answer, MemoryStore, Store, StoreError, StoreErrorKind};
use crate::throttle::Throttle;
use crate::verdict::{CountedBy, Verdict};

/// What all axes of a group share.
pub(crate) struct Ledger {
    pub(crate) group: String,
    store: Backend,
    pub(crate) on_store_failure: OnStoreFailure,
    health: Health,
    /// For failures that concern single counters.
    failures: Throttle,
    /// Where this process counts by its share while the store fails; made before it is needed.
    local: OnceLock<MemoryStore>,
    axes: Mutex<HashSet<&'static str>>,
    /// Who waits for which counter.
    #[cfg(feature = "waiting")]
    pub(crate) lines: Arc<crate::lines::Lines>,
}

/// The store in memory is known as what it is, so that it can be asked without a question.
enum Backend {
    Memory(Arc<MemoryStore>),
    Other(Box<dyn Store>),
}

impl Ledger {
    pub(crate) fn new(group: String, store: impl Store, on_store_failure: OnStoreFailure, most_in_line: usize) -> Self {
        #[cfg(not(feature = "waiting"))]
        let _ = most_in_line;
        let ledger = Self {
            group,
            store: Backend::of(store),
            on_store_failure,
            health: Health::default(),
            failures: Throttle::new(),
            local: OnceLock::new(),
            axes: Mutex::default(),
            #[cfg(feature = "waiting")]
            lines: Arc::new(crate::lines::Lines::new(most_in_line)),
        };
        ledger.prepare_for(on_store_failure);
        ledger
    }

    /// Gets ready for a policy that an axis or the group has: the clock of a local store takes its time to be made.
    pub(crate) fn prepare_for(&self, policy: OnStoreFailure) {
        if let OnStoreFailure::Local { .. } = policy {
            self.local.get_or_init(MemoryStore::new);
        }
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

    /// Decides by this process's share of each limit; `None` if some demand fits only the whole of it.
    pub(crate) fn decide_by_share(&self, question: &Question<'_>, percent: u8) -> Option<Answer<Verdict>> {
        let question = question.by_share(percent)?;
        Some(self.local.get_or_init(MemoryStore::new).decide(&question))
    }

    /// The store has answered.
    #[inline]
    pub(crate) fn note_answer(&self) {
        self.health.answered(|without| {
            let group = &self.group;
            tracing::info!(target: "tower_quota::store", group, without, "the store answers again");
        });
    }

    /// A decision had to do without the store, and went by this policy.
    pub(crate) fn note_failure(&self, error: &StoreError, policy: OnStoreFailure) {
        let group = &self.group;
        counts::store_failure(group, error.kind());
        match error.kind() {
            StoreErrorKind::StoreFull | StoreErrorKind::Corrupt => self.failures.at_most_each_second(|held_back| {
                tracing::error!(target: "tower_quota::store", group, %error, ?policy, held_back, "no decision");
            }),
            StoreErrorKind::Unavailable | StoreErrorKind::Misconfigured => self.health.failed(|| {
                tracing::error!(target: "tower_quota::store", group, %error, ?policy, "decisions without the store");
            }),
        }
    }

    /// What a charge was worth, told to the store that counted it, or to this process, which did so by its share.
    pub(crate) fn settle(
        &self,
        settlement: &Settlement<'_>,
        counted_by: CountedBy,
        share: Option<u8>,
    ) -> Answer<Verdict> {
        if let (CountedBy::LocalShare, Some(settlement)) =
            (counted_by, share.and_then(|percent| settlement.by_share(percent)))
        {
            return self.local.get_or_init(MemoryStore::new).settle(&settlement);
        }
        match &self.store {
            Backend::Memory(memory) => memory.settle(settlement),
            Backend::Other(store) => store.settle(settlement),
        }
    }

    /// A charge stays, though it should have been given back.
    #[cfg(feature = "waiting")]
    pub(crate) fn note_unsettled(&self, error: &StoreError) {
        let group = &self.group;
        counts::unsettled(group);
        self.failures.at_most_each_second(|held_back| {
            tracing::error!(target: "tower_quota::store", group, %error, held_back, "a charge was not given back");
        });
    }

    pub(crate) fn reset(&self, question: &Question<'_>) -> Answer<()> {
        match &self.store {
            Backend::Memory(memory) => memory.reset(question),
            Backend::Other(store) => store.reset(question),
        }
    }

    /// Takes down the end of a call that was counted by the store, or by this process's share.
    #[cfg(feature = "waiting")]
    pub(crate) fn end(&self, end: &CallEnd<'_>, counted_by: CountedBy, share: Option<u8>) -> Answer<()> {
        match (counted_by, &self.store, share) {
            (CountedBy::LocalShare, _, Some(percent)) => {
                let end = CallEnd { demand: end.demand.by_share(percent), ..*end };
                self.local.get_or_init(MemoryStore::new).end(&end)
            }
            (CountedBy::Nobody, ..) => Answer::Ready(Ok(())),
            (_, Backend::Memory(memory), _) => memory.end(end),
            (_, Backend::Other(store), _) => store.end(end),
        }
    }

    /// The clock that charges wait by.
    #[cfg(feature = "waiting")]
    pub(crate) fn clock(&self) -> &dyn crate::clock::Clock {
        match &self.store {
            Backend::Memory(memory) => memory.clock(),
            Backend::Other(store) => store.clock(),
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
        let Self { group, store, on_store_failure, axes, .. } = self;
        f.debug_struct("Ledger")
            .field("group", group)
            .field("is_in_memory", &matches!(store, Backend::Memory(_)))
            .field("on_store_failure", on_store_failure)
            .field("axes", &*axes.lock())
            .finish_non_exhaustive()
    }
}
