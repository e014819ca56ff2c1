//! Who goes through, and who waits in which order: the permits of a layer.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::PoisonError;
#[cfg(not(all(test, shuttle)))]
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

#[cfg(all(test, shuttle))]
use shuttle::sync::{Mutex, MutexGuard};
use tower_quota_core::Key;

use super::word::{Attempt, MOST, Word, fits};

/// Permits for requests of one lane, or of a lane for each key below a total.
///
/// Within a lane the first to come goes first, also past a later one that takes less. Of several lanes that wait for the
/// total, the one with the least in flight goes first, and among equals the one whose first waiter came first: so a lane
/// that is alone may use everything, and one that asks for much delays one that asks for little by no more than the end
/// of one request (max-min fairness). Nor can it fill the queue: when that is full, whoever comes last in the longest lane
/// makes room for who would wait in a shorter one (longest queue drop: Suter, Lakshman, Stiliadis and Choudhury, 1998).
///
/// Where there is one lane, and as long as nobody waits, permits are counted in a word; else under a lock.
pub(super) struct Gate {
    /// Open only between two locks.
    word: Word,
    state: Mutex<State>,
}

struct State {
    limits: Limits,
    in_flight: usize,
    queued: usize,
    /// The number of the next waiter; a lower one came earlier.
    next: u64,
    lanes: Lanes,
    /// The lanes whose first waiter waits for the total only: by what they have in flight, and by that waiter.
    ready: BTreeMap<(usize, u64), Option<Key>>,
    /// The lanes with waiters: by how many there are, and by the first.
    waiting: BTreeMap<(usize, u64), Option<Key>>,
    /// Waiters that had to make room, until they see it.
    displaced: HashSet<u64>,
    /// Those who are to be woken once nothing is locked any more.
    woken: Vec<Waker>,
}

/// How much may be in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// In one lane.
    pub(super) lane: usize,
    /// In all of them.
    pub(super) total: usize,
}

impl Limits {
    /// No more than can be counted, whatever requests weigh.
    fn countable(self) -> Self {
        Self { lane: self.lane.min(MOST), total: self.total.min(MOST) }
    }
}

enum Lanes {
    One(Lane),
    ByKey(HashMap<Key, Lane>),
}

#[derive(Default)]
struct Lane {
    in_flight: usize,
    /// Waiters by their numbers. One that is let through, or made room, is not there any more.
    queue: BTreeMap<u64, Waiter>,
}

struct Waiter {
    weight: usize,
    waker: Option<Waker>,
}

/// What asking for a permit came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Through,
    /// As the waiter of this number.
    Queued(u64),
    Full,
}

/// How a waiter leaves the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Through,
    /// For a waiter of a shorter lane.
    Displaced,
}

impl Gate {
    pub(super) fn new(limit: usize) -> Self {
        Self::with(Limits { lane: limit, total: usize::MAX }, Lanes::One(Lane::default()))
    }

    pub(super) fn per_key(limits: Limits) -> Self {
        Self::with(limits, Lanes::ByKey(HashMap::new()))
    }

    fn with(limits: Limits, lanes: Lanes) -> Self {
        let limits = limits.countable();
        let mut state = State {
            limits,
            in_flight: 0,
            queued: 0,
            next: 0,
            lanes,
            ready: BTreeMap::new(),
            waiting: BTreeMap::new(),
            displaced: HashSet::new(),
            woken: Vec::new(),
        };
        let word = Word::closed();
        state.open(&word);
        Self { word, state: Mutex::new(state) }
    }

    /// Goes through if there is room and nobody waits for it; else joins a queue of at most so many, in which somebody else
    /// may have to make room.
    #[inline]
    pub(super) fn enter(&self, key: Option<&Key>, weight: usize, most_queued: usize) -> Entry {
        match self.word.take(weight) {
            Attempt::Done => Entry::Through,
            Attempt::NoRoom if most_queued == 0 => Entry::Full,
            Attempt::NoRoom | Attempt::Closed => self.enter_locked(key, weight, most_queued),
        }
    }

    /// Apart, so that the quick way stays small.
    #[inline(never)]
    fn enter_locked(&self, key: Option<&Key>, weight: usize, most_queued: usize) -> Entry {
        self.change(|state| state.enter(key, weight, most_queued))
    }

