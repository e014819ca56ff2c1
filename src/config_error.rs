//! The one error of set-up.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;

/// A setting that cannot work: which field it is, and what to do about it.
///
/// ```
/// use tower_quota_core::{Group, MemoryStore, Quota};
/// use std::time::Duration;
///
/// let items = Group::new("item", MemoryStore::new())?;
/// let error = items.per_key("account", Quota::fixed_window(30, Duration::ZERO)).build().unwrap_err();
/// assert_eq!(error.field(), "item.account.quota.period");
/// # Ok::<(), tower_quota_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    field: String,
    reason: String,
}

impl ConfigError {
    /// An error of `field`, whose `reason` says what is wrong and what would work.
    ///
    /// The layers and stores of other crates report their own settings with it.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }

    /// The same error, seen from the `owner` of the field.
    pub(crate) fn within(mut self, owner: &str) -> Self {
        self.field = format!("{owner}.{}", self.field);
        self
    }

    /// The field that is wrong, dotted from its group: `item.account.quota.period`.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What is wrong with the field, and what would work.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

impl Error for ConfigError {}

impl From<Infallible> for ConfigError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
