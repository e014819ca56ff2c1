//! An admitted request allocates nothing in our layers, and one that waits holds little.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http::Request;
use tower::{Layer, Service, ServiceExt};
use tower_quota::{
    BackoffLayer, Cooldown, CooldownLayer, GlobalCapacityLayer, HOUR, Key, MissingKey, Quota, QuotaLayer,
    UserQuotaLayer, key,
};

use crate::support::{Body, accepting, group, request, status};

/// How many allocations a request makes on its way through the layer and back, if it is admitted.
fn allocations(layer: &QuotaLayer, account: &str) -> u64 {
    let mut service = layer.layer(accepting());
    let mut request = Some(request(account));
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

/// How many bytes each of many requests holds that waits behind this service.
fn bytes_of_each_that_waits<S>(service: &S) -> u64
where
    S: Service<Request<Body>> + Clone,
{
    const MANY: u64 = 1_000;
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> = (0..MANY).map(|_| (Some(request("alice")), None)).collect();
    let memory = allocation_counter::measure(|| {
        for (request, future) in &mut waiting {
            let call = future.insert(Box::pin(service.clone().oneshot(request.take().unwrap())));
            assert!(call.as_mut().poll(&mut context).is_pending());
        }
    });
    memory.bytes_current.unsigned_abs() / MANY
}

#[tokio::test]
async fn a_request_that_waits_is_small() {
    let (group, _clock) = group();
    let by_header = || key::header("x-account").unwrap();
    let account = group.per_key("account", Quota::fixed_window(1, HOUR)).build().unwrap();
    let quota = UserQuotaLayer::new(&account, by_header()).wait_up_to(2_000 * HOUR).layer(accepting());
    assert_eq!(status(&quota, request("alice")).await, 202);
    let school = group.cooldown("school", Cooldown::after_attempts(1).rest(HOUR)).build().unwrap();
    let cooldown = CooldownLayer::new(&school, by_header()).wait_up_to(2_000 * HOUR).layer(accepting());
    assert_eq!(status(&cooldown, request("alice")).await, 202);
    let upstream = group.backoff("upstream").build().unwrap();
    upstream.pause(&Key::from("alice"), HOUR).await.unwrap();
    let backoff = BackoffLayer::new(&upstream, by_header()).wait_up_to(2_000 * HOUR).layer(accepting());

    let bytes =
        [bytes_of_each_that_waits(&quota), bytes_of_each_that_waits(&cooldown), bytes_of_each_that_waits(&backoff)];
    assert!(bytes.iter().all(|bytes| *bytes < 2_048), "{bytes:?}");
}
