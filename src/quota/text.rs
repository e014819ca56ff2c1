//! A quota as text: for environment variables, configuration files and messages.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Algorithm, Quota};
use crate::config_error::ConfigError;

/// Units of time, from the longest, as they are written and as they are read.
const UNITS: [(&[&str], u64); 6] = [
    (&["d", "day", "days"], 86_400_000_000),
    (&["h", "hour", "hours"], 3_600_000_000),
    (&["m", "min", "minute", "minutes"], 60_000_000),
    (&["s", "sec", "second", "seconds"], 1_000_000),
    (&["ms"], 1_000),
    (&["us", "µs"], 1),
];

/// Reads `30/h`, `60/10m`, `fixed 30/h`, `aligned 3000/day`, `sliding 5/s`, or `bucket 100 10/s` (a capacity of 100,
/// refilled by 10 a second).
///
/// Without a word in front it is a [sliding window](Quota::sliding_window). A period is a unit, or a whole number of
/// them: `us`, `ms`, `s`, `m`, `h` and `d`, or `sec`, `min`, `second`, `minute`, `hour` and `day`, in the plural too.
/// [`Display`](fmt::Display) writes what this reads.
///
/// # Errors
///
/// A text of another form is an error of the field `quota`; numbers that cannot be counted are the errors of the
/// constructor that the text names.
impl FromStr for Quota {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let unreadable = || {
            ConfigError::new(
                "quota",
                format!(
                    "{text:?} is not a quota: write \"30/h\", \"fixed 30/h\", \"aligned 30/h\", \"sliding 30/h\" or \
                     \"bucket 100 10/s\" (capacity, refill), with a period such as s, 10m, h or d"
                ),
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let rate = |word| rate(word).ok_or_else(unreadable);
        match words[..] {
            [word] | ["sliding", word] => {
                let (limit, period) = rate(word)?;
                Self::sliding_window(limit, period)
            }
            ["fixed", word] => {
                let (limit, period) = rate(word)?;
                Self::fixed_window(limit, period)
            }
            ["aligned", word] => {
                let (limit, period) = rate(word)?;
                Self::aligned_window(limit, period)
            }
            ["bucket", capacity, word] => {
                let (refill, period) = rate(word)?;
                Self::token_bucket(number(capacity).ok_or_else(unreadable)?, refill, period)
            }
            _ => Err(unreadable()),
        }
    }
}

impl TryFrom<&str> for Quota {
    type Error = ConfigError;

    fn try_from(text: &str) -> Result<Self, ConfigError> {
        text.parse()
    }
}

/// `30/h`: a number, a slash, a period.
fn rate(text: &str) -> Option<(u64, Duration)> {
    let (units, period) = text.split_once('/')?;
    Some((number(units)?, duration(period)?))
}

/// `h` or `10m`: a unit of time, or a whole number of them.
fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(unit_at);
    let count = if count.is_empty() { 1 } else { number(count)? };
    let (_, micros) = UNITS.iter().find(|(names, _)| names.contains(&unit))?;
    count.checked_mul(*micros).map(Duration::from_micros)
}

/// Digits only: no sign, no exponent, no space.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit();
        match self.algorithm() {
            Algorithm::FixedWindow => write!(f, "fixed {limit}/")?,
            Algorithm::AlignedWindow => write!(f, "aligned {limit}/")?,
            Algorithm::SlidingWindow => write!(f, "{limit}/")?,
            Algorithm::TokenBucket => write!(f, "bucket {limit} {}/", self.refill())?,
            Algorithm::Attempts => write!(f, "rest after {limit} attempts, ")?,
            Algorithm::Failures => write!(f, "lock after {limit} failures, ")?,
        }
        let micros = self.counted().micros;
        let longest_unit = UNITS.iter().find(|(_, unit)| micros.is_multiple_of(*unit));
        let (names, unit) = longest_unit.unwrap_or(&UNITS[UNITS.len() - 1]);
        match micros / unit {
            1 => write!(f, "{}", names[0]),
            count => write!(f, "{count}{}", names[0]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DAY, HOUR, MINUTE, SECOND};

    #[test]
    fn text_reads_as_what_it_says() {
        for (text, quota) in [
            ("30/h", Quota::per_hour(30)),
            ("  30/hour ", Quota::per_hour(30)),
            ("60/10m", Quota::sliding_window(60, 10 * MINUTE)),
            ("sliding 8/s", Quota::per_second(8)),
            ("fixed 20/h", Quota::fixed_window(20, HOUR)),
            ("aligned 0/d", Quota::aligned_window(0, DAY)),
            ("bucket 12000 12000/min", Quota::token_bucket(12_000, 12_000, MINUTE)),
            ("1/1500ms", Quota::sliding_window(1, Duration::from_millis(1_500))),
        ] {
            assert_eq!(text.parse(), quota, "{text}");
        }
    }

    #[test]
    fn other_text_is_told_what_would_work() {
        for text in [
            "",
            " ",
            "30",
            "30/",
            "/h",
            "30/x",
            "-1/h",
            "+1/h",
            "1e3/h",
            "0.5/h",
            "30 /h",
            "30/-1h",
            "30/h/h",
            "30/0.5h",
            "gcra 30/h",
            "bucket 30/h",
            "fixed 1 2/h",
            "99999999999999999999/h",
            "1/99999999999999999999h",
            "3٣/h",
        ] {
            let error = text.parse::<Quota>().unwrap_err();
            assert_eq!(error.field(), "quota", "{text}");
            assert!(error.reason().contains("30/h"));
        }
        assert_eq!("30/0s".parse::<Quota>().unwrap_err().field(), "quota.period");
    }

    #[test]
    fn a_written_quota_reads_as_itself() {
        for quota in [
            Quota::fixed_window(30, HOUR),
            Quota::aligned_window(30, 90 * SECOND),
            Quota::sliding_window(30, Duration::from_micros(1_500)),
            Quota::token_bucket(100, 10, 7 * DAY),
        ] {
            let quota = quota.unwrap();
            assert_eq!(quota.to_string().parse(), Ok(quota), "{quota}");
        }
    }
}
