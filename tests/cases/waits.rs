//! What a refused caller is told to wait.

use std::time::Duration;

use proptest::prelude::*;
use tower::Layer;
use tower_quota::{Key, MINUTE, Meter, Quota, Rejection, SECOND, UserQuotaLayer, key};

use crate::support::{MILLI, accepting, answer, by_name, group, header, request, status, text, try_charge};

/// After waiting as long as the header says, and nothing else happening, the same request is admitted.
#[tokio::test]
async fn t23_an_obedient_client_is_not_denied_again() {
    for quota in ["fixed 3/7s", "aligned 3/7s", "3/7s", "bucket 3 3/7s"] {
        let (group, clock) = group();
        let axis = group.per_key("axis", quota).build().unwrap();
        let service = UserQuotaLayer::new(&axis, key::header("x-account").unwrap()).layer(accepting());
        let mut refusals = 0;
        for round in 0..1_000_u32 {
            let refused = answer(&service, request("a")).await;
            if let Some(rejection) = Rejection::of(&refused) {
                let seconds: u32 = header(&refused, "retry-after").unwrap().parse().unwrap();
                assert!(seconds >= 1);
                assert_eq!(rejection.retry_after(), Some(seconds * SECOND));
                clock.advance(seconds * SECOND);
                assert_eq!(answer(&service, request("a")).await.status(), 202, "{quota}, round {round}");
                refusals += 1;
            }
            clock.advance(round % 13 * 77 * MILLI);
        }
        assert!(refusals > 100, "{quota}: {refusals}");
    }
}

#[tokio::test]
async fn t23_the_wait_is_told_in_whole_seconds_that_are_enough() {
    for (wait, told) in [
        (Duration::from_millis(200), "1"),
        (SECOND, "1"),
        (Duration::from_millis(1_001), "2"),
        (Duration::from_millis(5_001), "6"),
        (Duration::from_micros(1), "1"),
    ] {
        let (group, clock) = group();
        let axis = group.per_key("account", Quota::fixed_window(1, MINUTE)).build().unwrap();
        let service = UserQuotaLayer::new(&axis, key::header("x-account").unwrap()).layer(accepting());
        assert_eq!(status(&service, request("alice")).await, 202);
        clock.advance(MINUTE - wait);
        let refused = answer(&service, request("alice")).await;
        assert_eq!(header(&refused, "retry-after"), Some(told), "{wait:?}");
        let body: serde_json::Value = serde_json::from_str(&text(refused).await).unwrap();
        assert_eq!(body["retry-after"].to_string(), told);
    }
}

proptest! {
    /// Of several axes the longest wait counts, and it is enough for all.
    #[test]
    fn t23_the_longest_wait_of_all_axes_is_enough_and_no_less_is(
        charges in proptest::collection::vec((1..5_u64, 0..2_000_u32), 1..40),
    ) {
        let (group, clock) = group();
        let one = group.per_key("one", Quota::fixed_window(9, 5 * SECOND)).build().unwrap();
        let two = group.shared("two", Quota::token_bucket(7, 2, SECOND)).build().unwrap();
        let three = group.per_key("three", Quota::per_second(8)).build().unwrap();
        let by = |name: &str| Key::from(name);
        let meter: Meter<str> = by_name(&one).and(&two).unwrap().and(three.by(by)).unwrap();
        for (cost, millis) in charges {
            if let Err(wait) = try_charge(&meter, "a", cost) {
                let least = Duration::from_micros(1);
                clock.advance(wait - least);
                prop_assert_eq!(try_charge(&meter, "a", cost), Err(least));
                clock.advance(least);
                prop_assert_eq!(try_charge(&meter, "a", cost), Ok(()));
            }
            clock.advance(millis * MILLI);
        }
    }
}
