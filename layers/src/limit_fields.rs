//! What a response tells of the limits: header fields for clients that pace themselves.

use std::cmp::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use http::header::Entry;
use http::{HeaderName, HeaderValue, Response};
use tower_quota_core::{Quota, Report, Verdict};

/// Which fields tell of the limits, on success and on refusal; none by default.
///
/// A response has one line of each field, however many layers are around its handler: those of all axes are listed from
/// the outermost to the innermost, and where a field has room for one axis it is the tightest, the one with the smallest
/// part of its limit left. Axes that share a name cannot be told apart by the client. Fields that the handler, or an upstream, has set itself are kept, and ours of that name left
/// out.
///
/// ```
/// use tower_quota::{Group, HOUR, LimitFields, MemoryStore, Quota, UserQuotaLayer, key};
///
/// let items = Group::new("item", MemoryStore::new())?;
/// let account = items.per_key("account", Quota::fixed_window(30, HOUR)).build()?;
/// let layer = UserQuotaLayer::new(&account, key::header("x-account")?).limit_fields(LimitFields::draft_11());
/// // RateLimit-Policy: "account";q=30;w=3600
/// // RateLimit: "account";r=12;t=1800
/// # let _ = layer;
/// # Ok::<(), tower_quota::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitFields {
    draft: Option<Draft>,
    x_rate_limit: Option<ResetFormat>,
}

/// The versions of the draft standard that can be spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draft {
    /// draft-ietf-httpapi-ratelimit-headers-11.
    Eleven,
}

/// What `X-RateLimit-Reset` tells, on which services differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetFormat {
    /// The seconds until then.
    SecondsLeft,
    /// That time, in seconds since the Unix epoch, by this machine's clock.
    UnixTime,
}

impl LimitFields {
    /// `RateLimit-Policy` and `RateLimit`, as draft-ietf-httpapi-ratelimit-headers-11 has them: `q` the limit, `w` the
    /// period in seconds, `r` what is left, `t` the seconds until the counter is fresh again.
    pub fn draft_11() -> Self {
        Self { draft: Some(Draft::Eleven), x_rate_limit: None }
    }

    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, of the tightest axis.
    pub fn x_rate_limit(reset: ResetFormat) -> Self {
        Self { draft: None, x_rate_limit: Some(reset) }
    }

    /// These, and those of [`x_rate_limit`](Self::x_rate_limit).
    pub fn and_x_rate_limit(mut self, reset: ResetFormat) -> Self {
        self.x_rate_limit = Some(reset);
        self
    }

    /// The names of these fields, to be listed in `Access-Control-Expose-Headers` for pages in a browser, with
    /// `Retry-After` beside them.
    pub fn names(&self) -> Vec<HeaderName> {
        let draft = self.draft.map(|Draft::Eleven| [Field::Policy, Field::Limit]);
        let x = self.x_rate_limit.map(|_| [Field::XLimit, Field::XRemaining, Field::XReset]);
        draft.into_iter().flatten().chain(x.into_iter().flatten()).map(Field::name).collect()
    }
}

/// A field that tells of limits.
#[derive(Clone, Copy)]
enum Field {
    Policy,
    Limit,
    XLimit,
    XRemaining,
    XReset,
}

impl Field {
    fn name(self) -> HeaderName {
        match self {
            Self::Policy => const { HeaderName::from_static("ratelimit-policy") },
            Self::Limit => const { HeaderName::from_static("ratelimit") },
            Self::XLimit => const { HeaderName::from_static("x-ratelimit-limit") },
            Self::XRemaining => const { HeaderName::from_static("x-ratelimit-remaining") },
            Self::XReset => const { HeaderName::from_static("x-ratelimit-reset") },
        }
    }
}

/// The largest integer that a structured field can hold (RFC 9651).
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// Writes the fields of a layer.
#[derive(Debug)]
pub(crate) struct Fields {
    kind: LimitFields,
    /// The policies as they were written last; they change when a limit does.
    policy: Mutex<Option<(Vec<Told>, HeaderValue)>>,
}

/// What is told of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    axis: &'static str,
    limit: u64,
    period: u64,
    remaining: u64,
    reset: u64,
}

/// What the layers around a handler have told so far, the innermost last, and the fields that are theirs.
#[derive(Clone, Debug, Default)]
struct ToldSoFar {
    axes: Vec<Told>,
    /// By their [numbers](Field).
    fields: [bool; 5],
}

