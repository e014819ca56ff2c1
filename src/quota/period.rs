//! A period as the algorithms count it.

use std::time::Duration;

use crate::config_error::ConfigError;

/// Ten years: nothing is counted for longer.
pub(crate) const LONGEST: Duration = Duration::from_secs(3_653 * 24 * 60 * 60);
/// What a sliding window or a bucket counts its period in, at most.
const MOST_TICKS: u64 = 1 << 27;

/// In microseconds, and in ticks of a power of ten of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Period {
    pub(crate) micros: u64,
    /// Microseconds in a tick: the smallest power of ten that divides the period into at most 2^27 ticks. It depends on
    /// the period only, so that a change of limit never changes it.
    pub(crate) tick: u32,
    pub(crate) ticks: u32,
}

impl Period {
    #[expect(clippy::cast_possible_truncation, reason = "ten years are 3.2 × 10^14 µs")]
    pub(super) fn counted_in_micros(period: Duration) -> Result<Self, ConfigError> {
        let wrong = |reason: &str| Err(ConfigError::new("quota.period", format!("{period:?} {reason}")));
        if period.is_zero() {
            return wrong("is no time at all: use at least a microsecond");
        }
        if period > LONGEST {
            return wrong("is more than ten years: use a shorter one");
        }
        if !period.subsec_nanos().is_multiple_of(1_000) {
            return wrong("has a fraction of a microsecond: use whole microseconds");
        }
        Ok(Self { micros: period.as_micros() as u64, tick: 1, ticks: 0 })
    }

    #[expect(clippy::cast_possible_truncation, reason = "a period has at most 2^27 ticks")]
    pub(super) fn counted_in_ticks(period: Duration) -> Result<Self, ConfigError> {
        let Self { micros, .. } = Self::counted_in_micros(period)?;
        let divides = |tick: &u32| micros.is_multiple_of(u64::from(*tick));
        let ticks_of = |tick: u32| micros / u64::from(tick);
        std::iter::successors(Some(1_u32), |tick| tick.checked_mul(10))
            .take_while(divides)
            .find(|tick| ticks_of(*tick) <= MOST_TICKS)
            .map(|tick| Self { micros, tick, ticks: ticks_of(tick) as u32 })
            .ok_or_else(|| {
                ConfigError::new(
                    "quota.period",
                    format!(
                        "{period:?} is too odd to be counted exactly: use a rounder one (a minute and less in \
                         microseconds, an hour in steps of 100 µs, a day in steps of 1 ms)"
                    ),
                )
            })
    }

    /// The tick that a time in microseconds lies in.
    #[inline(always)]
    pub(crate) fn tick_of(self, micros: u64) -> u64 {
        // By a constant, a division is a product: most periods have one of these ticks.
        match self.tick {
            1 => micros,
            10 => micros / 10,
            100 => micros / 100,
            1_000 => micros / 1_000,
            tick => micros / u64::from(tick),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DAY, HOUR, MINUTE, Quota, SECOND};

    #[test]
    fn a_tick_is_the_smallest_power_of_ten_that_leaves_at_most_2_to_27_of_them() {
        for (period, tick) in
            [(SECOND, 1), (MINUTE, 1), (10 * MINUTE, 10), (HOUR, 100), (DAY, 1_000), (LONGEST, 10_000_000)]
        {
            let counted = Quota::sliding_window(1, period).unwrap().counted();
            assert_eq!(counted.tick, tick, "{period:?}");
            assert_eq!(u64::from(counted.ticks) * u64::from(counted.tick), counted.micros);
        }
    }
}
