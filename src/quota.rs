//! How much, in how long, by which algorithm.

mod period;
mod text;

#[cfg(feature = "serde")]
mod serde;

use std::fmt;
use std::time::Duration;

pub(crate) use self::period::LONGEST;
pub(crate) use self::period::Period;
use crate::config_error::ConfigError;

/// One second, as a period.
pub const SECOND: Duration = Duration::from_secs(1);
/// One minute, as a period.
pub const MINUTE: Duration = Duration::from_secs(60);
/// One hour, as a period.
pub const HOUR: Duration = Duration::from_secs(60 * 60);
/// One day of 24 hours, as a period.
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Counters and their sums stay exact in stores that know only doubles.
const MOST_UNITS: u64 = 1 << 52;
/// What a sliding window or a refill may hold, so that its product with a period in ticks stays below 2^53.
const MOST_PER_PERIOD: u64 = 1 << 26;

/// How much, in how long, by which algorithm. A value of this type is always one that works.
///
/// | constructor | what it counts | what can pass in any span of one period |
/// |---|---|---|
/// | [`fixed_window`](Self::fixed_window) | a window that starts with the first charge | 2 × limit |
/// | [`aligned_window`](Self::aligned_window) | windows on the clock | 2 × limit |
/// | [`sliding_window`](Self::sliding_window) | two windows on the clock, the earlier one weighted by what is left of it | 2 × limit, and the limit on average |
/// | [`token_bucket`](Self::token_bucket) | a bucket that refills steadily | capacity + refill |
///
/// A limit of 0 means **closed**: everything but a cost of 0 is refused, and told to come back after the time that the
/// axis is [configured with](crate::AxisBuilder::retry_when_closed).
///
/// All of them count in whole units, and in ticks of a microsecond (0.1 ms for an hour, 1 ms for a day), and lose nothing
/// from one decision to the next: a bucket of 12,000 a minute that is asked every millisecond refills at the full rate.
///
/// A quota is also [read from text](#impl-FromStr-for-Quota).
///
/// ```
/// use tower_quota_core::{HOUR, Quota};
///
/// let account = Quota::fixed_window(30, HOUR)?;
/// assert_eq!(account, "fixed 30/h".parse()?);
/// assert_eq!(Quota::per_hour(30)?, "30/h".parse()?);
/// # Ok::<(), tower_quota_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    limit: u64,
    period: Period,
    refill: u32,
    algorithm: Algorithm,
}

/// How a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// One counter, in a window that starts with the first charge.
    FixedWindow,
    /// One counter, in windows on the clock.
    AlignedWindow,
    /// Two counters, in windows on the clock, the earlier one weighted by what is left of it.
    SlidingWindow,
    /// What is used of a capacity, refilled steadily.
    TokenBucket,
    /// Attempts up to a limit, and then a rest (`Cooldown`).
    Attempts,
    /// Failures within a while up to a limit, and then a lock (`Cooldown`).
    Failures,
}

impl Quota {
    /// `limit` units in a window of `period` that starts with the first charge; the next window starts with the first
    /// charge after its end.
    ///
    /// Bound: 2 × `limit` in any span of one period, half at the end of one window and half at the start of the next.
    ///
    /// # Errors
    ///
    /// `quota.limit` above 2^52; `quota.period` of 0, of a fraction of a microsecond, or above ten years.
    pub fn fixed_window(limit: u64, period: Duration) -> Result<Self, ConfigError> {
        Self::window(Algorithm::FixedWindow, limit, MOST_UNITS, period)
    }

    /// `limit` units in each window of `period` on the clock: windows start at multiples of the period since the Unix
    /// epoch, so a window of a day starts at midnight UTC. Calendar months and local time zones are not offered.
    ///
    /// Bound: 2 × `limit` in any span of one period.
    ///
    /// # Errors
    ///
    /// As [`fixed_window`](Self::fixed_window).
    pub fn aligned_window(limit: u64, period: Duration) -> Result<Self, ConfigError> {
        Self::window(Algorithm::AlignedWindow, limit, MOST_UNITS, period)
    }

    /// `limit` units in a sliding window, estimated from the counters of two windows on the clock: the current one, and
    /// the previous one weighted by how much of it the sliding window still covers (rounded down).
    ///
    /// Bound: 2 × `limit` in any span of one period, if all of it comes at the very ends of two windows; `limit` a period
    /// on average. The estimate is the one
    /// that [Cloudflare described](https://blog.cloudflare.com/counting-things-a-lot-of-different-things/).
    ///
    /// # Errors
    ///
    /// `quota.limit` above 2^26 = 67,108,864; `quota.period` of 0, of a fraction of a microsecond, above ten years, or so
    /// odd that it is not a whole number of at most 2^27 ticks of a power of ten of microseconds (1 µs for a minute,
    /// 100 µs for an hour).
    pub fn sliding_window(limit: u64, period: Duration) -> Result<Self, ConfigError> {
        Self::window(Algorithm::SlidingWindow, limit, MOST_PER_PERIOD, period)
    }