impl Fields {
    pub(crate) fn new(kind: LimitFields) -> Self {
        Self { kind, policy: Mutex::default() }
    }

    pub(crate) fn kind(&self) -> LimitFields {
        self.kind
    }

    /// Tells what a decision came to.
    pub(crate) fn tell<B>(
        &self,
        response: &mut Response<B>,
        verdict: &Verdict,
        quota_of: impl Fn(&str) -> Option<Quota>,
    ) {
        if verdict.reports().is_empty() {
            // Nobody counted.
            return;
        }
        let ToldSoFar { axes: inner, mut fields } = response.extensions_mut().remove().unwrap_or_default();
        let mut axes: Vec<Told> =
            verdict.reports().iter().map(|report| Told::of(report, quota_of(report.axis()))).collect();
        axes.extend(inner);

        let headers = response.headers_mut();
        let mut set = |field: Field, value: HeaderValue| match headers.entry(field.name()) {
            Entry::Occupied(mut ours) if fields[field as usize] => drop(ours.insert(value)),
            Entry::Occupied(_) => {}
            Entry::Vacant(vacant) => {
                vacant.insert(value);
                fields[field as usize] = true;
            }
        };
        if let Some(Draft::Eleven) = self.kind.draft {
            set(Field::Policy, self.policy(&axes));
            set(Field::Limit, list(&axes, |told| [(";r=", told.remaining), (";t=", told.reset)]));
        }
        if let Some((format, tightest)) = self.kind.x_rate_limit.zip(axes.iter().min_by(|a, b| a.by_tightness(b))) {
            set(Field::XLimit, tightest.limit.into());
            set(Field::XRemaining, tightest.remaining.into());
            set(Field::XReset, reset(tightest.reset, format).into());
        }
        response.extensions_mut().insert(ToldSoFar { axes, fields });
    }

    fn policy(&self, told: &[Told]) -> HeaderValue {
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |written: &[Told]| {
            written.len() == told.len() && written.iter().zip(told).all(|(one, other)| one.policy() == other.policy())
        };
        if let Some((_, value)) = policy.as_ref().filter(|(written, _)| is_same(written)) {
            return value.clone();
        }
        let value = list(told, |told| [(";q=", told.limit), (";w=", told.period)]);
        *policy = Some((told.to_vec(), value.clone()));
        value
    }
}

impl Told {
    fn of(report: &Report, quota: Option<Quota>) -> Self {
        let period = quota.map_or(0, |quota| seconds(quota.period()));
        // A client that waits until the reset must not be refused then.
        let reset = seconds(report.reset().max(report.wait()));
        let limit = report.limit().min(MAX_INTEGER);
        let remaining = report.remaining().min(MAX_INTEGER);
        Self { axis: report.axis(), limit, period, remaining, reset }
    }

    fn policy(&self) -> (&'static str, u64, u64) {
        (self.axis, self.limit, self.period)
    }

    /// By the part of the limit that is left, and then by how long it stays so.
    fn by_tightness(&self, other: &Self) -> Ordering {
        let part = |told: &Self, of: &Self| u128::from(told.remaining) * u128::from(of.limit.max(1));
        part(self, other).cmp(&part(other, self)).then(other.reset.cmp(&self.reset))
    }
}

/// A list of strings with parameters (RFC 9651). Names of axes need no escapes.
fn list(told: &[Told], parameters: impl Fn(&Told) -> [(&'static str, u64); 2]) -> HeaderValue {
    // Copied once when it is whole: what has room left is kept in two allocations.
    let mut text: Vec<u8> = Vec::with_capacity(told.len() * 48);
    let mut digits = itoa::Buffer::new();
    for told in told {
        text.extend_from_slice(if text.is_empty() { b"\"" } else { b", \"" });
        text.extend_from_slice(told.axis.as_bytes());
        text.push(b'"');
        for (name, value) in parameters(told) {
            text.extend_from_slice(name.as_bytes());
            text.extend_from_slice(digits.format(value).as_bytes());
        }
    }
    HeaderValue::from_bytes(&text).expect("it is ASCII")
}

/// Whole seconds, rounded up.
fn seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

fn reset(seconds: u64, format: ResetFormat) -> u64 {
    match format {
        ResetFormat::SecondsLeft => seconds,
        ResetFormat::UnixTime => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            now.as_secs().saturating_add(seconds)
        }
    }
}
