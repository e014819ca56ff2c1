//! A store that answers later: what a store with I/O looks like to the layers.

use tower_quota::testing::FakeClock;
use tower_quota::{Answer, MemoryStore, Question, Settlement, Store, StoreError, StoreErrorKind, Verdict};

/// A memory store whose answers take one turn of the executor, or that cannot answer at all.
pub(crate) struct SlowStore {
    memory: MemoryStore,
    fails: bool,
}

impl SlowStore {
    pub(crate) fn new(clock: FakeClock) -> Self {
        Self { memory: MemoryStore::with_clock(clock), fails: false }
    }

    pub(crate) fn failing() -> Self {
        Self { memory: MemoryStore::new(), fails: true }
    }
}

impl SlowStore {
    fn later(&self, answer: Answer<Verdict>) -> Answer<Verdict> {
        let answer = match answer {
            Answer::Ready(_) if self.fails => Err(StoreError::new(StoreErrorKind::Unavailable)),
            Answer::Ready(answer) => answer,
            pending @ Answer::Pending(_) => return pending,
        };
        Answer::Pending(Box::pin(async {
            tokio::task::yield_now().await;
            answer
        }))
    }
}

impl Store for SlowStore {
    fn decide(&self, question: &Question<'_>) -> Answer<Verdict> {
        self.later(self.memory.decide(question))
    }

    fn settle(&self, settlement: &Settlement<'_>) -> Answer<Verdict> {
        self.later(self.memory.settle(settlement))
    }

    fn reset(&self, question: &Question<'_>) -> Answer<()> {
        self.memory.reset(question)
    }
}
