//! Counts attempts before they are made.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::attempts::Attempts;
use super::axis::CooldownAxis;
use super::to_its_end::ToItsEnd;
use crate::algorithm::Outcome;
use crate::charge_error::ChargeError;
use crate::clock::Clock;
use crate::cost::Cost;
use crate::digest::Digest;
use crate::jitter::jitter;
use crate::key::Key;
use crate::lines::Place;
use crate::panel::Wanted;
use crate::seen::Seen;
use crate::store::{Answer, StoreError};
use crate::verdict::{Finding, Report, Verdict};
use crate::waiting::first_in_time;

/// Attempts that are counted when this is awaited. Made by [`CooldownAxis::begin`].
///
/// Awaited, it gives the [`Attempts`] that may be made now; a key that rests is a
/// [`ChargeError::Refused`](crate::ChargeError::Refused) with the exact wait. While the call at the limit has not ended,
/// its lease and the rest are told: when it ends, the wait gets shorter.
#[must_use = "nothing is counted before this is awaited"]
#[derive(Clone, Debug)]
pub struct Begin {
    axis: CooldownAxis,
    key: Key,
    attempts: u64,
    patience: Duration,
    is_whole: bool,
}

impl Begin {
    pub(super) fn new(axis: CooldownAxis, key: Key, attempts: u64) -> Self {
        Self { axis, key, attempts, patience: Duration::ZERO, is_whole: false }
    }

    /// Waits for up to so long until the rest has ended: not at all by default. It holds nothing meanwhile; of several
    /// that wait for one key in this process the first to come goes first.
    pub fn wait_up_to(mut self, time: Duration) -> Self {
        self.patience = time;
        self
    }

    /// The attempts are one call that cannot be split. If they do not fit below the limit, the rest starts now; more than
    /// the limit are a [`ChargeError::Never`](crate::ChargeError::Never).
    pub fn whole(mut self) -> Self {
        self.is_whole = true;
        self
    }

    async fn begin(self) -> Result<Attempts, ChargeError> {
        self.begin_in(None).await.map(|(attempts, _)| attempts)
    }

    /// Counts the attempts, standing in this place of the key's line if there is one already; and the place, if the
    /// attempts had one.
    pub(super) async fn begin_in(&self, place: Option<Place>) -> Result<(Attempts, Option<Place>), ChargeError> {
        self.axis.meter().panel().last_outcome(self.begin_in_time(place).await)
    }

    async fn begin_in_time(&self, place: Option<Place>) -> Result<(Attempts, Option<Place>), ChargeError> {
        let (axis, panel) = (&self.axis, self.axis.meter().panel());
        let seen = axis.meter().see(&self.key)?;
        let (clock, lines) = (panel.ledger().clock(), &panel.ledger().lines);
        let started = clock.now();
        let deadline = started.saturating_add(self.patience);
        let counter = self.counter(&seen);
        let mut place = place;
        let mut wanted = self.wanted();
        // Whoever waits already came first.
        if place.is_none() && wanted > 0 && !self.patience.is_zero() && lines.has(counter) {
            place = self.stand_in_line(counter, clock, deadline).await;
            if place.is_none() {
                return Err(self.others_take_too_long(&seen).await);
            }
        }
        loop {
            let verdict = match self.ask(&seen, wanted).await {
                Ok((verdict, call)) => {
                    return Ok((Attempts::new(axis.clone(), self.key.clone(), wanted, &verdict, call), place));
                }
                Err(ChargeError::Refused(verdict)) => verdict,
                Err(error) => return Err(error),
            };
            let counted = &verdict.reports()[0];
            if !counted.fits() && !counted.is_above_watermark() {
                if !self.is_whole && (1..wanted).contains(&counted.remaining()) {
                    wanted = counted.remaining();
                    continue;
                }
                // A closed axis has none, and failures lock by themselves.
                if !counted.is_closed() && !axis.counts_failures() {
                    self.start_the_rest(&verdict).await;
                }
            }
            let (own, quota) = (counted.wait(), axis.axis().quota());
            // A call that is at work at the limit may end at any time, and the rest starts then. What is longer than both has
            // been asked for by another side, and so has a pause, after which a count goes on.
            let is_pause = counted.is_above_watermark() && counted.reset() > own;
            let is_asked_for = is_pause || own > quota.period().saturating_add(quota.span());
            let soonest = if is_asked_for { own } else { own.min(quota.period()) };
            let wait = soonest.max(counted_by_others(&verdict));
            if clock.now().saturating_add(wait) > deadline {
                return Err(ChargeError::Refused(verdict));
            }
            if place.is_none() {
                let stood_alone = !lines.has(counter);
                place = self.stand_in_line(counter, clock, deadline).await;
                if place.is_none() {
                    return Err(ChargeError::Refused(verdict));
                }
                if !stood_alone {
                    continue;
                }
            }
            let latest = deadline.saturating_sub(clock.now()).max(wait);
            clock.sleep(if is_asked_for { (wait + jitter(wait)).min(latest) } else { wait }).await;
            if wait == verdict.wait() && !counted.fits() {
                tracing::info!(
                    target: "tower_quota::cooldown",
                    axis = axis.name(),
                    waited_s = clock.now().saturating_sub(started).as_secs(),
                    "the rest is over"
                );
            }
            wanted = self.wanted();
        }
    }

