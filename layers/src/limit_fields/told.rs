//! What a decision is told as, and how layers around each other tell in one line.

use std::cmp::Ordering;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, Response};
use tower_quota_core::{Report, Verdict};

use super::field::{Field, List, joined};
use super::kind::{Draft, LimitFields, ResetFormat};

/// Writes the fields of a layer.
#[derive(Debug)]
pub(crate) struct Fields {
    kind: LimitFields,
    /// The policies as they were written first. Most layers have the same for all requests.
    policies: OnceLock<(Vec<Policy>, HeaderValue)>,
}

/// What does not change from request to request, unless a limit is changed or there are plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Policy {
    axis: &'static str,
    limit: u64,
    window: Duration,
}

/// What is told of one decision.
pub(crate) struct Told {
    lists: Option<Lists>,
    x_rate_limit: Option<ResetFormat>,
    tightest: Standing,
}

struct Lists {
    policies: HeaderValue,
    limits: HeaderValue,
}

/// Where a caller stands on one axis; times in seconds.
#[derive(Clone, Copy)]
struct Standing {
    fits: bool,
    limit: u64,
    remaining: u64,
    reset: u64,
}

/// What the layers around a handler have told so far: which fields are theirs, by their [numbers](Field), and where the
/// caller stands on the tightest axis.
#[derive(Clone, Copy)]
struct ToldSoFar {
    is_ours: [bool; 5],
    tightest: Standing,
}

impl Fields {
    pub(crate) fn new(kind: LimitFields) -> Self {
        Self { kind, policies: OnceLock::new() }
    }

    pub(crate) fn kind(&self) -> LimitFields {
        self.kind
    }

    /// What is told of a decision; nothing if nobody counted.
    pub(crate) fn told_of(&self, verdict: &Verdict) -> Option<Box<Told>> {
        let reports = verdict.reports();
        let tightest = reports.iter().map(Standing::of).min_by(Standing::by_tightness)?;
        let LimitFields { draft, x_rate_limit } = self.kind;
        let lists = draft.map(|Draft::Eleven| Lists { policies: self.policies(reports), limits: limits(reports) });
        Some(Box::new(Told { lists, x_rate_limit, tightest }))
    }

    fn policies(&self, reports: &[Report]) -> HeaderValue {
        let policies = || reports.iter().map(Policy::of);
        let (written, value) = self.policies.get_or_init(|| (policies().collect(), Policy::list(policies())));
        if written.iter().copied().eq(policies()) { value.clone() } else { Policy::list(policies()) }
    }
}

impl Policy {
    fn of(report: &Report) -> Self {
        Self { axis: report.axis(), limit: report.limit(), window: report.window() }
    }

    fn list(policies: impl Iterator<Item = Self>) -> HeaderValue {
        let mut list = List::with_room_for(2);
        policies.for_each(|Self { axis, limit, window }| list.push(axis, [(";q=", limit), (";w=", seconds(window))]));
        list.into_value()
    }
}

fn limits(reports: &[Report]) -> HeaderValue {
    let mut list = List::with_room_for(reports.len());
    for report in reports {
        let Standing { remaining, reset, .. } = Standing::of(report);
        list.push(report.axis(), [(";r=", remaining), (";t=", reset)]);
    }
    list.into_value()
}

impl Standing {
    fn of(report: &Report) -> Self {
        // A client that waits until the reset must not be refused then.
        let reset = seconds(report.reset().max(report.wait()));
        Self { fits: report.fits(), limit: report.limit(), remaining: report.remaining(), reset }
    }

    /// What refuses comes first, the longest first; then by the part of the limit that is left, and by how long it stays so.
    fn by_tightness(&self, other: &Self) -> Ordering {
        let part = |one: &Self, of: &Self| u128::from(one.remaining) * u128::from(of.limit.max(1));
        let by_reset = other.reset.cmp(&self.reset);
        match (self.fits, other.fits) {
            (false, false) => by_reset,
            (true, true) => part(self, other).cmp(&part(other, self)).then(by_reset),
            (fits, other_fits) => fits.cmp(&other_fits),
        }
    }
}

impl Told {
    /// Tells it in the header of a response, beside what layers further in have told.
    pub(crate) fn tell<B>(self, response: &mut Response<B>) {
        let inner = response.extensions().get::<ToldSoFar>().copied();
        let tightest = inner
            .map_or(self.tightest, |inner| std::cmp::min_by(self.tightest, inner.tightest, Standing::by_tightness));
        let mut header = Header { fields: response.headers_mut(), is_ours: inner.map_or([false; 5], |it| it.is_ours) };
        if let Some(Lists { policies, limits }) = self.lists {
            header.set(Field::Policy, policies, |ours, inner| joined(&ours, inner));
            header.set(Field::Limit, limits, |ours, inner| joined(&ours, inner));
        }
        if let Some(format) = self.x_rate_limit {
            let reset = reset(tightest.reset, format);
            for (field, number) in
                [(Field::XLimit, tightest.limit), (Field::XRemaining, tightest.remaining), (Field::XReset, reset)]
            {
                header.set(field, number.into(), |tightest, _| tightest);
            }
        }
        let is_ours = header.is_ours;
        response.extensions_mut().insert(ToldSoFar { is_ours, tightest });
    }
}

/// The header of a response, and which fields in it are ours.
struct Header<'h> {
    fields: &'h mut HeaderMap,
    is_ours: [bool; 5],
}

impl Header<'_> {
    /// Sets a field, unless somebody else has; `with` puts it together with what is there from a layer further in.
    fn set(&mut self, field: Field, value: HeaderValue, with: impl Fn(HeaderValue, &HeaderValue) -> HeaderValue) {
        let (name, is_ours) = (field.name(), &mut self.is_ours[field as usize]);
        // Not by an entry, which would move the value about more than once.
        if !self.fields.contains_key(&name) {
            self.fields.insert(name, value);
            *is_ours = true;
        } else if *is_ours && let Some(inner) = self.fields.get_mut(name) {
            *inner = with(value, inner);
        }
    }
}

/// Whole seconds, rounded up.
fn seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

fn reset(seconds: u64, format: ResetFormat) -> u64 {
    match format {
        ResetFormat::SecondsLeft => seconds,
        ResetFormat::UnixTime => {
            #[expect(clippy::disallowed_methods, reason = "clients know no other time")]
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            // Rounded up as well: whoever comes at that second must not come too early.
            self::seconds(now).saturating_add(seconds)
        }
    }
}