    /// A bucket of `capacity` units, refilled steadily by `refill` units a `period`: the token bucket, kept as what is
    /// *used*, so that a change of capacity keeps the usage.
    ///
    /// Bound: `capacity + refill` in any span of one period.
    ///
    /// # Errors
    ///
    /// `quota.refill` of 0 or above 2^26; `quota.capacity` above 2^52 or so large that an empty bucket takes more than
    /// ten years to fill; `quota.period` as [`sliding_window`](Self::sliding_window).
    #[expect(clippy::cast_possible_truncation, reason = "a refill is at most 2^26")]
    pub fn token_bucket(capacity: u64, refill: u64, period: Duration) -> Result<Self, ConfigError> {
        let period = Period::counted_in_ticks(period)?;
        at_most("quota.refill", refill, MOST_PER_PERIOD)?;
        if refill == 0 {
            return Err(ConfigError::new(
                "quota.refill",
                "is 0, so that the bucket would never fill again: use at least 1, or a capacity of 0 to close the axis",
            ));
        }
        at_most("quota.capacity", capacity, MOST_UNITS)?;
        let time_to_fill = u128::from(capacity) * u128::from(period.micros) / u128::from(refill);
        if time_to_fill > LONGEST.as_micros() {
            return Err(ConfigError::new(
                "quota.capacity",
                format!("{capacity} takes more than ten years to fill at this rate: lower it or raise the refill"),
            ));
        }
        Ok(Self { limit: capacity, period, refill: refill as u32, algorithm: Algorithm::TokenBucket })
    }

    /// A [sliding window](Self::sliding_window) of a second.
    ///
    /// # Errors
    ///
    /// `quota.limit` above 2^26.
    pub fn per_second(limit: u64) -> Result<Self, ConfigError> {
        Self::sliding_window(limit, SECOND)
    }

    /// A [sliding window](Self::sliding_window) of a minute.
    ///
    /// # Errors
    ///
    /// `quota.limit` above 2^26.
    pub fn per_minute(limit: u64) -> Result<Self, ConfigError> {
        Self::sliding_window(limit, MINUTE)
    }

    /// A [sliding window](Self::sliding_window) of an hour.
    ///
    /// # Errors
    ///
    /// `quota.limit` above 2^26.
    pub fn per_hour(limit: u64) -> Result<Self, ConfigError> {
        Self::sliding_window(limit, HOUR)
    }

    /// A [sliding window](Self::sliding_window) of 24 hours.
    ///
    /// # Errors
    ///
    /// `quota.limit` above 2^26.
    pub fn per_day(limit: u64) -> Result<Self, ConfigError> {
        Self::sliding_window(limit, DAY)
    }

    /// The same quota with another limit (the capacity of a bucket).
    ///
    /// # Errors
    ///
    /// As the constructor of its algorithm.
    pub fn with_limit(self, limit: u64) -> Result<Self, ConfigError> {
        let period = self.period();
        match self.algorithm {
            Algorithm::FixedWindow => Self::fixed_window(limit, period),
            Algorithm::AlignedWindow => Self::aligned_window(limit, period),
            Algorithm::SlidingWindow => Self::sliding_window(limit, period),
            Algorithm::TokenBucket => Self::token_bucket(limit, self.refill().into(), period),
            Algorithm::Attempts | Algorithm::Failures => Self::then_rest(self.algorithm, limit, period, self.span()),
        }
    }

    /// `limit` attempts or failures, and then a rest. The span is the lease of the attempt at the boundary, or the time
    /// within which failures count.
    #[expect(clippy::cast_possible_truncation, reason = "a span is checked to fit")]
    pub(crate) fn then_rest(
        algorithm: Algorithm,
        limit: u64,
        rest: Duration,
        span: Duration,
    ) -> Result<Self, ConfigError> {
        let period = Period::counted_in_micros(rest).map_err(|error| ConfigError::new("rest", error.reason()))?;
        at_most("limit", limit, u32::MAX.into())?;
        let span = span.as_millis();
        if span == 0 || span > u128::from(u32::MAX) {
            let reason = "is not between a millisecond and 49 days";
            let field = if algorithm == Algorithm::Attempts { "lease" } else { "within" };
            return Err(ConfigError::new(field, reason));
        }
        Ok(Self { limit, period, refill: span as u32, algorithm })
    }

    /// The lease of an attempt at the boundary, or the time within which failures count.
    pub(crate) fn span(&self) -> Duration {
        Duration::from_millis(self.refill.into())
    }

    /// The period, as far as it belongs to what a counter is called: a rest does not.
    pub(crate) fn named_period(&self) -> u64 {
        match self.algorithm {
            Algorithm::Attempts | Algorithm::Failures => 0,
            _ => self.period.micros,
        }
    }

    /// `percent` of this quota: of the limit and the refill, rounded down, but at least 1 of what is not 0.
    #[expect(clippy::cast_possible_truncation, reason = "less than what it is a share of")]
    pub(crate) fn share(self, percent: u8) -> Self {
        let of = |whole: u64| (whole * u64::from(percent) / 100).max(whole.min(1));
        let refill = if self.algorithm == Algorithm::TokenBucket { of(self.refill.into()) as u32 } else { self.refill };
        Self { limit: of(self.limit), refill, ..self }
    }

