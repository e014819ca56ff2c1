//! Which fields are wanted.

use http::HeaderName;

use super::field::Field;

/// Which fields tell of the limits, on success and on refusal; none by default.
///
/// A response has one line of each field, however many layers are around its handler. `RateLimit-Policy` and `RateLimit`
/// list the axes of all layers that tell in them, from the outermost to the innermost. A field that has room for one axis
/// tells of the tightest of all that the outermost layer with that field and those further in tell of: one that refuses,
/// the longest first, or else the one with the smallest part of its limit left. Axes that share a name cannot be told apart
/// by the client. Fields that the handler, or an upstream, has set itself are kept, and ours of that name left out.
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
    pub(super) draft: Option<Draft>,
    pub(super) x_rate_limit: Option<ResetFormat>,
}

/// The versions of the draft standard that can be spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Draft {
    /// draft-ietf-httpapi-ratelimit-headers-11.
    Eleven,
}

/// What `X-RateLimit-Reset` tells, on which services differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetFormat {
    /// The seconds until then.
    SecondsLeft,
    /// That time, in seconds since the Unix epoch, by this machine's clock, rounded up.
    UnixTime,
}

impl LimitFields {
    /// `RateLimit-Policy` and `RateLimit`, as draft-ietf-httpapi-ratelimit-headers-11 has them: `q` the limit, `w` the
    /// seconds in which it comes back whole (the window, or how long an empty bucket takes to fill), `r` what is left, `t`
    /// the seconds until the counter is fresh again.
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
