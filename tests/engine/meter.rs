//! Decisions: order, atomicity, errors, limits as arguments.

use tower_quota::{
    ChargeError, Cost, Group, HOUR, Key, KeyRead, MINUTE, MemoryStore, Meter, MissingKey, Quota, Report, SECOND,
};

use crate::support::{by_name, charge, group, now, try_charge, used};

#[test]
fn the_first_axis_that_refuses_gives_the_answer_and_the_longest_wait_counts() {
    let (group, clock) = group();
    let account = group.per_key("account", Quota::fixed_window(2, MINUTE)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(2, HOUR)).build().unwrap();
    let meter = by_name(&account).and(&capacity).unwrap();
    clock.advance(SECOND);
    assert!(charge(&meter, "alice", 2).unwrap().is_admitted());

    let Err(ChargeError::Refused(verdict)) = charge(&meter, "alice", 1) else { panic!("both are full") };
    assert_eq!(verdict.refused_by().unwrap().axis(), "account");
    assert_eq!(verdict.wait(), HOUR);
    assert_eq!(verdict.of(&account).unwrap().wait(), MINUTE);
    assert!(!verdict.is_admitted());
    let Err(ChargeError::Refused(verdict)) = charge(&meter, "bob", 1) else { panic!("the service is full") };
    assert_eq!(verdict.refused_by().unwrap().axis(), "capacity");
    assert!(verdict.of(&account).unwrap().fits());
}

#[test]
fn axes_are_judged_in_the_order_written_whatever_they_are() {
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(1, MINUTE)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(1, HOUR)).build().unwrap();
    let meter = Meter::new(&capacity).and(account.by(|name: &str| Key::from(name))).unwrap();
    let verdict = charge(&meter, "alice", 1).unwrap();
    assert_eq!(verdict.reports().iter().map(Report::axis).collect::<Vec<_>>(), ["capacity", "account"]);
    let Err(ChargeError::Refused(verdict)) = charge(&meter, "alice", 1) else { panic!("both are full") };
    assert_eq!(verdict.refused_by().unwrap().axis(), "capacity");
}

#[test]
fn ten_axes_are_one_decision() {
    let (group, _clock) = group();
    let mut meters = (0..10).map(|index| {
        let axis = group.per_key(&format!("axis-{index}"), Quota::fixed_window(10 - index, HOUR)).build().unwrap();
        axis.by(move |name: &str| Key::from(name))
    });
    let mut meter = Meter::new(meters.next().unwrap());
    for measure in meters {
        meter = meter.and(measure).unwrap();
    }
    charge(&meter, "alice", 1).unwrap();
    let Err(ChargeError::Refused(verdict)) = charge(&meter, "alice", 1) else { panic!("the last axis is full") };
    assert_eq!(verdict.refused_by().unwrap().axis(), "axis-9");
    let reports = verdict.reports().iter().map(|report| (report.axis().to_owned(), report.used(), report.limit()));
    let expected = (0..10).map(|index| (format!("axis-{index}"), 1, 10 - index));
    assert!(reports.eq(expected), "{verdict:?}");
}

#[test]
fn a_cost_of_nothing_looks_and_always_fits() {
    let (group, _clock) = group();
    let axis = group.per_key("axis", Quota::per_hour(10)).build().unwrap();
    let meter = by_name(&axis);
    charge(&meter, "alice", 10).unwrap();
    axis.set_quota("5/h").unwrap();
    let verdict = charge(&meter, "alice", 0).unwrap();
    assert_eq!((verdict.reports()[0].used(), verdict.reports()[0].remaining()), (10, 0));
    axis.set_quota("0/h").unwrap();
    assert!(charge(&meter, "alice", 0).is_ok());
}

#[test]
fn a_closed_axis_refuses_with_the_wait_that_is_configured() {
    let (group, _clock) = group();
    let axis = group.per_key("axis", Quota::per_hour(0)).retry_when_closed(5 * MINUTE).build().unwrap();
    let Err(ChargeError::Refused(verdict)) = charge(&by_name(&axis), "alice", 1) else { panic!("it is closed") };
    assert!(verdict.reports()[0].is_closed());
    assert_eq!(verdict.wait(), 5 * MINUTE);
    let by_default = group.per_key("default", "bucket 0 1/s").build().unwrap();
    assert_eq!(try_charge(&by_name(&by_default), "alice", u64::MAX), Err(MINUTE));
}