    /// No more than fit after a rest, unless they cannot be split.
    fn wanted(&self) -> u64 {
        if self.is_whole { self.attempts } else { self.attempts.min(self.axis.axis().quota().limit().max(1)) }
    }

    async fn ask(&self, seen: &Seen, attempts: u64) -> Result<(Verdict, u64), ChargeError> {
        let (panel, cost, call) = (self.axis.meter().panel(), Cost::units(attempts), next_call());
        let wanted = Wanted { seen, cost: &cost, request_id: None, call };
        let answer = match panel.decide(wanted) {
            Answer::Ready(answer) => answer,
            Answer::Pending(answer) => ToItsEnd::new(answer, self.withdraw(attempts, call)).await,
        };
        Ok((panel.outcome_so_far(answer, Some(wanted))?, call))
    }

    /// What becomes of attempts that were counted when nobody waited for it any more: they are not made.
    fn withdraw(&self, attempts: u64, call: u64) -> impl FnOnce(Result<Verdict, StoreError>) + Send + use<> {
        let (axis, key) = (self.axis.clone(), self.key.clone());
        move |answer| {
            if let Ok(verdict) = answer
                && verdict.is_admitted()
                && attempts > 0
            {
                Attempts::new(axis, key, attempts, &verdict, call).withdraw_when_dropped();
            }
        }
    }

    /// What is wanted does not fit below the limit, and cannot be made smaller.
    async fn start_the_rest(&self, verdict: &Verdict) {
        let attempts = Attempts::new(self.axis.clone(), self.key.clone(), 0, verdict, 0);
        // If the store does not answer, the next call finds that out again.
        let _ = attempts.end_as(Outcome::DoesNotFit).await;
    }

    fn counter(&self, seen: &Seen) -> Digest {
        let cost = Cost::units(self.attempts);
        self.axis.meter().panel().question(seen, &cost).demands()[0].counter()
    }

    /// A place at the front of the key's line; `None` if that takes too long, or the line is.
    pub(super) async fn stand_in_line(&self, counter: Digest, clock: &dyn Clock, deadline: Duration) -> Option<Place> {
        let place = self.axis.meter().panel().ledger().lines.join(counter)?;
        let patience = clock.sleep(deadline.saturating_sub(clock.now()));
        (place.is_first() || first_in_time(&place, patience).await).then_some(place)
    }

    /// Counts the attempts, alone among all that ask for the key's turn in this process: one after the other, each until its
    /// place is given up.
    pub(super) async fn begin_in_turn(mut self) -> Result<(Attempts, Option<Place>), ChargeError> {
        let panel = Arc::clone(self.axis.meter().panel());
        let seen = self.axis.meter().see(&self.key)?;
        let clock = panel.ledger().clock();
        let deadline = clock.now().saturating_add(self.patience);
        let Some(turn) = self.stand_in_line(self.counter(&seen), clock, deadline).await else {
            return panel.last_outcome(Err(self.others_take_too_long(&seen).await));
        };
        self.patience = deadline.saturating_sub(clock.now());
        self.begin_in(Some(turn)).await
    }

    /// A refusal by those who came before, of whom no more is known than the lease of a call.
    async fn others_take_too_long(&self, seen: &Seen) -> ChargeError {
        let used = match self.ask(seen, 0).await {
            Ok((look, _)) => look.reports().first().map_or(0, Report::used),
            Err(_) => 0,
        };
        let cost = Cost::units(self.attempts.min(self.axis.axis().quota().limit()));
        let question = self.axis.meter().panel().question(seen, &cost);
        let lease = self.axis.lease();
        let finding = Finding { used, wait: Some(lease), reset: lease, above_watermark: false };
        let report = Report::new(question.demands()[0].terms(), finding);
        ChargeError::Refused(Box::new(Verdict::from_reports([report])))
    }
}

/// The longest wait that others than the cooldown itself tell.
fn counted_by_others(verdict: &Verdict) -> Duration {
    verdict.reports()[1..].iter().map(Report::wait).max().unwrap_or_default()
}

/// A number for a call, which no other has at the same time: exact in every store, and above those that mean something.
fn next_call() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(NEXT.fetch_add(1, Ordering::Relaxed));
    (hasher.finish() >> 12) | 1 << 51
}

impl IntoFuture for Begin {
    type Output = Result<Attempts, ChargeError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.begin())
    }
}
