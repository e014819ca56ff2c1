//! What every store promises that settles charges.

use std::time::Duration;

use super::clock::FakeClock;
use super::conformance::{Room, admitted, by_name, every_quota, refused, room, used};
use crate::cost::Cost;
use crate::meter::Meter;
use crate::quota::{HOUR, MINUTE, Quota};
use crate::reservation::Reservation;
use crate::store::Store;
use crate::verdict::Report;

/// Holds a store that [settles](Store::settle) charges to the contract of that: a refund goes where the charge was, once,
/// and gives back no more than what of it still counts; an overrun is used up at once, and paid back first; all axes are
/// settled.
///
/// As [`conformance`](super::conformance()), of which it is a part of its own.
///
/// # Panics
///
/// At the first promise that is broken, with a sentence that says which.
pub async fn conformance_of_settlement<S: Store>(make: impl Fn(FakeClock) -> S) {
    for quota in every_quota() {
        room(&make).what_is_cancelled_was_never_charged(quota).await;
        room(&make).the_first_settlement_counts(quota).await;
        room(&make).an_overrun_is_a_debt(quota).await;
        room(&make).what_does_not_count_any_more_takes_no_refund(quota).await;
    }
    room(&make).all_axes_are_settled().await;
    room(&make).a_bucket_gives_back_what_it_has_not_refilled().await;
    room(&make).a_refund_goes_into_the_window_that_was_charged().await;
    room(&make).a_charge_is_settled_where_it_was_made_whatever_the_quota_is_by_then().await;
}

impl Room {
    async fn what_is_cancelled_was_never_charged(self, quota: Quota) {
        let (axis, all) = (self.per_key("axis", quota), self.shared("all", quota));
        let meter = by_name(&axis).and(&all).expect("the axes are of one group");
        admitted(&meter, "a", 3).await;
        let reserved = reserve(&meter, "a", 6).await;
        assert_eq!(used(&meter, "a").await, [9, 9], "{quota}: what is reserved counts");
        refused(&meter, "a", 2).await;
        let told = settle(&reserved, 0).await;
        assert_eq!(told, [3, 3], "{quota}: a charge that is cancelled is given back");
        assert_eq!(used(&meter, "a").await, [3, 3]);
        admitted(&meter, "a", 7).await;
        refused(&meter, "b", 1).await;
        // All of it, and the first again.
        let (one, other) = (reserve(&meter, "b", 0).await, reserve(&meter, "c", 0).await);
        assert_eq!((settle(&one, 0).await, settle(&other, 0).await), (vec![0, 10], vec![0, 10]));
    }

    async fn the_first_settlement_counts(self, quota: Quota) {
        let axis = self.per_key("axis", quota);
        let meter = by_name(&axis);
        let reserved = reserve(&meter, "a", 8).await;
        assert_eq!(settle(&reserved, 5).await, [5]);
        for worth in [5, 0, 8, 100] {
            assert_eq!(settle(&reserved, worth).await, [5], "{quota}: a charge is settled once");
            assert_eq!(settle(&reserved.clone(), worth).await, [5]);
        }
        assert_eq!(used(&meter, "a").await, [5]);
        let cancelled = reserve(&meter, "a", 5).await;
        settle(&cancelled, 0).await;
        assert_eq!(settle(&cancelled, 3).await, [5], "{quota}: what is cancelled stays so");
    }

    async fn an_overrun_is_a_debt(self, quota: Quota) {
        let (axis, all) = (self.per_key("axis", quota), self.shared("all", quota));
        let meter = by_name(&axis).and(&all).expect("the axes are of one group");
        admitted(&meter, "a", 4).await;
        let reserved = reserve(&meter, "a", 5).await;
        let told = reserved.settle(9).await.expect("the store answers");
        let report = |of: usize| (told.reports()[of].used(), told.reports()[of].remaining());
        assert_eq!((report(0), report(1)), ((13, 0), (13, 0)), "{quota}: what is worth more is used up");
        assert!(told.is_admitted(), "a settlement refuses nothing");
        let verdict = refused(&meter, "a", 1).await;
        self.clock.advance(verdict.wait());
        admitted(&meter, "a", 1).await;
        // As much as can be counted, too; what cannot be settles nothing.
        let reserved = reserve(&meter, "b", 0).await;
        for mistake in [Cost::from(-1), Cost::from(u64::MAX), Cost::from((1_u64 << 52) + 1)] {
            let outcome = reserved.settle(mistake).await;
            assert!(matches!(outcome, Err(crate::ChargeError::Uncountable { axis: "axis" })), "{outcome:?}");
        }
        assert_eq!(used(&meter, "b").await[0], 0);
        reserved.settle(1_u64 << 52).await.expect("the store answers");
        let verdict = refused(&meter, "b", 1).await;
        assert!(verdict.wait() > Duration::ZERO && verdict.reports()[0].remaining() == 0);
    }