#[test]
fn a_cost_above_a_limit_beats_every_wait_and_charges_nothing() {
    let (group, _clock) = group();
    let narrow = group.per_key("narrow", Quota::fixed_window(10, HOUR)).build().unwrap();
    let wide = group.per_key("wide", Quota::fixed_window(100, HOUR)).build().unwrap();
    let closed = group.shared("closed", Quota::fixed_window(0, HOUR)).build().unwrap();
    let meter = by_name(&wide).and(narrow.by(|name: &str| Key::from(name))).unwrap().and(&closed).unwrap();
    let Err(ChargeError::Never(verdict)) = charge(&meter, "alice", 50) else { panic!("50 never fits into 10") };
    assert_eq!(verdict.refused_by().unwrap().axis(), "narrow");
    assert!(verdict.wait().is_zero());
    assert_eq!(used(&by_name(&wide), "alice"), [(0, 100)]);
}

#[test]
fn axes_may_cost_different_units() {
    let (group, _clock) = group();
    let requests = group.per_key("requests", Quota::per_minute(60)).build().unwrap();
    let tokens = group.per_key("tokens", Quota::token_bucket(1_000, 1_000, MINUTE)).build().unwrap();
    let meter = by_name(&requests).and(tokens.by(|name: &str| Key::from(name))).unwrap();
    charge(&meter, "alice", Cost::units(1).on(&tokens, 3).on(&tokens, 850)).unwrap();
    assert_eq!(used(&meter, "alice"), [(1, 59), (850, 150)]);
}

#[test]
fn a_cost_for_an_axis_that_is_not_asked_is_an_error() {
    let (group, _clock) = group();
    let requests = group.per_key("requests", Quota::per_minute(60)).build().unwrap();
    let tokens = group.per_key("tokens", Quota::per_minute(60)).build().unwrap();
    let meter = by_name(&requests);
    let error = charge(&meter, "alice", Cost::units(1).on(&tokens, 850)).unwrap_err();
    assert_eq!(error, ChargeError::ForeignAxis { axis: "tokens" });
    assert_eq!(used(&meter, "alice"), [(0, 60)]);
}

#[test]
fn axes_of_two_groups_and_an_axis_twice_do_not_combine() {
    let ((one, _), (other, _)) = (group(), group());
    let axis = one.per_key("axis", Quota::per_hour(1)).build().unwrap();
    let foreign = other.shared("foreign", Quota::per_hour(1)).build().unwrap();
    let error = by_name(&axis).and(&foreign).unwrap_err();
    assert_eq!(error.field(), "test.foreign");
    let error = by_name(&axis).and(axis.by(|name: &str| Key::from(name))).unwrap_err();
    assert_eq!(error.field(), "test.axis");
}

#[test]
fn what_cannot_work_does_not_build_and_names_its_field() {
    let (group, _clock) = group();
    let field = |error: tower_quota::ConfigError| error.field().to_owned();
    assert_eq!(field(Group::new("a b", MemoryStore::new()).unwrap_err()), "group.name");
    assert_eq!(field(group.per_key("a:b", "1/h").build().unwrap_err()), "test.axis.name");
    assert_eq!(field(group.per_key("a", "1/0s").build().unwrap_err()), "test.a.quota.period");
    assert_eq!(field(group.shared("a", Quota::token_bucket(1, 0, HOUR)).build().unwrap_err()), "test.a.quota.refill");
    assert_eq!(field(group.per_key("a", "nonsense").build().unwrap_err()), "test.a.quota");
    let flapping = tower_quota::Watermark::percent(50).cleared_at(60);
    assert_eq!(field(group.shared("a", "1/h").watermark(flapping).build().unwrap_err()), "test.a.watermark.low");
    let hasty = group.per_key("a", "1/h").retry_when_closed(SECOND / 2);
    assert_eq!(field(hasty.build().unwrap_err()), "test.a.retry_when_closed");
    assert_eq!(field(MemoryStore::new().max_states(0).unwrap_err()), "memory.max_states");
    // A failed build takes no name; a built axis does.
    let axis = group.per_key("a", "1/h").build().unwrap();
    assert_eq!(field(group.shared("a", "1/h").build().unwrap_err()), "test.a.name");
    assert_eq!(field(axis.set_quota("1/0s").unwrap_err()), "test.a.quota.period");
}

