//! Goes through an input in batches, and rests in between.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use super::attempts::Attempts;
use super::axis::CooldownAxis;
use crate::algorithm::Outcome;
use crate::charge_error::ChargeError;
use crate::key::Key;
use crate::lines::Place;
use crate::store::{Answer, PendingAnswer, StoreError};

/// An input, batch by batch. Made by [`CooldownAxis::batches`].
///
/// A batch is what is left of the input, but no more than `most`, and no more than fit below the limit. Cancelled while it
/// waits, it has counted nothing that it did not give out, unless the store was just asked; the rest goes on.
///
/// ```
/// use tower_quota_core::{Cooldown, Group, Key, MINUTE, MemoryStore};
///
/// # async fn example(send: impl AsyncFn(&[u32])) -> Result<(), Box<dyn std::error::Error>> {
/// let relay = Group::new("relay", MemoryStore::new())?;
/// let push = relay.cooldown("school", Cooldown::after_attempts(5_000).rest(3 * MINUTE)).build()?;
/// let recipients: Vec<u32> = (0..12_000).collect();
/// let mut batches = push.batches(&Key::from("north"), &recipients, 200);
/// while let Some(batch) = batches.next().await? {
///     send(&batch).await; // sent or failed, they stay counted
/// }
/// # Ok(())
/// # }
/// ```
pub struct Batches<'t, T> {
    axis: CooldownAxis,
    key: Key,
    left: &'t [T],
    most: usize,
    patience: Duration,
    /// The end of the last batch, on its way to the store.
    ending: Option<tokio::task::JoinHandle<Result<(), StoreError>>>,
}

impl<'t, T> Batches<'t, T> {
    pub(super) fn new(axis: CooldownAxis, key: Key, input: &'t [T], most: usize) -> Self {
        Self { axis, key, left: input, most: most.max(1), patience: Duration::MAX, ending: None }
    }

    /// Waits for each batch for up to so long, for the batches of others before it and for the rest: as long as it takes by
    /// default.
    pub fn wait_up_to(mut self, time: Duration) -> Self {
        self.patience = time;
        self
    }

    /// The next batch, once it may be made; `None` when nothing is left, without waiting for the rest.
    ///
    /// Nothing of the input is lost by an error: the same batch may be asked for again.
    ///
    /// # Errors
    ///
    /// As for [`CooldownAxis::begin`].
    pub async fn next(&mut self) -> Result<Option<Batch<'_, T>>, ChargeError> {
        if let Some(ending) = &mut self.ending {
            // What it came to is the store's to log; a lease ends what it did not hear of.
            let _ = ending.await;
            self.ending = None;
        }
        if self.left.is_empty() {
            return Ok(None);
        }
        let wanted = self.left.len().min(self.most) as u64;
        let begin = self.axis.begin(&self.key, wanted).wait_up_to(self.patience);
        // One call of a key at a time: the place in its line is kept until the call has ended.
        let (attempts, turn) = begin.begin_in_turn().await?;
        // Uncounted, all that was wanted goes.
        let granted = usize::try_from(attempts.granted()).unwrap_or(usize::MAX).min(self.left.len());
        let (batch, left) = self.left.split_at(granted);
        self.left = left;
        Ok(Some(Batch { items: batch, attempts: Some(attempts), _turn: turn, ending: &mut self.ending }))
    }

    /// What has not been given out yet.
    pub fn left(&self) -> &'t [T] {
        self.left
    }
}

impl<T> fmt::Debug for Batches<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("axis", &self.axis)
            .field("left", &self.left.len())
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}

/// A part of the input whose attempts are counted: a slice of it. The call ends when this is dropped.
pub struct Batch<'a, T> {
    items: &'a [T],
    /// `None` once they have ended.
    attempts: Option<Attempts>,
    _turn: Option<Place>,
    ending: &'a mut Option<tokio::task::JoinHandle<Result<(), StoreError>>>,
}

impl<T> Batch<'_, T> {
    /// Lets the key rest for at least so long after this batch. See [`Attempts::rest_at_least`].
    pub fn rest_at_least(&self, time: Duration) {
        if let Some(attempts) = &self.attempts {
            attempts.rest_at_least(time);
        }
    }

    /// The call has ended.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn end(mut self) -> Result<(), StoreError> {
        match self.attempts.take() {
            Some(attempts) => attempts.end().await,
            None => Ok(()),
        }
    }

    fn told(&mut self) -> Option<PendingAnswer<()>> {
        match self.attempts.take()?.tell(Outcome::Ended) {
            Answer::Pending(told) => Some(told),
            Answer::Ready(_) => None,
        }
    }
}

impl<T> Deref for Batch<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.items
    }
}

impl<T> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        if let Some(told) = self.told()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            *self.ending = Some(runtime.spawn(told));
        }
    }
}

impl<T> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("items", &self.items.len())
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}