    async fn what_does_not_count_any_more_takes_no_refund(self, quota: Quota) {
        let (axis, all) = (self.per_key("axis", quota), self.shared("all", quota));
        let meter = by_name(&axis).and(&all).expect("the axes are of one group");
        let reserved = reserve(&meter, "a", 10).await;
        let full_again = admitted(&meter, "a", 0).await.reports().iter().map(Report::reset).max();
        self.clock.advance(full_again.expect("there are reports"));
        assert_eq!(used(&meter, "a").await, [0, 0]);
        admitted(&meter, "a", 10).await;
        assert_eq!(settle(&reserved, 0).await, [10, 10], "{quota}: a refund gave what somebody else has used up");
        refused(&meter, "a", 1).await;
        self.clock.advance(100 * full_again.expect("there are reports"));
        assert_eq!(settle(&reserve(&meter, "a", 1).await, 1).await, [1, 1]);
    }

    async fn all_axes_are_settled(self) {
        let (requests, tokens) = (self.per_key("requests", "fixed 10/m"), self.shared("tokens", "bucket 1000 1000/m"));
        let meter = by_name(&requests).and(&tokens).expect("the axes are of one group");
        let reserved = reserve(&meter, "a", Cost::units(1).on(&tokens, 300)).await;
        let worth = Cost::units(1).on(&tokens, 40);
        assert_eq!(settle(&reserved, worth).await, [1, 40], "each axis is settled by its own units");
        assert_eq!(used(&meter, "a").await, [1, 40]);
        let other = self.shared("other", "fixed 1/m");
        let foreign = reserve(&meter, "a", 1).await.settle(Cost::units(1).on(&other, 1)).await;
        assert!(matches!(foreign, Err(crate::ChargeError::ForeignAxis { axis: "other" })), "{foreign:?}");
    }

    async fn a_bucket_gives_back_what_it_has_not_refilled(self) {
        let bucket = self.shared("bucket", "bucket 10 1/s");
        let meter: Meter<str> = Meter::new(&bucket);
        let reserved = reserve(&meter, "", 8).await;
        self.clock.advance(Duration::from_millis(3_500));
        admitted(&meter, "", 5).await;
        assert_eq!(used(&meter, "").await, [10]);
        assert_eq!(settle(&reserved, 0).await, [5], "3.5 of 8 had been refilled by then");
        self.clock.advance(Duration::from_millis(999));
        assert_eq!(used(&meter, "").await, [5], "and the half is not counted twice");
        self.clock.advance(Duration::from_millis(1));
        assert_eq!(used(&meter, "").await, [4]);
    }

    async fn a_refund_goes_into_the_window_that_was_charged(self) {
        let sliding = self.shared("sliding", "10/m");
        let meter: Meter<str> = Meter::new(&sliding);
        self.clock.set(100 * MINUTE);
        let reserved = reserve(&meter, "", 8).await;
        self.clock.advance(MINUTE + MINUTE / 2);
        admitted(&meter, "", 3).await;
        assert_eq!(used(&meter, "").await, [7], "half of 8 counts still");
        assert_eq!(settle(&reserved, 2).await, [4], "half of the 2 that it was worth");
        self.clock.advance(MINUTE / 2);
        assert_eq!(used(&meter, "").await, [3]);
    }

    async fn a_charge_is_settled_where_it_was_made_whatever_the_quota_is_by_then(self) {
        let axis = self.shared("axis", "fixed 10/h");
        let meter: Meter<str> = Meter::new(&axis);
        let reserved = reserve(&meter, "", 8).await;
        axis.set_quota(Quota::fixed_window(5, HOUR)).expect("the quota is valid");
        assert_eq!(settle(&reserved, 6).await, [6], "another limit finds the same counter");
        let reserved = {
            axis.set_quota("fixed 10/h").expect("the quota is valid");
            reserve(&meter, "", 4).await
        };
        axis.set_quota("fixed 10/m").expect("the quota is valid");
        admitted(&meter, "", 7).await;
        assert_eq!(settle(&reserved, 0).await, [6], "the period is part of a counter's name");
        assert_eq!(used(&meter, "").await, [7]);
    }
}

async fn reserve(meter: &Meter<str>, name: &str, cost: impl Into<Cost>) -> Reservation {
    match meter.reserve(name, cost).await {
        Ok(reservation) => reservation,
        other => panic!("this charge fits, but the store said {other:?}"),
    }
}

/// The units used after a settlement.
async fn settle(reservation: &Reservation, worth: impl Into<Cost>) -> Vec<u64> {
    let verdict = reservation.settle(worth).await.expect("the store answers");
    verdict.reports().iter().map(Report::used).collect()
}
