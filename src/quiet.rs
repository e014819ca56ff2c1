//! Events that are told in the middle of something that must go on.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Tells of something, and goes on if whoever listens panics, such as a subscriber whose output is gone.
pub(crate) fn quietly(tell: impl FnOnce()) {
    // There is nobody left to tell.
    let _ = catch_unwind(AssertUnwindSafe(tell));
}
