//! The scripts, and how a decision is put into the words of one and read out of its reply.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Arg, Cmd, Value};

use super::names::letter;
use crate::question::{Demand, Terms};
use crate::verdict::{Fit, Report};

/// A script, and the digest that a server knows it by.
pub(super) struct Script {
    source: &'static str,
    digest: String,
}

pub(super) static DECIDE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("decide.lua")));
pub(super) static CLAIM: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("claim.lua")));

impl Script {
    fn new(source: &'static str) -> Self {
        Self { source, digest: redis::Script::new(source).get_hash().to_owned() }
    }

    /// A call of this script by its digest, on these keys; its arguments follow.
    fn call(&self, keys: &[String]) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.digest).arg(keys.len()).arg(keys);
        call
    }

    /// The same call, with the script itself instead of its digest.
    pub(super) fn whole(&self, call: &Cmd) -> Cmd {
        let mut whole = redis::cmd("EVAL");
        whole.arg(self.source);
        for argument in call.args_iter().skip(2) {
            if let Arg::Simple(argument) = argument {
                whole.arg(argument);
            }
        }
        whole
    }
}

/// What a decision needs beside its demands.
pub(super) struct Circumstances {
    /// By which the reply is known as this decision's.
    pub(super) serial: u64,
    /// In microseconds; `None`: the server's time.
    pub(super) now: Option<u64>,
    /// The record of the request, and how long it is kept.
    pub(super) record: Option<(String, Duration)>,
}

/// Counters are kept for a minute at least where the time is not the server's, so that its expiry, which is by the
/// server's, does not disturb it.
const KEPT_BY_ANOTHER_CLOCK: u64 = 60_000;

/// The call that decides these demands on these counters.
pub(super) fn decide(demands: &[Demand<'_>], mut counters: Vec<String>, circumstances: Circumstances) -> Cmd {
    let Circumstances { serial, now, record } = circumstances;
    let (record, kept) = record.unzip();
    counters.extend(record);
    let mut call = DECIDE.call(&counters);
    call.arg(serial);
    match now {
        Some(now) => call.arg(now).arg(millis(kept)).arg(KEPT_BY_ANOTHER_CLOCK),
        None => call.arg("").arg(millis(kept)).arg(0),
    };
    for Demand { terms, watermark, .. } in demands {
        let (quota, period) = (terms.quota, terms.quota.counted());
        call.arg(letter(quota.algorithm()).to_string()).arg(quota.limit());
        if terms.can_fit() {
            call.arg(terms.units);
        } else {
            call.arg(-1);
        }
        call.arg(period.micros / u64::from(period.tick)).arg(period.tick).arg(quota.refill());
        match watermark.map(|watermark| watermark.marks(quota.limit())) {
            Some((high, low)) => call.arg(high).arg(low),
            None => call.arg(-1).arg(-1),
        };
    }
    call
}

fn millis(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1))
}

/// The call that claims the news of a mark.
pub(super) fn claim(counter: &str, mark: u64, instance: &str) -> Cmd {
    let mut call = CLAIM.call(&[counter.to_owned()]);
    call.arg(mark).arg(instance);
    call
}

/// What was found on one counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) used: u64,
    wait: Option<u64>,
    pub(super) reset: u64,
    is_above: bool,
    /// As it stands in the counter (`decide.lua`).
    pub(super) mark: u64,
    /// The limit it was admitted by, if that was decided for the same request before.
    decided_by: Option<u64>,
}

impl Found {
    pub(super) fn report(&self, terms: &Terms) -> Report {
        let Self { used, wait, reset, is_above, mark: _, decided_by } = *self;
        if let Some(limit) = decided_by {
            return Report::admitted(terms.label, limit, used, reset, is_above);
        }
        let fit = Fit::of(terms, wait.is_none());
        Report::in_micros(terms, fit, used, wait.unwrap_or_default(), reset, is_above)
    }
}

/// A reply to the decision of this serial, on so many demands; `None` if it is none.
pub(super) fn read(reply: &Value, serial: u64, demands: usize) -> Option<Vec<Found>> {
    let Value::Array(numbers) = reply else { return None };
    let number = |value: &Value| match value {
        Value::Int(number) => Some(*number),
        _ => None,
    };
    let numbers: Vec<i64> = numbers.iter().map(number).collect::<Option<_>>()?;
    let (first, rest) = numbers.split_first()?;
    let (found, limits) = rest.split_at_checked(demands * 5)?;
    if first.cast_unsigned() != serial || ![0, demands].contains(&limits.len()) {
        return None;
    }
    let unsigned = |number: i64| u64::try_from(number).ok();
    let limits = limits.iter().map(|limit| unsigned(*limit)).chain(std::iter::repeat(None));
    let found = found.chunks_exact(5).zip(limits).map(|(found, decided_by)| {
        let &[used, wait, reset, is_above, mark] = found else { return None };
        Some(Found {
            used: unsigned(used)?,
            wait: unsigned(wait),
            reset: unsigned(reset)?,
            is_above: is_above == 1,
            mark: unsigned(mark)?,
            decided_by,
        })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().map(|number| Value::Int(*number)).collect())
    }

    #[test]
    fn a_reply_that_is_not_ours_is_none() {
        let ours = ints(&[7, 3, -1, 1_000, 0, 0, 5, 9, 1, 1, 12]);
        let found = read(&ours, 7, 2).unwrap();
        assert_eq!((found[0].used, found[0].wait, found[1].wait, found[1].mark), (3, None, Some(9), 12));
        let again = read(&ints(&[7, 3, -1, 1_000, 0, 0, 8]), 7, 1).unwrap();
        assert_eq!(again[0].decided_by, Some(8), "decided before, by this limit");
        for (reply, demands) in [
            (ours.clone(), 1),
            (ours.clone(), 3),
            (ints(&[8, 3, -1, 1_000, 0, 0, 5, 9, 1, 1, 12]), 2),
            (ints(&[7, 3, -1, 1_000, 0, 0, 5, 9, 1, 1]), 2),
            (ints(&[7, 3, -1, 1_000, 0, 0, 5, 9, 1, 1, 12, 8]), 2),
            (ints(&[7, -3, -1, 1_000, 0, 0]), 1),
            (ints(&[]), 0),
            (Value::Nil, 1),
            (Value::Array(vec![Value::Int(7), Value::Nil]), 1),
        ] {
            assert!(read(&reply, 7, demands).is_none(), "{reply:?}");
        }
    }

    #[test]
    fn a_whole_call_is_the_same_call_with_the_script_in_place_of_its_digest() {
        let call = claim("counter", 4, "ab");
        let whole = CLAIM.whole(&call);
        let arguments = |call: &Cmd| -> Vec<Vec<u8>> {
            let simple = call.args_iter().filter_map(|argument| match argument {
                Arg::Simple(bytes) => Some(bytes.to_vec()),
                _ => None,
            });
            simple.collect()
        };
        assert_eq!(arguments(&call)[2..], arguments(&whole)[2..]);
        assert_eq!(arguments(&whole)[..2], [b"EVAL".to_vec(), CLAIM.source.as_bytes().to_vec()]);
    }
}
