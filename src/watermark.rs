//! An alert while there is still time to act.

mod sink;

use std::fmt;
use std::time::Duration;

use crate::config_error::ConfigError;
use crate::name::Label;
use crate::quiet::quietly;
use sink::Sink;

/// A mark on the usage of a shared axis, and who is told when it is passed.
///
/// An **episode** starts when usage reaches the high mark, and ends when usage, by the time of a later charge, has fallen
/// to the low mark. Each episode is told once, however many requests pass meanwhile.
///
/// Only a charge starts or ends an episode: of a limit that is lowered below what is used, the next charge that fits tells.
///
/// Without [`notify`](Self::notify) an episode is a `tracing` event of level `WARN` and target `tower_quota::watermark`,
/// emitted by the request that passes the mark; over a shared store, by the instance that was the first to see it.
///
/// ```
/// use std::sync::mpsc;
/// use tower_quota_core::{Group, HOUR, MemoryStore, Quota, Watermark};
///
/// let (alerts, inbox) = mpsc::sync_channel(16);
/// let items = Group::new("item", MemoryStore::new())?;
/// let capacity = items
///     .shared("capacity", Quota::fixed_window(3_000, HOUR))
///     .watermark(Watermark::percent(66).cleared_at(50).notify(move |event| {
///         // Whoever reads the inbox posts to the chat.
///         let _ = alerts.try_send(event.to_string());
///     }))
///     .build()?;
/// # let _ = (capacity, inbox);
/// # Ok::<(), tower_quota_core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Watermark {
    high: u8,
    low: u8,
    raised: Option<Sink>,
    cleared: Option<Sink>,
}

impl Watermark {
    /// A mark at `high` percent of the limit, 1 to 100, cleared at 50 percent, or at half of a `high` that is not above
    /// that.
    pub fn percent(high: u8) -> Self {
        Self { high, low: if high > 50 { 50 } else { high / 2 }, raised: None, cleared: None }
    }

    /// An episode ends when usage is at `low` percent of the limit or less; `low` is below the high mark.
    pub fn cleared_at(mut self, low: u8) -> Self {
        self.low = low;
        self
    }

    /// Tells `sink` of each episode when it starts, instead of `tracing`.
    ///
    /// The sink runs on a thread of its own, started for the event and gone after it, one event at a time: it may be
    /// slow, block or panic without any request noticing. While it is busy 64 events wait for it; past that the oldest
    /// is dropped. The thread belongs to no async runtime: to go on there, send into a channel, or keep a handle.
    pub fn notify(mut self, sink: impl Fn(&WatermarkEvent) + Send + Sync + 'static) -> Self {
        self.raised = Some(Sink::new(sink));
        self
    }

    /// Tells `sink` of each episode when it ends. The sink runs as that of [`notify`](Self::notify).
    pub fn notify_cleared(mut self, sink: impl Fn(&WatermarkEvent) + Send + Sync + 'static) -> Self {
        self.cleared = Some(Sink::new(sink));
        self
    }

    pub(crate) fn checked(self) -> Result<Self, ConfigError> {
        let (high, low) = (self.high, self.low);
        if high == 0 || high > 100 {
            return Err(ConfigError::new("watermark.high", format!("{high} % is not a valid mark: use 1 to 100")));
        }
        if low >= high {
            return Err(ConfigError::new(
                "watermark.low",
                format!("{low} % is not below the high mark of {high} %, so that the alert would flap: lower it"),
            ));
        }
        Ok(self)
    }

    /// The mark after a charge that took usage from `before` to `after`, both as of `now` in microseconds.
    #[inline]
    pub(crate) fn next(&self, mark: Mark, limit: u64, before: u64, after: u64, now: u64) -> Mark {
        // Units are at most 2^53, so their hundredfold fits.
        let is_low = before * 100 <= limit * u64::from(self.low);
        let is_high = after * 100 >= limit * u64::from(self.high);
        let was_above = mark.above && !is_low;
        let starts = is_high && !was_above;
        let episode = if starts { now.max(mark.episode + 1) } else { mark.episode };
        Mark { above: was_above || is_high, episode }
    }

    /// The units from which usage is high, and those up to which it is low.
    #[cfg(feature = "redis")]
    pub(crate) fn marks(&self, limit: u64) -> (u64, u64) {
        ((limit * u64::from(self.high)).div_ceil(100), limit * u64::from(self.low) / 100)
    }

    /// Whether anybody wants to know when an episode ends.
    #[cfg(feature = "redis")]
    pub(crate) fn tells_ends(&self) -> bool {
        self.cleared.is_some()
    }

    /// Tells whoever wants to know what a charge changed.
    pub(crate) fn tell(&self, crossing: &Crossing) {
        let Crossing { label, limit, used, time_left, before, after } = *crossing;
        let event = || WatermarkEvent {
            group: label.group,
            axis: label.axis,
            episode: after.episode,
            used,
            limit,
            time_left: Duration::from_micros(time_left),
        };
        let has_started = after.episode != before.episode;
        let has_ended = before.above && (has_started || !after.above);
        if let Some(sink) = self.cleared.as_ref().filter(|_| has_ended) {
            sink.send(WatermarkEvent { episode: before.episode, ..event() });
        }
        match &self.raised {
            Some(sink) if has_started => sink.send(event()),
            // The request is charged by now.
            None if has_started => quietly(|| event().trace()),
            _ => {}
        }
    }
}