    fn window(algorithm: Algorithm, limit: u64, most: u64, period: Duration) -> Result<Self, ConfigError> {
        let period = match algorithm {
            Algorithm::SlidingWindow => Period::counted_in_ticks(period)?,
            _ => Period::counted_in_micros(period)?,
        };
        at_most("quota.limit", limit, most)?;
        Ok(Self { limit, period, refill: 0, algorithm })
    }

    /// Units that fit at once: the limit of a window, the capacity of a bucket.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The window, or the time in which a bucket gets its refill.
    pub fn period(&self) -> Duration {
        Duration::from_micros(self.period.micros)
    }

    /// How this quota counts.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units that a bucket gets back in a period; 0 for a window.
    pub fn refill(&self) -> u32 {
        self.refill
    }

    pub(crate) fn counted(&self) -> Period {
        self.period
    }

    /// How many words a quota is written in.
    pub(crate) const WORDS: usize = 4;

    /// This quota in words, to be read with [`from_words`](Self::from_words).
    pub(crate) fn to_words(self) -> [u64; Self::WORDS] {
        let Self { limit, period: Period { micros, tick, ticks }, refill, algorithm } = self;
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        [limit, micros, pair(tick, ticks), pair(refill, algorithm as u32)]
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
    pub(crate) fn from_words([limit, micros, ticks, refill]: [u64; Self::WORDS]) -> Self {
        let halves = |word: u64| ((word >> 32) as u32, word as u32);
        let ((tick, ticks), (refill, algorithm)) = (halves(ticks), halves(refill));
        let algorithm = match algorithm {
            0 => Algorithm::FixedWindow,
            1 => Algorithm::AlignedWindow,
            2 => Algorithm::SlidingWindow,
            3 => Algorithm::TokenBucket,
            4 => Algorithm::Attempts,
            _ => Algorithm::Failures,
        };
        Self { limit, period: Period { micros, tick, ticks }, refill, algorithm }
    }

    /// Whether both quotas keep one counter: a change of limit keeps what is used, one of algorithm or period starts
    /// over.
    pub fn shares_counter_with(&self, other: &Self) -> bool {
        self.algorithm == other.algorithm && self.named_period() == other.named_period()
    }
}

fn at_most(field: &str, value: u64, most: u64) -> Result<(), ConfigError> {
    if value > most {
        return Err(ConfigError::new(
            field,
            format!("{value} is more than the {most} that can be counted exactly: lower it, or count in larger units"),
        ));
    }
    Ok(())
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({self})")
    }
}

impl TryFrom<Result<Quota, ConfigError>> for Quota {
    type Error = ConfigError;

    fn try_from(quota: Result<Quota, ConfigError>) -> Result<Self, ConfigError> {
        quota
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_of(quota: Result<Quota, ConfigError>) -> String {
        quota.unwrap_err().field().to_owned()
    }

    #[test]
    fn what_cannot_be_counted_exactly_does_not_build() {
        let too_long = LONGEST + SECOND;
        let odd = Duration::from_micros((1 << 27) + 1);
        for (field, quota) in [
            ("quota.period", Quota::fixed_window(1, Duration::ZERO)),
            ("quota.period", Quota::aligned_window(1, Duration::from_nanos(1_500))),
            ("quota.period", Quota::fixed_window(1, too_long)),
            ("quota.period", Quota::sliding_window(1, odd)),
            ("quota.period", Quota::token_bucket(1, 1, odd)),
            ("quota.limit", Quota::fixed_window(MOST_UNITS + 1, HOUR)),
            ("quota.limit", Quota::sliding_window(MOST_PER_PERIOD + 1, HOUR)),
            ("quota.refill", Quota::token_bucket(1, 0, HOUR)),
            ("quota.refill", Quota::token_bucket(1, MOST_PER_PERIOD + 1, HOUR)),
            ("quota.capacity", Quota::token_bucket(MOST_UNITS + 1, 1 << 26, SECOND)),
            ("quota.capacity", Quota::token_bucket(3_654, 1, DAY)),
        ] {
            assert_eq!(field_of(quota), field);
        }
    }

    #[test]
    fn the_largest_of_everything_builds() {
        assert!(Quota::fixed_window(MOST_UNITS, LONGEST).is_ok());
        assert!(Quota::fixed_window(1, Duration::from_micros(1)).is_ok());
        assert!(Quota::fixed_window(1, Duration::from_micros((1 << 27) + 1)).is_ok());
        assert!(Quota::sliding_window(MOST_PER_PERIOD, LONGEST).is_ok());
        assert!(Quota::token_bucket(3_653, 1, DAY).is_ok());
    }

    #[test]
    fn a_limit_belongs_to_the_decision_and_a_period_to_the_counter() {
        let hourly = Quota::per_hour(10).unwrap();
        assert!(hourly.shares_counter_with(&hourly.with_limit(20).unwrap()));
        assert!(!hourly.shares_counter_with(&Quota::per_day(10).unwrap()));
        assert!(!hourly.shares_counter_with(&Quota::fixed_window(10, HOUR).unwrap()));
    }
}
