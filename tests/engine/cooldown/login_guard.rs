//! Failures instead of attempts: a lock, that a success before it clears.

use tower_quota::{Attempts, ChargeError, Cooldown, MINUTE};

use super::relay::{Relay, in_memory_and_in_redis};
use super::{school, wait_of};

async fn t56_failures_lock_and_a_success_clears_its_own_key_alone(relay: Relay) {
    let rule = |failures| Cooldown::after_failures(failures).within(15 * MINUTE).rest(30 * MINUTE);
    let account = relay.group.cooldown("account", rule(5)).build().unwrap();
    let address = relay.group.cooldown("address", rule(10).kept_on_success()).build().unwrap();
    let login = async |name: &str, is_right: bool| -> Result<(), ChargeError> {
        let of_address = address.begin(&school("10.0.0.1"), 1).await?;
        let of_account = account.begin(&school(name), 1).await?;
        for attempt in [of_address, of_account] {
            if is_right { attempt.succeeded().await } else { attempt.failed().await }.unwrap();
        }
        Ok(())
    };
    // Four failures and a success, again and again: the account never locks, the address does at the eleventh failure.
    for round in 0..2 {
        for failure in 0..4 {
            login("victim", false).await.unwrap_or_else(|error| panic!("round {round}, failure {failure}: {error}"));
        }
        login("own", true).await.unwrap();
        account.reset(&school("victim")).await.unwrap();
    }
    login("victim", false).await.unwrap();
    login("victim", false).await.unwrap();
    let Err(ChargeError::Refused(verdict)) = login("victim", false).await else { panic!("the address is locked") };
    assert_eq!((verdict.reports()[0].axis(), verdict.wait()), ("address", 30 * MINUTE));
    relay.clock.advance(30 * MINUTE);

    // Within 15 minutes of the first, and a success starts over.
    for _ in 0..4 {
        login("other", false).await.unwrap();
    }
    login("other", true).await.unwrap();
    login("other", false).await.unwrap();
    relay.clock.advance(15 * MINUTE);
    for _ in 0..4 {
        login("other", false).await.unwrap();
    }
    assert_eq!(account.begin(&school("other"), 1).await.unwrap().granted(), 1, "the fifth locks, not the fourth");
}

in_memory_and_in_redis!(t56_failures_lock_and_a_success_clears_its_own_key_alone);

async fn a_success_is_no_failure_however_late_it_comes(relay: Relay) {
    let rule = Cooldown::after_failures(3).within(15 * MINUTE).rest(30 * MINUTE).kept_on_success();
    let address = relay.group.cooldown("late", rule).build().unwrap();
    let begin = async || address.begin(&school("10.0.0.1"), 1).await;
    // Three at once, of which the first fails: all count, and it locks; the others turn out well.
    let (first, second, third) = (begin().await.unwrap(), begin().await.unwrap(), begin().await.unwrap());
    first.failed().await.unwrap();
    assert!(begin().await.is_err(), "as far as is known, three have failed");
    second.succeeded().await.unwrap();
    let slow = begin().await.expect("one of three has failed, and one is not known");
    third.succeeded().await.unwrap();
    // What began before the failures that count now was none of them.
    relay.clock.advance(16 * MINUTE);
    for _ in 0..2 {
        begin().await.unwrap().failed().await.unwrap();
    }
    slow.succeeded().await.unwrap();
    begin().await.expect("the third").failed().await.unwrap();
    assert!(begin().await.is_err(), "three have failed");
}

in_memory_and_in_redis!(a_success_is_no_failure_however_late_it_comes);

async fn guesses_at_the_same_time_are_no_way_around_the_limit(relay: Relay) {
    let rule = Cooldown::after_failures(5).within(15 * MINUTE).rest(30 * MINUTE);
    let account = relay.group.cooldown("account", rule).build().unwrap();
    let mut under_way = Vec::new();
    while let Ok(attempts) = account.begin(&school("a"), 1).await {
        under_way.push(attempts);
    }
    assert_eq!(under_way.len(), 5);
    // What nobody tells of has failed.
    under_way.into_iter().for_each(drop);
    relay.settle().await;
    assert_eq!(wait_of(&account, "a", 1).await, 30 * MINUTE);
    // A lock is of the key, and other keys go on.
    let one: Attempts = account.begin(&school("b"), 1).await.unwrap();
    one.succeeded().await.unwrap();
}

in_memory_and_in_redis!(guesses_at_the_same_time_are_no_way_around_the_limit);