    /// Whether a waiter has been let through, or had to make room for another.
    pub(super) fn poll(&self, key: Option<&Key>, number: u64, context: &Context<'_>) -> Poll<Exit> {
        let State { lanes, displaced, .. } = &mut *self.lock();
        match lanes.get_mut(key).and_then(|lane| lane.queue.get_mut(&number)) {
            Some(Waiter { waker: Some(waker), .. }) => waker.clone_from(context.waker()),
            Some(waiter) => waiter.waker = Some(context.waker().clone()),
            None if displaced.remove(&number) => return Poll::Ready(Exit::Displaced),
            None => return Poll::Ready(Exit::Through),
        }
        Poll::Pending
    }

    /// A waiter gives up, or gives back what it was let through with.
    pub(super) fn leave_queue(&self, key: Option<&Key>, number: u64, weight: usize) {
        self.change(|state| {
            let waited = state.remove_waiter(key, number).is_some();
            if !waited && !state.displaced.remove(&number) {
                state.give_back(key, weight);
            }
        });
    }

    /// A request that went through is over.
    #[inline]
    pub(super) fn give_back(&self, key: Option<&Key>, weight: usize) {
        if !self.word.give_back(weight) {
            self.give_back_locked(key, weight);
        }
    }

    /// Apart, so that the quick way stays small.
    #[inline(never)]
    fn give_back_locked(&self, key: Option<&Key>, weight: usize) {
        self.change(|state| state.give_back(key, weight));
    }

    pub(super) fn set_limits(&self, change: impl FnOnce(&mut Limits)) {
        self.change(|state| {
            change(&mut state.limits);
            state.limits = state.limits.countable();
            state.sort_lanes();
        });
    }

    pub(super) fn limits(&self) -> Limits {
        self.lock().limits
    }

    pub(super) fn in_flight(&self) -> usize {
        let state = self.lock();
        state.in_flight + self.word.in_flight()
    }

    pub(super) fn queued(&self) -> usize {
        self.lock().queued
    }

    /// How many lanes are kept.
    pub(super) fn lanes(&self) -> usize {
        match &self.lock().lanes {
            Lanes::One(_) => 1,
            Lanes::ByKey(lanes) => lanes.len(),
        }
    }

    /// Changes something under the lock, lets through whoever may go then, and wakes them once nothing is locked any more.
    /// Counts in the word again if that is enough afterwards.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        state.close(&self.word);
        let changed = change(&mut state);
        state.let_through();
        state.open(&self.word);
        let woken = std::mem::take(&mut state.woken);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        changed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that may panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Leaves the counting to the word, if there is nothing to do but to count.
    fn open(&mut self, word: &Word) {
        if let (Lanes::One(lane), 0) = (&mut self.lanes, self.queued) {
            lane.in_flight = 0;
            word.open(std::mem::take(&mut self.in_flight), self.limits.lane.min(self.limits.total));
        }
    }

    /// Takes the counting back from the word.
    fn close(&mut self, word: &Word) {
        if let Lanes::One(lane) = &mut self.lanes {
            let in_flight = word.close();
            lane.in_flight += in_flight;
            self.in_flight += in_flight;
        }
    }

    fn enter(&mut self, key: Option<&Key>, weight: usize, most_queued: usize) -> Entry {
        let lane = self.lanes.get_mut(key);
        let (in_lane, is_first) = lane.map_or((0, true), |lane| (lane.in_flight, lane.queue.is_empty()));
        let has_room = fits(in_lane, weight, self.limits.lane) && fits(self.in_flight, weight, self.limits.total);
        // Whoever waits for the total came first.
        if is_first && has_room && self.ready.is_empty() {
            self.lanes.get_or_insert(key).in_flight += weight;
            self.in_flight += weight;
            return Entry::Through;
        }
        // Who may not wait makes nobody leave.
        if self.queued >= most_queued && (most_queued == 0 || !self.make_room(key)) {
            return Entry::Full;
        }
        let number = self.next;
        self.next += 1;
        self.queued += 1;
        self.lanes.get_or_insert(key);
        self.change_lane(key, |lane| {
            lane.queue.insert(number, Waiter { weight, waker: None });
        });
        Entry::Queued(number)
    }

