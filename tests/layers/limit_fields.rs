//! What responses tell of the limits.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use http::{HeaderName, Method, Response, StatusCode};
use tower::{Layer, service_fn};
use tower_quota::{
    Cost, CountedBy, GlobalCapacityLayer, Group, HOUR, LimitFields, MINUTE, MissingKey, OnStoreFailure, Quota,
    QuotaLayer, Rejection, RequestMeter, ResetFormat, UserQuotaLayer, key,
};

use crate::support::{Body, SlowStore, accepting, answer, group, header, request, text};

const POLICY: &str = "ratelimit-policy";
const LIMIT: &str = "ratelimit";

fn user(axis: &tower_quota::PerKeyAxis) -> QuotaLayer {
    UserQuotaLayer::new(axis, key::header("x-account").unwrap()).into()
}

fn x_fields<B>(response: &Response<B>) -> [&str; 3] {
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"].map(|name| header(response, name).unwrap())
}

#[tokio::test]
async fn every_axis_is_told_on_success_and_on_refusal() {
    let (group, clock) = group();
    let account = group.per_key("account", Quota::fixed_window(2, HOUR)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(10, MINUTE)).build().unwrap();
    let layer = user(&account).and(GlobalCapacityLayer::new(&capacity)).unwrap().limit_fields(LimitFields::draft_11());
    let service = layer.layer(accepting());

    let admitted = answer(&service, request("alice")).await;
    assert_eq!(header(&admitted, POLICY), Some(r#""account";q=2;w=3600, "capacity";q=10;w=60"#));
    assert_eq!(header(&admitted, LIMIT), Some(r#""account";r=1;t=3600, "capacity";r=9;t=60"#));

    // Part of a second is a whole one: who waits for it must not come too early.
    clock.advance(Duration::from_millis(1_500));
    let admitted = answer(&service, request("alice")).await;
    assert_eq!(header(&admitted, LIMIT), Some(r#""account";r=0;t=3599, "capacity";r=8;t=59"#));

    let refused = answer(&service, request("alice")).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (429, Some("3599")));
    assert_eq!(header(&refused, POLICY), Some(r#""account";q=2;w=3600, "capacity";q=10;w=60"#));
    assert_eq!(header(&refused, LIMIT), Some(r#""account";r=0;t=3599, "capacity";r=8;t=59"#));
    assert!(header(&refused, "x-ratelimit-limit").is_none());
}

/// Everything that a field can hold, through a parser of structured fields.
#[tokio::test]
async fn the_fields_are_lists_of_strings_with_whole_numbers() {
    use sfv::{ListEntry, Parser};
    let read = |field: &str| -> Vec<(String, Vec<(String, i64)>)> {
        let list = Parser::new(field).parse::<sfv::List>().unwrap();
        assert_eq!(sfv::FieldType::serialize(&list).unwrap(), field, "written as it is written by others");
        let entries = list.iter().map(|entry| {
            let ListEntry::Item(item) = entry else { panic!("{entry:?}") };
            let parameter =
                |(name, value): (&sfv::Key, &sfv::BareItem)| (name.to_string(), value.as_integer().unwrap().into());
            (item.bare_item.as_string().unwrap().to_string(), item.params.iter().map(parameter).collect())
        });
        entries.collect()
    };
    let quotas = [
        Quota::fixed_window(1 << 52, HOUR),
        Quota::aligned_window(3, 90 * MINUTE),
        Quota::sliding_window(5, Duration::from_millis(1_500)),
        Quota::token_bucket(10, 1, MINUTE),
    ];
    for quota in quotas.map(Result::unwrap) {
        let (group, _clock) = group();
        let account = group.per_key("an-account_7", quota).build().unwrap();
        let closed = group.shared("closed", quota.with_limit(0)).build().unwrap();
        let alone = user(&account).limit_fields(LimitFields::draft_11());
        let both = user(&account).and(GlobalCapacityLayer::new(&closed)).unwrap();
        for layer in [alone, both.limit_fields(LimitFields::draft_11())] {
            let service = layer.layer(accepting());
            for _ in 0..4 {
                let response = answer(&service, request("alice")).await;
                for (field, names) in [(POLICY, ["q", "w"]), (LIMIT, ["r", "t"])] {
                    let read = read(header(&response, field).unwrap());
                    assert!(read.iter().all(|(_, parameters)| {
                        let found = parameters.iter().map(|(name, value)| (name.as_str(), *value >= 0));
                        found.eq(names.map(|name| (name, true)))
                    }));
                    let names: Vec<&str> = read.iter().map(|(axis, _)| axis.as_str()).collect();
                    assert!(names == ["an-account_7"] || names == ["an-account_7", "closed"], "{names:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn nothing_is_told_unless_it_is_wanted() {
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(1, HOUR)).build().unwrap();
    let service = user(&account).layer(accepting());
    for expected in [202, 429] {
        let response = answer(&service, request("alice")).await;
        assert_eq!(response.status(), expected);
        assert!(response.headers().keys().all(|name| !name.as_str().contains("ratelimit")));
    }
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the time that clients are told is that of the wall clock")]
async fn the_old_fields_tell_of_the_tightest_axis() {
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(100, HOUR)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(5, MINUTE)).build().unwrap();
    let layer = user(&account).and(GlobalCapacityLayer::new(&capacity)).unwrap();

    let seconds = layer.clone().limit_fields(LimitFields::x_rate_limit(ResetFormat::SecondsLeft)).layer(accepting());
    let first = answer(&seconds, request("alice")).await;
    assert_eq!(x_fields(&first), ["5", "4", "60"]);
    assert!(header(&first, LIMIT).is_none());

    let both = LimitFields::draft_11().and_x_rate_limit(ResetFormat::UnixTime);
    let unix = layer.limit_fields(both).layer(accepting());
    let before = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let second = answer(&unix, request("alice")).await;
    let after = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let [limit, remaining, reset] = x_fields(&second);
    assert_eq!((limit, remaining), ("5", "3"));
    // Rounded up, so that whoever comes then does not come too early.
    assert!((before + 61..=after + 61).contains(&reset.parse().unwrap()), "{reset}");
    assert_eq!(header(&second, LIMIT), Some(r#""account";r=98;t=3600, "capacity";r=3;t=60"#));
}

/// A cost of several units may not fit where a larger part is left than elsewhere.
#[tokio::test]
async fn the_old_fields_tell_of_the_axis_that_refuses() {
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(30, HOUR)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(3_000, MINUTE)).build().unwrap();
    let cost = |parts: &http::request::Parts| -> u64 { parts.headers["x-cost"].to_str().unwrap().parse().unwrap() };
    let layer = user(&account).and(GlobalCapacityLayer::new(&capacity)).unwrap().cost(cost);
    let service = layer.limit_fields(LimitFields::x_rate_limit(ResetFormat::SecondsLeft)).layer(accepting());
    let costing = |account: &str, cost: &str| {
        let mut request = request(account);
        request.headers_mut().insert("x-cost", cost.parse().unwrap());
        request
    };
    for number in 0..94 {
        assert_eq!(answer(&service, costing(&format!("account-{number}"), "30")).await.status(), 202);
    }
    assert_eq!(x_fields(&answer(&service, costing("alice", "28")).await), ["3000", "152", "60"], "the tightest: 5 %");
    let refused = answer(&service, costing("alice", "3")).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (429, Some("3600")));
    assert_eq!(x_fields(&refused), ["30", "2", "3600"], "the one that refuses, though 7 % of it are left");
}

/// What a bucket lets through in the long run is not its capacity in the time of its refill.
#[tokio::test]
async fn the_policy_of_a_bucket_tells_how_long_it_takes_to_fill() {
    let (group, _clock) = group();
    for (axis, capacity, refill, period, policy) in [
        ("burst", 100, 10, tower_quota::SECOND, r#""burst";q=100;w=10"#),
        ("steady", 30, 30, HOUR, r#""steady";q=30;w=3600"#),
        ("small", 1, 60, MINUTE, r#""small";q=1;w=1"#),
        ("odd", 10, 3, tower_quota::SECOND, r#""odd";q=10;w=4"#),
    ] {
        let bucket = group.per_key(axis, Quota::token_bucket(capacity, refill, period)).build().unwrap();
        let service = user(&bucket).limit_fields(LimitFields::draft_11()).layer(accepting());
        assert_eq!(header(&answer(&service, request("alice")).await, POLICY), Some(policy));
    }
}

/// A bucket is fresh again later than a refused call of one unit fits, and earlier than one of its whole capacity.
#[tokio::test]
async fn whoever_waits_for_the_reset_is_admitted() {
    let (group, clock) = group();
    let account = group.per_key("account", Quota::token_bucket(10, 1, MINUTE)).build().unwrap();
    let layer = user(&account).cost(|_| 7).limit_fields(LimitFields::draft_11());
    let service = layer.layer(accepting());
    assert_eq!(answer(&service, request("alice")).await.status(), 202);
    for _ in 0..20 {
        let refused = answer(&service, request("alice")).await;
        assert_eq!(refused.status(), 429);
        let retry_after: u64 = header(&refused, "retry-after").unwrap().parse().unwrap();
        let told = header(&refused, LIMIT).unwrap().rsplit_once("t=").unwrap().1.parse().unwrap();
        assert!(retry_after <= told, "{retry_after} > {told}");
        clock.advance(Duration::from_secs(told));
        assert_eq!(answer(&service, request("alice")).await.status(), 202);
    }
}

#[tokio::test]
async fn a_changed_limit_is_told_at_once() {
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(30, HOUR)).build().unwrap();
    let service = user(&account).limit_fields(LimitFields::draft_11()).layer(accepting());
    let told = async || header(&answer(&service, request("alice")).await, POLICY).map(str::to_owned);
    assert_eq!(told().await.as_deref(), Some(r#""account";q=30;w=3600"#));
    account.set_quota(Quota::fixed_window(60, HOUR)).unwrap();
    assert_eq!(told().await.as_deref(), Some(r#""account";q=60;w=3600"#));
}

#[tokio::test]
async fn a_limit_beyond_what_a_field_can_hold_is_told_as_the_most_it_can() {
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(1 << 52, HOUR)).build().unwrap();
    let service = user(&account).limit_fields(LimitFields::draft_11()).layer(accepting());
    let response = answer(&service, request("alice")).await;
    assert_eq!(header(&response, POLICY), Some(r#""account";q=999999999999999;w=3600"#));
    assert_eq!(header(&response, LIMIT), Some(r#""account";r=999999999999999;t=3600"#));
}

#[tokio::test]
async fn layers_around_each_other_tell_in_one_line() {
    let (group, _clock) = group();
    let outer = group.per_key("address", Quota::fixed_window(3, MINUTE)).build().unwrap();
    let inner = group.per_key("account", Quota::fixed_window(2, HOUR)).build().unwrap();
    let fields = LimitFields::draft_11().and_x_rate_limit(ResetFormat::SecondsLeft);
    let outer = user(&outer).limit_fields(fields);
    let service = outer.layer(user(&inner).limit_fields(fields).layer(accepting()));

    let expected = [
        (202, r#""address";r=2;t=60, "account";r=1;t=3600"#, ["2", "1", "3600"]),
        (202, r#""address";r=1;t=60, "account";r=0;t=3600"#, ["2", "0", "3600"]),
        (429, r#""address";r=0;t=60, "account";r=0;t=3600"#, ["2", "0", "3600"]),
        // The outer one refuses: nobody asked the inner one.
        (429, r#""address";r=0;t=60"#, ["3", "0", "60"]),
    ];
    for (status, limit, old) in expected {
        let response = answer(&service, request("alice")).await;
        assert_eq!(response.status(), status);
        assert_eq!((header(&response, LIMIT), x_fields(&response)), (Some(limit), old));
        for name in fields.names() {
            assert_eq!(response.headers().get_all(&name).iter().count(), 1, "{name}");
        }
    }
}

/// Each tells in the fields that it was told to, and of the tightest axis whoever has it.
#[tokio::test]
async fn layers_that_tell_in_other_fields_do_not_tell_for_each_other() {
    let (group, _clock) = group();
    let outer = group.per_key("address", Quota::fixed_window(30, MINUTE)).build().unwrap();
    let inner = group.per_key("account", Quota::fixed_window(2, HOUR)).build().unwrap();
    let (draft, old) = (LimitFields::draft_11(), LimitFields::x_rate_limit(ResetFormat::SecondsLeft));
    for (outside, inside, limit) in [(old, draft, r#""account";r=1;t=3600"#), (draft, old, r#""address";r=29;t=60"#)] {
        let service = user(&outer).limit_fields(outside).layer(user(&inner).limit_fields(inside).layer(accepting()));
        let response = answer(&service, request(limit)).await;
        assert_eq!(header(&response, LIMIT), Some(limit));
        assert_eq!(x_fields(&response), ["2", "1", "3600"]);
    }
}

#[tokio::test]
async fn a_plan_is_told_by_its_own_limit_and_period() {
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(30, HOUR)).build().unwrap();
    let (paid, anonymous) = (Quota::fixed_window(900, 24 * HOUR).unwrap(), Quota::fixed_window(3, MINUTE).unwrap());
    let layer = UserQuotaLayer::new(&account, key::header("x-account").unwrap())
        .quota_by(move |parts| (parts.headers["x-account"] == "paid").then_some(paid))
        .missing_key(MissingKey::Anonymous(anonymous));
    let service = QuotaLayer::from(layer).limit_fields(LimitFields::draft_11()).layer(accepting());
    // The first one's policy is the one that is remembered.
    for (who, policy, limit) in [
        ("free", r#""account";q=30;w=3600"#, r#""account";r=29;t=3600"#),
        ("paid", r#""account";q=900;w=86400"#, r#""account";r=899;t=86400"#),
        ("", r#""account";q=3;w=60"#, r#""account";r=2;t=60"#),
        ("free", r#""account";q=30;w=3600"#, r#""account";r=28;t=3600"#),
    ] {
        let response = answer(&service, request(who)).await;
        assert_eq!((header(&response, POLICY), header(&response, LIMIT)), (Some(policy), Some(limit)));
    }
}

#[tokio::test]
async fn what_an_upstream_tells_by_itself_is_kept() {
    let upstream = service_fn(|_: http::Request<Body>| async {
        let response = Response::builder().header(LIMIT, r#""upstream";r=7;t=1"#).header("x-ratelimit-limit", "9");
        Ok::<_, Infallible>(response.body(Body::default()).unwrap())
    });
    let (group, _clock) = group();
    let outer = group.per_key("address", Quota::fixed_window(3, MINUTE)).build().unwrap();
    let inner = group.per_key("account", Quota::fixed_window(2, HOUR)).build().unwrap();
    let both = LimitFields::draft_11().and_x_rate_limit(ResetFormat::SecondsLeft);
    let service =
        user(&outer).limit_fields(LimitFields::draft_11()).layer(user(&inner).limit_fields(both).layer(upstream));
    let response = answer(&service, request("alice")).await;
    let values = |name| response.headers().get_all(name).iter().collect::<Vec<_>>();
    assert_eq!(values(LIMIT), [r#""upstream";r=7;t=1"#]);
    assert_eq!(values("x-ratelimit-limit"), ["9"]);
    assert_eq!(values("x-ratelimit-remaining"), ["1"]);
    assert_eq!(values(POLICY), [r#""address";q=3;w=60, "account";q=2;w=3600"#]);
}

#[tokio::test]
async fn what_a_handler_charges_is_told() {
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(10, HOUR)).build().unwrap();
    let layer = user(&account).charged_by_handler().limit_fields(LimitFields::draft_11());
    let service = layer.layer(service_fn(|request: http::Request<Body>| async move {
        let cost: u64 = request.headers().get("x-cost").map_or(0, |cost| cost.to_str().unwrap().parse().unwrap());
        let meter = request.extensions().get::<RequestMeter>().unwrap();
        let response = match cost {
            0 => Response::new(String::new()),
            cost => match meter.charge(Cost::units(cost)).await {
                Ok(_) => Response::new(String::new()),
                Err(rejection) => rejection.to_response().map(|_| String::new()),
            },
        };
        Ok::<_, Infallible>(response)
    }));
    let costing = |cost: &str| {
        let mut request = request("alice");
        request.headers_mut().insert("x-cost", cost.parse().unwrap());
        request
    };
    let told = async |request| {
        let response = answer(&service, request).await;
        (response.status().as_u16(), header(&response, LIMIT).map(str::to_owned))
    };
    assert_eq!(told(costing("6")).await, (200, Some(r#""account";r=4;t=3600"#.to_owned())));
    assert_eq!(told(costing("6")).await, (429, Some(r#""account";r=4;t=3600"#.to_owned())));
    assert_eq!(told(request("alice")).await, (200, None), "nothing charged, nothing told");
}

#[tokio::test]
async fn a_head_request_is_told_the_same_without_a_body() {
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(1, HOUR)).build().unwrap();
    let service = user(&account).limit_fields(LimitFields::draft_11()).layer(accepting());
    let head = || {
        let mut request = request("alice");
        *request.method_mut() = Method::HEAD;
        request
    };
    assert_eq!(answer(&service, head()).await.status(), StatusCode::ACCEPTED);
    let refused = answer(&service, head()).await;
    assert_eq!(header(&refused, LIMIT), Some(r#""account";r=0;t=3600"#));
    assert_ne!(header(&refused, "content-length"), Some("0"));
    assert_eq!(text(refused).await, "");
}

/// What is added to an answer of the application's own, and what HEAD takes from it.
#[tokio::test]
async fn an_answer_of_the_application_s_own_is_told_the_limits_too() {
    let local = OnStoreFailure::Local { percent: 100 };
    let by_share = Group::builder("test").on_store_failure(local).build(SlowStore::failing()).unwrap();
    for (group, counted_by) in [(group().0, None), (by_share, Some(CountedBy::LocalShare))] {
        let account = group.per_key("account", Quota::fixed_window(1, HOUR)).build().unwrap();
        let layer = user(&account).limit_fields(LimitFields::draft_11());
        let service = layer.reject_with(|_, _| Response::new(String::from("later"))).layer(accepting());
        assert_eq!(answer(&service, request("alice")).await.status(), StatusCode::ACCEPTED);
        for (method, length, body) in [(Method::POST, None, "later"), (Method::HEAD, Some("5"), "")] {
            let mut refused = request("alice");
            *refused.method_mut() = method;
            let refused = answer(&service, refused).await;
            assert_eq!(refused.status(), StatusCode::OK);
            assert_eq!(header(&refused, POLICY), Some(r#""account";q=1;w=3600"#));
            assert!(header(&refused, LIMIT).unwrap().starts_with(r#""account";r=0;t="#));
            assert_eq!((header(&refused, "retry-after"), header(&refused, "content-length")), (None, length));
            assert_eq!(Rejection::of(&refused).unwrap().axis(), Some("account"));
            assert_eq!(refused.extensions().get().copied(), counted_by);
            assert_eq!(text(refused).await, body);
        }
    }
}

#[test]
fn the_names_are_listed_for_browsers() {
    let names = |fields: LimitFields| fields.names().iter().map(HeaderName::to_string).collect::<Vec<_>>();
    let old = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    assert_eq!(names(LimitFields::draft_11()), [POLICY, LIMIT]);
    assert_eq!(names(LimitFields::x_rate_limit(ResetFormat::UnixTime)), old);
    assert_eq!(
        names(LimitFields::draft_11().and_x_rate_limit(ResetFormat::UnixTime)),
        [&[POLICY, LIMIT][..], &old].concat()
    );
}

#[tokio::test]
async fn of_what_nobody_counted_nothing_is_told() {
    let untold =
        |response: &Response<_>| [POLICY, LIMIT, "x-ratelimit-limit"].map(|name| header(response, name).is_none());
    let fields = LimitFields::draft_11().and_x_rate_limit(ResetFormat::SecondsLeft);

    // The store is down, and the policy is open.
    let down = Group::new("test", SlowStore::failing()).unwrap();
    let account = down.per_key("account", Quota::fixed_window(2, HOUR)).build().unwrap();
    let response = answer(&user(&account).limit_fields(fields).layer(accepting()), request("alice")).await;
    assert_eq!((response.status().as_u16(), untold(&response)), (202, [true; 3]), "{:?}", response.headers());

    // The request is skipped, though its handler charges.
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(2, HOUR)).build().unwrap();
    let layer = user(&account).charged_by_handler().skip(|_| true).limit_fields(fields);
    let service = layer.layer(service_fn(|request: http::Request<Body>| async move {
        request.extensions().get::<RequestMeter>().unwrap().charge(1).await.unwrap();
        Ok::<_, Infallible>(Response::new(Body::default()))
    }));
    let response = answer(&service, request("alice")).await;
    assert_eq!((response.status().as_u16(), untold(&response)), (200, [true; 3]), "{:?}", response.headers());
}
