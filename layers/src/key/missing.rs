//! Tells of requests without a key.

use std::fmt;
use std::sync::{Arc, Once};

use http::request::Parts;
use tower_quota_core::KeyRead;

use super::RequestKey;

/// Tells of the first request without a key, and what would cure it.
pub(super) struct Missing {
    /// What was to be counted under the key, if it has a name.
    axis: Option<&'static str>,
    told: Once,
}

impl Missing {
    pub(super) fn on(axis: Option<&'static str>) -> Self {
        Self { axis, told: Once::new() }
    }

    /// What was read, told of if it is nothing.
    pub(super) fn note<K>(&self, read: KeyRead<K>, source: &str) -> KeyRead<K> {
        if let KeyRead::Missing = read {
            self.told.call_once(|| {
                tracing::warn!(
                    target: "tower_quota::config",
                    axis = self.axis,
                    source,
                    "a request has no key: if the source is set by another layer, mount that one outside of this one \
                     (told once)"
                );
            });
        }
        read
    }
}

/// The key of a layer that turns requests without one away.
#[derive(Clone)]
pub(crate) struct RequiredKey {
    key: RequestKey,
    missing: Arc<Missing>,
}

impl RequiredKey {
    pub(crate) fn new(key: RequestKey, axis: Option<&'static str>) -> Self {
        Self { key, missing: Arc::new(Missing::on(axis)) }
    }

    pub(crate) fn read(&self, parts: &Parts) -> KeyRead {
        self.missing.note(self.key.read(parts), self.key.source())
    }
}

impl fmt::Debug for RequiredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}