    /// Displaces the last waiter of the longest lane, if that is still no shorter than this one with another waiter.
    fn make_room(&mut self, key: Option<&Key>) -> bool {
        let own = self.lanes.get_mut(key).map_or(0, |lane| lane.queue.len());
        let Some((_, longest)) = self.waiting.last_key_value().filter(|((length, _), _)| *length > own + 1) else {
            return false;
        };
        let longest = longest.clone();
        let last = self.lanes.get_mut(longest.as_ref()).and_then(|lane| lane.queue.last_key_value());
        let Some(number) = last.map(|(number, _)| *number) else { return false };
        let waiter = self.remove_waiter(longest.as_ref(), number);
        self.woken.extend(waiter.and_then(|waiter| waiter.waker));
        self.displaced.insert(number);
        true
    }

    /// Takes a waiter out of its queue, if it is there.
    fn remove_waiter(&mut self, key: Option<&Key>, number: u64) -> Option<Waiter> {
        let mut waiter = None;
        self.change_lane(key, |lane| waiter = lane.queue.remove(&number));
        self.queued -= usize::from(waiter.is_some());
        waiter
    }

    fn give_back(&mut self, key: Option<&Key>, weight: usize) {
        self.in_flight -= weight;
        self.change_lane(key, |lane| lane.in_flight -= weight);
    }

    /// Lets through whoever may go, in order.
    fn let_through(&mut self) {
        while let Some((&(_, number), key)) = self.ready.first_key_value() {
            let key = key.clone();
            let waiter = self.lanes.get_mut(key.as_ref()).and_then(|lane| lane.queue.get(&number));
            let Some(weight) = waiter.map(|waiter| waiter.weight) else { return };
            if !fits(self.in_flight, weight, self.limits.total) {
                return;
            }
            self.in_flight += weight;
            self.queued -= 1;
            let mut waker = None;
            self.change_lane(key.as_ref(), |lane| {
                lane.in_flight += weight;
                waker = lane.queue.remove(&number).and_then(|waiter| waiter.waker);
            });
            self.woken.extend(waker);
        }
    }

    /// Changes a lane, and its place among those that wait and those that are ready; forgets it if nothing is left of it.
    fn change_lane(&mut self, key: Option<&Key>, change: impl FnOnce(&mut Lane)) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        if let Some(first) = lane.first() {
            self.ready.remove(&(lane.in_flight, first));
            self.waiting.remove(&(lane.queue.len(), first));
        }
        change(lane);
        if let Some(first) = lane.first() {
            if lane.is_ready(self.limits.lane) {
                self.ready.insert((lane.in_flight, first), key.cloned());
            }
            self.waiting.insert((lane.queue.len(), first), key.cloned());
        }
        let is_over = lane.in_flight == 0 && lane.queue.is_empty();
        if is_over {
            self.lanes.forget(key);
        }
    }

    /// Finds out anew which lanes are ready.
    fn sort_lanes(&mut self) {
        let limit = self.limits.lane;
        self.ready.clear();
        let ready = &mut self.ready;
        self.lanes.for_each(|key, lane| {
            if let Some(first) = lane.first().filter(|_| lane.is_ready(limit)) {
                ready.insert((lane.in_flight, first), key.cloned());
            }
        });
    }
}

impl Lane {
    /// The number of its first waiter, if anybody waits.
    fn first(&self) -> Option<u64> {
        self.queue.first_key_value().map(|(number, _)| *number)
    }

    /// Whether its first waiter waits for nothing in the lane.
    fn is_ready(&self, limit: usize) -> bool {
        self.queue.first_key_value().is_some_and(|(_, waiter)| fits(self.in_flight, waiter.weight, limit))
    }
}

impl Lanes {
    fn get_mut(&mut self, key: Option<&Key>) -> Option<&mut Lane> {
        match self {
            Self::One(lane) => Some(lane),
            Self::ByKey(lanes) => lanes.get_mut(key?),
        }
    }

    fn get_or_insert(&mut self, key: Option<&Key>) -> &mut Lane {
        match self {
            Self::One(lane) => lane,
            Self::ByKey(lanes) => lanes.entry(key.cloned().unwrap_or_else(|| Key::new(b""))).or_default(),
        }
    }

    fn forget(&mut self, key: Option<&Key>) {
        if let (Self::ByKey(lanes), Some(key)) = (self, key) {
            lanes.remove(key);
            if lanes.capacity() > 64 && lanes.len() < lanes.capacity() / 8 {
                lanes.shrink_to(lanes.len() * 2);
            }
        }
    }

    fn for_each(&self, mut look: impl FnMut(Option<&Key>, &Lane)) {
        match self {
            Self::One(lane) => look(None, lane),
            Self::ByKey(lanes) => lanes.iter().for_each(|(key, lane)| look(Some(key), lane)),
        }
    }
}
