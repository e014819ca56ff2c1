//! The scripts, and how a decision is put into the words of one and read out of its reply.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Arg, Cmd, Value};
use smallvec::SmallVec;

use super::names::letter;
use crate::call_end::CallEnd;
use crate::question::{Demand, Terms};
use crate::settlement::Settlement;
use crate::verdict::{Fit, Report};

/// A script, and the digest that a server knows it by.
pub(super) struct Script {
    source: &'static str,
    digest: String,
}

pub(super) static DECIDE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("lapse.lua"),
        include_str!("judge.lua"),
        include_str!("write.lua"),
        include_str!("decide.lua")
    ))
});
pub(super) static SETTLE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("lapse.lua"),
        include_str!("judge.lua"),
        include_str!("write.lua"),
        include_str!("settle.lua")
    ))
});
pub(super) static END: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("lapse.lua"), include_str!("write.lua"), include_str!("end.lua")))
});
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
    /// In microseconds, not 0; `None`: the server's time.
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
    let keep = if now.is_some() { KEPT_BY_ANOTHER_CLOCK } else { 0 };
    call.arg(pack([serial, now.unwrap_or(0), millis(kept), keep]).as_slice());
    for demand in demands {
        call.arg(packed(demand).as_slice());
    }
    call
}

/// Numbers as the script's CIRCUMSTANCES.
fn pack(numbers: [u64; 4]) -> [u8; 32] {
    let mut packed = [0; 32];
    for (place, number) in packed.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    packed
}

/// A demand as the script's DEMAND.
fn packed(demand: &Demand<'_>) -> SmallVec<[u8; 64]> {
    let Demand { terms, watermark, .. } = demand;
    let (quota, period) = (terms.quota, terms.quota.counted());
    let marks = watermark.map(|watermark| watermark.marks(quota.limit()));
    // Neither comes near the sign's bit.
    let no_marks = (-1, terms.call.cast_signed());
    let (high, low) = marks.map_or(no_marks, |(high, low)| (high.cast_signed(), low.cast_signed()));
    let units = if terms.can_fit() { terms.units.cast_signed() } else { -1 };
    let mut packed = SmallVec::new();
    packed.push(letter(quota.algorithm()));
    packed.extend_from_slice(&quota.limit().to_be_bytes());
    packed.extend_from_slice(&units.to_be_bytes());
    packed.extend_from_slice(&(period.micros / u64::from(period.tick)).to_be_bytes());
    packed.extend_from_slice(&period.tick.to_be_bytes());
    packed.extend_from_slice(&quota.refill().to_be_bytes());
    packed.extend_from_slice(&high.to_be_bytes());
    packed.extend_from_slice(&low.to_be_bytes());
    packed
}

fn millis(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1))
}

/// The call that corrects a charge on these counters, at this time in microseconds, or at the server's.
pub(super) fn settle(settlement: &Settlement<'_>, counters: &[String], serial: u64, now: Option<u64>) -> Cmd {
    let mut call = SETTLE.call(counters);
    let keep = if now.is_some() { KEPT_BY_ANOTHER_CLOCK } else { 0 };
    call.arg(pack([serial, now.unwrap_or(0), micros(settlement.charged_at()), keep]).as_slice());
    for (demand, worth) in settlement.demands() {
        let (quota, period) = (demand.terms.quota, demand.terms.quota.counted());
        let mut packed: SmallVec<[u8; 64]> = SmallVec::new();
        packed.push(letter(quota.algorithm()));
        packed.extend_from_slice(&quota.limit().to_be_bytes());
        packed.extend_from_slice(&(period.micros / u64::from(period.tick)).to_be_bytes());
        packed.extend_from_slice(&period.tick.to_be_bytes());
        packed.extend_from_slice(&quota.refill().to_be_bytes());
        packed.extend_from_slice(&demand.terms.units.to_be_bytes());
        packed.extend_from_slice(&worth.to_be_bytes());
        call.arg(packed.as_slice());
    }
    call
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The call that tells the end of another, at this time in microseconds, or at the server's.
pub(super) fn end(end: &CallEnd<'_>, counter: String, now: Option<u64>) -> Cmd {
    let CallEnd { demand, ending } = end;
    let quota = demand.terms.quota;
    let keep = if now.is_some() { KEPT_BY_ANOTHER_CLOCK } else { 0 };
    let mut packed = Vec::with_capacity(64);
    packed.extend([now.unwrap_or(0), keep].into_iter().flat_map(u64::to_be_bytes));
    packed.push(letter(quota.algorithm()));
    packed.extend([quota.limit(), quota.counted().micros].into_iter().flat_map(u64::to_be_bytes));
    packed.extend(quota.refill().to_be_bytes());
    packed.extend([ending.call, ending.units, ending.charged_at].into_iter().flat_map(u64::to_be_bytes));
    packed.push(ending.outcome as u8);
    packed.extend(ending.rest_at_least.min(LONGEST_REST).to_be_bytes());
    let mut call = END.call(&[counter]);
    call.arg(packed);
    call
}

/// Ten years, in microseconds, which a rest cannot be longer than either.
const LONGEST_REST: u64 = 3_653 * 24 * 60 * 60 * 1_000_000;

/// The call that claims the news of a mark for an instance.
pub(super) fn claim(counter: &str, mark: u64, instance: u64) -> Cmd {
    let mut call = CLAIM.call(&[counter.to_owned()]);
    call.arg([mark.to_be_bytes(), instance.to_be_bytes()].concat());
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
            return Report::admitted(terms.label, &terms.quota, used, reset, is_above).by_limit(limit);
        }
        let fit = Fit::of(terms, wait.is_none());
        Report::in_micros(terms, fit, used, wait.unwrap_or_default(), reset, is_above)
    }
}

