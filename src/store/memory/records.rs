//! Verdicts that were given to requests with an id, so that none is charged twice.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;

use crate::digest::Digest;
use crate::key::Key;
use crate::question::Demand;
use crate::store::contract::{StoreError, StoreErrorKind};
use crate::verdict::Verdict;

/// The admitted requests of the last while. Their decisions are made one after the other.
pub(super) struct Records {
    max: usize,
    kept_for: Duration,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    verdicts: HashMap<Digest, Verdict>,
    /// When each is forgotten, in microseconds, the earliest first.
    ends: VecDeque<(u64, Digest)>,
}

impl Records {
    /// No records, and room for so many, each kept for so long.
    pub(super) fn new(max: usize, kept_for: Duration) -> Self {
        Self { max, kept_for, kept: Mutex::default() }
    }

    pub(super) fn kept_for(&self) -> Duration {
        self.kept_for
    }

    /// The verdict on record, or else that of `decide`, which is kept if it `charges` anything.
    pub(super) fn once(
        &self,
        request: Digest,
        charges: bool,
        now: u64,
        decide: impl FnOnce() -> Result<Verdict, StoreError>,
    ) -> Result<Verdict, StoreError> {
        let mut kept = self.kept.lock();
        kept.forget_until(now);
        if let Some(verdict) = kept.verdicts.get(&request) {
            return Ok(verdict.clone());
        }
        if kept.verdicts.len() >= self.max {
            return Err(StoreError::new(StoreErrorKind::StoreFull).because("too many requests with an id"));
        }
        let verdict = decide()?;
        if charges && verdict.is_admitted() {
            let end = now.saturating_add(u64::try_from(self.kept_for.as_micros()).unwrap_or(u64::MAX));
            kept.verdicts.insert(request, verdict.clone());
            kept.ends.push_back((end, request));
        }
        Ok(verdict)
    }
}

impl Kept {
    fn forget_until(&mut self, now: u64) {
        while let Some((end, request)) = self.ends.front() {
            if *end > now {
                break;
            }
            self.verdicts.remove(request);
            self.ends.pop_front();
        }
    }
}

/// Stands for a request's id and for what it asks.
pub(super) fn digest_of_request(id: &Key, demands: &[Demand<'_>]) -> Digest {
    let id = Digest::default().with(0, id.as_bytes());
    demands.iter().fold(id, |so_far, demand| {
        let Digest { lock, place } = demand.counter();
        so_far.with(lock, &place.to_be_bytes()).with(demand.terms.units, &[])
    })
}
