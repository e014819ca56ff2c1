//! Times two things in turn, and prints a row.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Odd, so that there is a middle one.
const ROUNDS: usize = 11;

/// What a row compares.
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) what: &'static str,
    pub(crate) baseline: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) target: f64,
}

impl Row {
    /// Measures both in turn, round by round, and prints the medians and the median of the ratios.
    pub(crate) fn compare(&self, mut ours: impl FnMut() -> f64, mut baseline: impl FnMut() -> f64) {
        // A round that does not count, to fill caches and tables.
        ours();
        baseline();
        let rounds: Vec<(f64, f64)> = (0..ROUNDS).map(|depth| deeper(depth, &mut || (ours(), baseline()))).collect();
        let of = |part: fn(&(f64, f64)) -> f64| median(rounds.iter().map(part).collect());
        self.print(of(|round| round.0), of(|round| round.1), of(|round| round.0 / round.1));
    }

    pub(crate) fn print(&self, ours: f64, baseline: f64, ratio: f64) {
        let Self { id, what, baseline: name, unit, target } = self;
        let verdict = if ratio <= *target { "meets" } else { "misses" };
        println!(
            "{id:<4} {what}: ours {ours:.1} {unit}, {name} {baseline:.1} {unit}, ratio {ratio:.2}, target {target:.2}, \
             {verdict}"
        );
    }
}

/// Runs a round further down the stack: at which addresses a process happens to lie makes it faster or slower by some
/// nanoseconds, and no two rounds shall share that.
fn deeper<T>(depth: usize, round: &mut dyn FnMut() -> T) -> T {
    let room = black_box([0_u8; 368]);
    let measured = if depth == 0 { round() } else { deeper(depth - 1, round) };
    black_box(&room);
    measured
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds for each of so many calls.
pub(crate) fn nanos_per(calls: usize, time: Duration) -> f64 {
    time.as_secs_f64() * 1e9 / calls as f64
}

/// How long `work` takes.
pub(crate) fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

/// Account names in an order that no cache foresees, the same in each run. In memory they stand in that order, since a name
/// that comes with a request has just been read.
pub(crate) fn accounts(count: usize) -> Vec<String> {
    shuffled(count).iter().map(|number| format!("account-{number:07}")).collect()
}

/// The numbers below this one, in an order that is the same in each run.
pub(crate) fn shuffled(count: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count).collect();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for last in (1..count).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let other = random % (last as u64 + 1);
        numbers.swap(last, usize::try_from(other).expect("an index"));
    }
    numbers
}