/// What was found on all counters of a decision.
pub(super) struct Findings {
    /// When, in microseconds.
    pub(super) at: u64,
    pub(super) found: SmallVec<[Found; 4]>,
}

/// A reply to the decision of this serial, on so many demands; `None` if it is none.
pub(super) fn read(reply: &Value, serial: u64, demands: usize) -> Option<Findings> {
    const FINDING: usize = 33;
    let Value::BulkString(bytes) = reply else { return None };
    let (of, rest) = number(bytes)?;
    let (at, rest) = number(rest)?;
    let (findings, mut limits) = rest.split_at_checked(demands * FINDING)?;
    if of != serial || ![0, demands * size_of::<u64>()].contains(&limits.len()) {
        return None;
    }
    let found = findings.chunks_exact(FINDING).map(|finding| {
        let (used, rest) = number(finding)?;
        let (wait, rest) = number(rest)?;
        let (reset, rest) = number(rest)?;
        let (mark, rest) = number(rest)?;
        let decided_by = number(limits).map(|(limit, rest)| {
            limits = rest;
            limit
        });
        // A wait of -1 is none.
        let wait = u64::try_from(wait.cast_signed()).ok();
        Some(Found { used, wait, reset, is_above: rest == [1], mark, decided_by })
    });
    Some(Findings { at, found: found.collect::<Option<_>>()? })
}

/// The number that these bytes start with, and the rest of them.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(serial: u64, findings: &[[u64; 4]], limits: &[u64]) -> Vec<u8> {
        let numbers = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<_>>();
        let finding = |finding: &[u64; 4]| [numbers(finding), vec![1]].concat();
        [numbers(&[serial, 5_000]), findings.iter().flat_map(finding).collect(), numbers(limits)].concat()
    }

    #[test]
    fn a_reply_that_is_not_ours_is_none() {
        let findings = [[3, u64::MAX, 1_000, 0], [5, 9, 1, 12]];
        let ours = reply(7, &findings, &[]);
        let bytes = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
        let Findings { at, found } = read(&bytes(&ours), 7, 2).unwrap();
        assert_eq!(at, 5_000);
        assert_eq!((found[0].used, found[0].wait, found[1].wait, found[1].mark), (3, None, Some(9), 12));
        let again = read(&bytes(&reply(7, &findings, &[8, 20])), 7, 2).unwrap().found;
        assert_eq!((again[0].decided_by, again[1].decided_by), (Some(8), Some(20)), "decided before, by these limits");
        for (reply, demands) in [
            (bytes(&ours), 1),
            (bytes(&ours), 3),
            (bytes(&reply(8, &findings, &[])), 2),
            (bytes(&reply(7, &findings, &[8])), 2),
            (bytes(&ours[..ours.len() - 1]), 2),
            (bytes(b"OK"), 1),
            (bytes(b""), 0),
            (Value::Nil, 1),
            (Value::Int(7), 1),
            (Value::Array(vec![bytes(&ours)]), 2),
        ] {
            assert!(read(&reply, 7, demands).is_none(), "{reply:?}");
        }
    }

    #[test]
    fn a_whole_call_is_the_same_call_with_the_script_in_place_of_its_digest() {
        let call = claim("counter", 4, 7);
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
