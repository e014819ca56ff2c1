//! The fields, and what stands in them.

use http::{HeaderName, HeaderValue};

/// A field that tells of limits.
#[derive(Clone, Copy)]
pub(super) enum Field {
    Policy,
    Limit,
    XLimit,
    XRemaining,
    XReset,
}

impl Field {
    pub(super) fn name(self) -> HeaderName {
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
pub(super) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// A list of strings with parameters (RFC 9651): of names of axes, which need no escapes, and whole numbers.
pub(super) struct List {
    text: Vec<u8>,
}

impl List {
    /// An empty list, with room for so many entries.
    pub(super) fn with_room_for(entries: usize) -> Self {
        Self { text: Vec::with_capacity(entries * 48) }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, axis: &str, parameters: [(&str, u64); 2]) {
        let mut digits = itoa::Buffer::new();
        self.text.extend_from_slice(if self.text.is_empty() { b"\"" } else { b", \"" });
        self.text.extend_from_slice(axis.as_bytes());
        self.text.push(b'"');
        for (name, value) in parameters {
            self.text.extend_from_slice(name.as_bytes());
            self.text.extend_from_slice(digits.format(value.min(MAX_INTEGER)).as_bytes());
        }
    }

    pub(super) fn into_value(self) -> HeaderValue {
        HeaderValue::try_from(self.text).expect("it is ASCII")
    }
}

/// Two lists, one behind the other.
pub(super) fn joined(first: &HeaderValue, second: &HeaderValue) -> HeaderValue {
    let text = [first.as_bytes(), second.as_bytes()].join(&b", "[..]);
    HeaderValue::from_bytes(&text).expect("both are values of a field")
}