#[test]
fn a_plan_chooses_the_limit_and_keeps_the_usage() {
    let (group, _clock) = group();
    let axis = group.per_key("axis", Quota::fixed_window(10, HOUR)).build().unwrap();
    let paid = axis.quota().with_limit(100).unwrap();
    let measure = axis.by(|(name, _): &(&str, bool)| Key::from(*name));
    let meter = Meter::new(measure.quota_by(move |(_, has_paid)| has_paid.then_some(paid)));
    charge(&meter, &("alice", false), 10).unwrap();
    assert!(charge(&meter, &("alice", false), 1).is_err());
    assert_eq!(used(&meter, &("alice", true)), [(10, 90)]);
    charge(&meter, &("alice", true), 90).unwrap();
    assert_eq!(used(&meter, &("alice", false)), [(100, 0)]);
}

#[test]
fn a_subject_without_a_key_is_refused_shares_a_bucket_or_is_not_counted() {
    let (group, _clock) = group();
    let axis = group.per_key("axis", Quota::fixed_window(10, HOUR)).build().unwrap();
    let all = group.shared("all", Quota::fixed_window(100, HOUR)).build().unwrap();
    let meter = |policy| {
        let measure = axis.by(|name: &Option<String>| name.as_ref().map(Key::from));
        Meter::new(measure.missing_key(policy)).and(&all).unwrap()
    };

    let refusing = meter(MissingKey::Refuse);
    assert_eq!(charge(&refusing, &None, 1).unwrap_err(), ChargeError::MissingKey { axis: "axis" });

    let anonymous = meter(MissingKey::Anonymous(Quota::fixed_window(3, HOUR).unwrap()));
    charge(&anonymous, &None, 3).unwrap();
    assert_eq!(try_charge(&anonymous, &None, 1), Err(HOUR));
    assert_eq!(used(&anonymous, &None), [(3, 0), (3, 97)]);
    assert_eq!(used(&anonymous, &Some(String::new())), [(0, 10), (3, 97)]);

    let uncounted = meter(MissingKey::Uncounted);
    let verdict = charge(&uncounted, &None, 20).unwrap();
    assert!(verdict.of(&axis).is_none());
    assert_eq!(verdict.of(&all).unwrap().used(), 23);
}

#[test]
fn nonsense_for_a_key_is_refused_whatever_the_policy_is() {
    let (group, _clock) = group();
    let axis = group.per_key("axis", Quota::per_hour(10)).build().unwrap();
    for policy in [MissingKey::Refuse, MissingKey::Uncounted, MissingKey::Anonymous(axis.quota())] {
        let meter: Meter<()> = Meter::new(axis.by(|(): &()| KeyRead::Malformed).missing_key(policy));
        assert_eq!(charge(&meter, &(), 1).unwrap_err(), ChargeError::MalformedKey { axis: "axis" });
    }
}

#[test]
fn bytes_that_a_subject_holds_are_the_key_that_they_would_make() {
    let (group, _clock) = group();
    let axis = group.per_key("axis", Quota::fixed_window(4, HOUR)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(100, HOUR)).build().unwrap();
    let lent = axis.by_bytes(|name: &str| match name {
        "" => KeyRead::Missing,
        "?" => KeyRead::Malformed,
        name => KeyRead::Found(name.as_bytes()),
    });
    let made: Meter<str> = Meter::new(axis.by(|name: &str| Key::from(name)));
    let meters = [Meter::new(lent.clone()), made, Meter::new(lent.clone()).and(&capacity).unwrap()];
    for name in ["alice", "a name of more than forty-six bytes is kept behind a pointer"] {
        for (used, meter) in (1..).zip(&meters) {
            assert_eq!(charge(meter, name, 1).unwrap().reports()[0].used(), used, "{name}");
        }
    }
    assert_eq!(charge(&meters[2], "", 1).unwrap_err(), ChargeError::MissingKey { axis: "axis" });
    assert_eq!(charge(&meters[2], "?", 1).unwrap_err(), ChargeError::MalformedKey { axis: "axis" });
}

