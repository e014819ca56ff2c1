//! A quota as text: what is read is valid, and is written as what reads as itself.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tower_quota::Quota;

fuzz_target!(|text: &str| {
    match text.parse::<Quota>() {
        Ok(quota) => assert_eq!(quota.to_string().parse(), Ok(quota)),
        Err(error) => assert!(error.field().starts_with("quota") && !error.reason().is_empty(), "{error}"),
    }
});