impl Default for Watermark {
    /// High at 66 %, low at 50 %.
    fn default() -> Self {
        Self::percent(66)
    }
}

impl fmt::Debug for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { high, low, raised: _, cleared: _ } = self;
        f.debug_struct("Watermark").field("high", high).field("low", low).finish_non_exhaustive()
    }
}

/// Where a counter stands towards its watermark; part of the counter's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) above: bool,
    /// The latest episode: when it started, in microseconds since the Unix epoch, so that no two are the same, not even
    /// when the counter between them was forgotten. 0: there was none.
    pub(crate) episode: u64,
}

/// A charge that took a counter past its watermark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crossing {
    pub(crate) label: &'static Label,
    pub(crate) limit: u64,
    pub(crate) used: u64,
    /// Microseconds until nothing is used any more.
    pub(crate) time_left: u64,
    pub(crate) before: Mark,
    pub(crate) after: Mark,
}

/// Usage of a shared axis passed a watermark.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatermarkEvent {
    /// The group of the axis.
    pub group: &'static str,
    /// The name of the axis.
    pub axis: &'static str,
    /// Tells this episode from any other on its counter: when it started, in microseconds since the Unix epoch, by the
    /// store's clock.
    pub episode: u64,
    /// Units used.
    pub used: u64,
    /// The limit of the axis.
    pub limit: u64,
    /// How long until nothing is used any more, if nothing else is charged: the rest of a fixed window.
    pub time_left: Duration,
}

impl WatermarkEvent {
    fn trace(&self) {
        tracing::warn!(
            target: "tower_quota::watermark",
            group = self.group,
            axis = self.axis,
            episode = self.episode,
            used = self.used,
            limit = self.limit,
            time_left_s = self.time_left.as_secs(),
            "usage has passed its watermark"
        );
    }
}

impl fmt::Display for WatermarkEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, axis, used, limit, time_left, .. } = self;
        let percent = used * 100 / (*limit).max(1);
        write!(f, "{group}.{axis}: {used} of {limit} used ({percent} %), {} s left", time_left.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mark after each usage, as charges take it from one to the next, one in each microsecond from 1 on.
    fn episodes(watermark: &Watermark, limit: u64, usages: &[u64]) -> Vec<(bool, u64)> {
        let mut mark = Mark::default();
        (1..)
            .zip(usages)
            .map(|(now, &usage)| {
                mark = watermark.next(mark, limit, usage, usage, now);
                (mark.above, mark.episode)
            })
            .collect()
    }

    #[test]
    fn an_episode_starts_at_the_high_mark_and_ends_at_the_low_one() {
        let watermark = Watermark::percent(80).cleared_at(70);
        assert_eq!(
            episodes(&watermark, 100, &[79, 80, 79, 81, 71, 80, 69, 80]),
            [(false, 0), (true, 2), (true, 2), (true, 2), (true, 2), (true, 2), (false, 2), (true, 8)]
        );
    }

    #[test]
    fn usage_that_hovers_around_the_mark_is_one_episode() {
        let watermark = Watermark::percent(80).cleared_at(70);
        let usages: Vec<u64> = (0..1_000_000).map(|i| 75 + i % 11).collect();
        assert_eq!(episodes(&watermark, 100, &usages).last(), Some(&(true, 6)));
    }

    #[test]
    fn a_charge_from_below_the_low_mark_to_above_the_high_one_is_a_new_episode() {
        let above = Mark { above: true, episode: 5 };
        let next = |now| Watermark::default().next(above, 100, 0, 70, now);
        assert_eq!(next(9), Mark { above: true, episode: 9 });
        assert_eq!(next(5), Mark { above: true, episode: 6 }, "no two episodes are one");
    }

    #[test]
    fn the_default_marks_are_66_and_50_percent() {
        assert_eq!(
            episodes(&Watermark::default(), 3_000, &[1_979, 1_980, 1_501, 1_500]),
            [(false, 0), (true, 2), (true, 2), (false, 2)]
        );
    }

    /// A subscriber whose output is gone, such as a closed standard error.
    struct Broken;

    impl tracing::Subscriber for Broken {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, _: &tracing::Event<'_>) {
            panic!("nobody reads it");
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn a_log_that_is_broken_breaks_no_request() {
        let group = crate::Group::new("broken", crate::MemoryStore::new()).unwrap();
        let capacity = group.shared("capacity", "fixed 3/h").watermark(Watermark::default()).build().unwrap();
        let meter: crate::Meter<()> = crate::Meter::new(&capacity);
        tracing::subscriber::with_default(Broken, || {
            assert!(meter.ask(&(), 2_u64).answered().is_some_and(|outcome| outcome.is_ok()));
        });
    }

    #[test]
    fn marks_that_cannot_work_are_told() {
        let field = |watermark: Watermark| watermark.checked().unwrap_err().field().to_owned();
        assert_eq!(field(Watermark::percent(0)), "watermark.high");
        assert_eq!(field(Watermark::percent(101)), "watermark.high");
        assert_eq!(field(Watermark::percent(66).cleared_at(66)), "watermark.low");
        assert!(Watermark::percent(1).checked().is_ok());
    }
}
