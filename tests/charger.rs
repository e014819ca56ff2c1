//! One of several processes that charge the same counters: `charger <redis url> <rounds> <tasks>` charges a unit in each
//! task of each round, and prints how many were admitted in each.

use std::env;
use std::time::Duration;

use tower_quota::{Group, Key, Meter, Quota, RedisStore};

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = env::args().collect();
    let [_, url, rounds, tasks] = &arguments[..] else { panic!("charger <redis url> <rounds> <tasks>") };
    let number = |text: &str| text.parse::<u32>().expect("a number");

    rustls::crypto::ring::default_provider().install_default().expect("there is no other");
    let store = RedisStore::builder(url).deadline(Duration::from_secs(20)).build().expect("the address is valid");
    let group = Group::new("charged", store).expect("the name is valid");
    let day = |limit| Quota::token_bucket(limit, 1, 10 * tower_quota::DAY);
    let account = group.per_key("account", Quota::fixed_window(90, tower_quota::DAY)).build().expect("it is valid");
    let device = group.per_key("device", day(70)).build().expect("it is valid");
    let all = group.shared("all", Quota::per_day(1_000_000)).build().expect("it is valid");
    let key = |round: &u32| Key::from(u64::from(*round));
    let meter = Meter::new(account.by(key)).and(device.by(key)).and_then(|meter| meter.and(&all)).expect("it is valid");

    for round in 0..number(rounds) {
        let charges = (0..number(tasks)).map(|_| {
            let meter = meter.clone();
            tokio::spawn(async move { meter.charge(&round, 1).await })
        });
        let mut admitted = 0;
        for charge in charges.collect::<Vec<_>>() {
            match charge.await.expect("no task panics") {
                Ok(verdict) => {
                    assert!(verdict.was_counted(), "the store answers in time");
                    admitted += 1;
                }
                Err(tower_quota::ChargeError::Refused(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        println!("{admitted}");
    }
}
