//! An admitted request allocates nothing in our layers.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tower::{Layer, Service};
use tower_quota::{GlobalCapacityLayer, HOUR, MissingKey, Quota, QuotaLayer, UserQuotaLayer, key};

use crate::support::{accepting, group};

/// How many allocations a request makes on its way through the layer and back, if it is admitted.
fn allocations(layer: &QuotaLayer, account: &str) -> u64 {
    let mut service = layer.layer(accepting());
    let mut request = Some(crate::support::request(account));
    let mut context = Context::from_waker(Waker::noop());
    let counted = allocation_counter::measure(|| {
        assert!(service.poll_ready(&mut context).is_ready());
        let answer = pin!(service.call(request.take().unwrap())).poll(&mut context);
        assert!(matches!(answer, Poll::Ready(Ok(response)) if response.status() == 202));
    });
    counted.count_total
}

#[test]
fn an_admitted_request_allocates_nothing() {
    let (group, _clock) = group();
    let quota = || Quota::fixed_window(1_000, HOUR);
    let account = group.per_key("account", quota()).build().unwrap();
    let minute = group.per_key("minute", Quota::per_minute(1_000)).build().unwrap();
    let capacity = group.shared("capacity", quota()).build().unwrap();
    let project = group.shared("project", Quota::token_bucket(1_000, 1_000, HOUR)).build().unwrap();
    let paid = Quota::fixed_window(2_000, HOUR).unwrap();
    let by_header = || key::header("x-account").unwrap();

    let one: QuotaLayer = UserQuotaLayer::new(&account, by_header()).into();
    let two = one.clone().and(GlobalCapacityLayer::new(&capacity)).unwrap();
    let four = two.clone().and(UserQuotaLayer::new(&minute, by_header())).unwrap();
    let four = four.and(GlobalCapacityLayer::new(&project)).unwrap();
    let with_plan = UserQuotaLayer::new(&account, by_header()).quota_by(move |_| Some(paid)).cost(|_| 2_u64);
    let anonymous = UserQuotaLayer::new(&account, key::header("x-nobody").unwrap());
    let anonymous = anonymous.missing_key(MissingKey::Anonymous(paid)).skip(|_| false);

    for (layer, what) in [
        (&one, "one axis"),
        (&two, "two axes"),
        (&four, "four axes"),
        (&with_plan, "a plan and a cost"),
        (&anonymous, "no key"),
    ] {
        // The first request of an account makes its counter, whose table may have to grow.
        allocations(layer, "alice");
        assert_eq!(allocations(layer, "alice"), 0, "{what}");
        // A name that is too long to be kept in place shows that they are counted, where it is kept at all.
        let long = "a name of more than forty-six bytes is kept behind a pointer";
        allocations(layer, long);
        assert_eq!(allocations(layer, long) > 0, !["two axes", "no key"].contains(&what), "{what}");
    }
}
