//! Names of groups and axes: checked once, kept for the life of the process.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::config_error::ConfigError;
use crate::digest::Digest;

const LONGEST: usize = 64;

/// What names an axis. Equal labels are one, so they are told apart by their address.
///
/// Labels are never freed, so that a report can carry one without counting references; there are as many as the
/// configurations of a process name.
#[doc(hidden)]
#[derive(Debug)]
pub struct Label {
    pub(crate) group: &'static str,
    pub(crate) axis: &'static str,
    pub(crate) per_key: bool,
    /// Stands for group and axis in memory.
    pub(crate) digest: Digest,
}

/// Group, axis, and whether it counts each key apart.
type Named = (String, String, bool);

impl Label {
    pub(crate) fn of(group: &str, axis: &str, per_key: bool) -> &'static Self {
        static LABELS: LazyLock<Mutex<HashMap<Named, &'static Label>>> = LazyLock::new(Mutex::default);
        let new = || {
            let kept = |name: &str| -> &'static str { Box::leak(name.into()) };
            let label = Self { group: kept(group), axis: kept(axis), per_key, digest: Digest::of_axis(group, axis) };
            &*Box::leak(Box::new(label))
        };
        LABELS.lock().entry((group.into(), axis.into(), per_key)).or_insert_with(new)
    }
}

impl Label {
    /// The axis as a field of the configuration.
    pub(crate) fn field(&self) -> String {
        format!("{}.{}", self.group, self.axis)
    }
}

impl PartialEq for Label {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Label {}

/// Either kind of axis: [`PerKeyAxis`](crate::PerKeyAxis) or [`SharedAxis`](crate::SharedAxis).
pub trait Axis: sealed::Sealed {}

pub(crate) mod sealed {
    use super::Label;

    pub trait Sealed {
        #[doc(hidden)]
        fn label(&self) -> &'static Label;
    }
}

/// Refuses, as an error of the field `name` of its owner, what may not stand in a store's keys, in a header field, in a
/// metric and in JSON without quoting.
pub(crate) fn check(owner: &str, name: &str) -> Result<(), ConfigError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > LONGEST || !name.bytes().all(is_plain) {
        let reason = format!("{name:?} is not a valid name: use 1 to {LONGEST} ASCII letters, digits, '-', '_' or '.'");
        return Err(ConfigError::new(format!("{owner}.name"), reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_holds_nothing_that_a_key_or_a_field_would_have_to_quote() {
        for good in ["a", "account", "per-user.v2_b", &"n".repeat(LONGEST)] {
            assert_eq!(check("group", good), Ok(()));
        }
        for bad in ["", " ", "a b", "a:b", "{a}", "ä", "a\"", "a\n", &"n".repeat(LONGEST + 1)] {
            assert_eq!(check("group", bad).unwrap_err().field(), "group.name", "{bad:?}");
        }
    }

    #[test]
    fn equal_labels_are_one() {
        let label = || Label::of("group", "axis", true);
        assert_eq!(label(), label());
        assert_ne!(label(), Label::of("group", "axis", false));
        assert_ne!(label(), Label::of("group", "other", true));
    }
}