#[test]
fn a_bound_meter_charges_later_and_peeks_without_charging() {
    let (group, _clock) = group();
    let axis = group.per_key("axis", Quota::fixed_window(10, HOUR)).build().unwrap();
    let bound = by_name(&axis).of("alice").unwrap();
    axis.set_quota("fixed 20/h").unwrap();
    let verdict = now(async { bound.charge(15).await }).unwrap();
    assert_eq!(verdict.reports()[0].limit(), 20);
    for _ in 0..3 {
        assert_eq!(now(bound.peek()).unwrap().reports()[0].used(), 15);
    }
    assert!(matches!(now(async { bound.charge(6).await }), Err(ChargeError::Refused(_))));
}

#[test]
fn a_reset_forgets_one_key_or_a_shared_axis() {
    let (group, _clock) = group();
    let axis = group.per_key("axis", Quota::fixed_window(1, HOUR)).build().unwrap();
    let all = group.shared("all", Quota::fixed_window(2, HOUR)).build().unwrap();
    let meter = by_name(&axis).and(&all).unwrap();
    for name in ["alice", "bob"] {
        charge(&meter, name, 1).unwrap();
    }
    now(axis.reset(&Key::from("alice"))).unwrap();
    assert_eq!(used(&meter, "alice"), [(0, 1), (2, 0)]);
    assert_eq!(used(&meter, "bob"), [(1, 0), (2, 0)]);
    now(all.reset()).unwrap();
    assert_eq!(used(&meter, "bob"), [(1, 0), (0, 2)]);
    now(axis.reset(&Key::from("nobody"))).unwrap();
}

#[test]
fn a_charge_that_is_never_awaited_charges_nothing() {
    let (group, _clock) = group();
    let meter = by_name(&group.per_key("axis", Quota::per_hour(1)).build().unwrap());
    drop(meter.charge("alice", 1));
    drop(meter.charge("alice", 1).into_future());
    assert_eq!(used(&meter, "alice"), [(0, 1)]);
    assert!(now(meter.charge("alice", 1).into_future()).is_ok());
    assert_eq!(used(&meter, "alice"), [(1, 0)]);
}

#[test]
fn a_meter_is_bound_to_a_subject_with_a_key_or_to_nobody() {
    let (group, _clock) = group();
    let axis = group.per_key("axis", Quota::fixed_window(1, HOUR)).build().unwrap();
    let meter = Meter::new(axis.by(|name: &Option<String>| name.as_ref().map(Key::from)));
    assert_eq!(meter.of(&None).unwrap_err(), ChargeError::MissingKey { axis: "axis" });
    let nobody = meter.of_nobody();
    for _ in 0..10 {
        assert!(now(nobody.charge(1).into_future()).unwrap().reports().is_empty());
    }
    assert_eq!(used(&meter, &Some("alice".to_owned())), [(0, 1)]);
}

#[test]
fn a_mark_is_reported_as_usage_stands_now() {
    let (group, clock) = group();
    let axis = group.shared("axis", Quota::fixed_window(100, HOUR)).watermark(tower_quota::Watermark::percent(66));
    let axis = axis.build().unwrap();
    let meter: Meter<()> = Meter::new(&axis);
    let is_above = |cost| match charge(&meter, &(), cost) {
        Ok(verdict) => verdict.reports()[0].is_above_watermark(),
        Err(ChargeError::Refused(verdict)) => verdict.reports()[0].is_above_watermark(),
        Err(error) => panic!("{error}"),
    };
    charge(&meter, &(), 60).unwrap();
    assert!(!is_above(0));
    axis.set_quota("fixed 50/h").unwrap();
    assert!(is_above(0) && is_above(1), "60 of 50 are used");
    axis.set_quota("fixed 100/h").unwrap();
    charge(&meter, &(), 10).unwrap();
    assert!(is_above(0));
    clock.advance(HOUR);
    assert!(!is_above(0), "nothing is used");
}
