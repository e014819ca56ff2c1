//! Who waits for which counter, in the order in which they came.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::digest::Digest;

/// A line for each counter that is waited for. Whoever stands first asks the store; those behind sleep until it has gone.
#[derive(Debug)]
pub(crate) struct Lines {
    most_in_line: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: HashMap<Digest, Line>,
    numbers: u64,
}

/// Those who wait, by their numbers: a lower one came earlier. The first is not asleep for this line's sake.
type Line = BTreeMap<u64, Option<Waker>>;

impl Lines {
    /// Lines of at most so many.
    pub(crate) fn new(most_in_line: usize) -> Self {
        Self { most_in_line, state: Mutex::default() }
    }

    /// Whether nobody waits for anything.
    pub(crate) fn are_empty(&self) -> bool {
        self.state.lock().lines.is_empty()
    }

    /// Whether somebody waits for this counter.
    pub(crate) fn has(&self, counter: Digest) -> bool {
        self.state.lock().lines.contains_key(&counter)
    }

    /// A place at the end of the counter's line; `None` if it is too long.
    pub(crate) fn join(self: &Arc<Self>, counter: Digest) -> Option<Place> {
        let mut state = self.state.lock();
        if state.lines.get(&counter).map_or(0, Line::len) >= self.most_in_line {
            return None;
        }
        let number = state.numbers;
        state.numbers += 1;
        state.lines.entry(counter).or_default().insert(number, None);
        Some(Place { lines: Arc::clone(self), counter, number })
    }
}

/// A place in a line, given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    lines: Arc<Lines>,
    counter: Digest,
    number: u64,
}

impl Place {
    /// Whose line it is in.
    pub(crate) fn counter(&self) -> Digest {
        self.counter
    }

    /// Whether it is the first.
    pub(crate) fn is_first(&self) -> bool {
        let state = self.lines.state.lock();
        state
            .lines
            .get(&self.counter)
            .and_then(BTreeMap::first_key_value)
            .is_none_or(|(first, _)| *first == self.number)
    }

    /// Ends when it is the first.
    pub(crate) fn first(&self) -> First<'_> {
        First(self)
    }
}

/// Waits for a place to be the first of its line.
pub(crate) struct First<'p>(&'p Place);

impl Future for First<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Place { lines, counter, number } = self.0;
        let mut state = lines.state.lock();
        let Some(line) = state.lines.get_mut(counter) else { return Poll::Ready(()) };
        if line.first_key_value().is_none_or(|(first, _)| first == number) {
            return Poll::Ready(());
        }
        line.insert(*number, Some(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.lines.state.lock();
        let Some(line) = state.lines.get_mut(&self.counter) else { return };
        let was_first = line.first_key_value().is_some_and(|(first, _)| *first == self.number);
        line.remove(&self.number);
        let mut next = None;
        if line.is_empty() {
            state.lines.remove(&self.counter);
        } else if was_first {
            next = line.first_entry().and_then(|mut first| first.get_mut().take());
        }
        drop(state);
        if let Some(next) = next {
            next.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_first(place: &Place) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let ready = Pin::new(&mut place.first()).poll(&mut context).is_ready();
        assert_eq!(ready, place.is_first());
        ready
    }

    #[test]
    fn who_finds_no_place_leaves_nothing_behind() {
        let lines = Arc::new(Lines::new(0));
        assert!(lines.join(Digest::of_axis("g", "one")).is_none());
        assert!(lines.are_empty());
    }

    #[test]
    fn the_first_to_come_is_the_first_until_it_leaves() {
        let lines = Arc::new(Lines::new(3));
        let (one, other) = (Digest::of_axis("g", "one"), Digest::of_axis("g", "other"));
        let first = lines.join(one).unwrap();
        let second = lines.join(one).unwrap();
        let third = lines.join(one).unwrap();
        let elsewhere = lines.join(other).unwrap();
        assert!(lines.join(one).is_none(), "it is too long");
        assert!(is_first(&first) && !is_first(&second) && !is_first(&third) && is_first(&elsewhere));
        drop(second);
        assert!(!is_first(&third));
        drop(first);
        assert!(is_first(&third));
        drop((third, elsewhere));
        assert!(lines.are_empty());
    }
}
