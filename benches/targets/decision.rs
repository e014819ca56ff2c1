//! P1: an account and a capacity, decided in one atomic step, beside governor's keyed and direct limiters, asked one after
//! the other. The same 100,000 accounts, limits that admit everything. The accounts come in another order than they came
//! in first, so that neither store has them lying in the order in which they are asked for.

use std::num::NonZeroU32;
use std::thread;

use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, RateLimiter};
use tower_quota::{Asked, Group, HOUR, KeyRead, MemoryStore, Meter, Quota};

use crate::measure::{Row, accounts, nanos_per, time};

const ACCOUNTS: usize = 100_000;
const ROUNDS: usize = 4;
const PLENTY: u32 = 1_000_000_000;

pub(crate) fn run() {
    let accounts = accounts(ACCOUNTS);
    let fixed = meter(Quota::fixed_window);
    let bucket = meter(|capacity, period| Quota::token_bucket(capacity, 60_000_000, period));
    let quota = governor::Quota::per_hour(NonZeroU32::new(PLENTY).expect("plenty"));
    let peer = Peer { keyed: RateLimiter::keyed(quota), direct: RateLimiter::direct(quota) };

    let mut newcomers = accounts.clone();
    newcomers.sort_unstable();
    for name in &newcomers {
        ask(&fixed, name);
        ask(&bucket, name);
        peer.ask(name);
    }

    for (threads, target) in [(1, 1.0), (2, 0.8)] {
        for (meter, what) in [
            (&fixed, ["fixed windows, 1 thread", "fixed windows, 2 threads"]),
            (&bucket, ["token buckets, 1 thread", "token buckets, 2 threads"]),
        ] {
            let row = Row {
                id: "P1",
                what: what[threads - 1],
                baseline: "governor keyed + direct (not atomic)",
                unit: "ns",
                target,
            };
            row.compare(
                || each(&accounts, threads, &|name| ask(meter, name)),
                || each(&accounts, threads, &|name| peer.ask(name)),
            );
        }
    }
}

fn meter(quota: impl Fn(u64, std::time::Duration) -> Result<Quota, tower_quota::ConfigError>) -> Meter<String> {
    let group = Group::new("bench", MemoryStore::new()).expect("a group");
    let account = group.per_key("account", quota(PLENTY.into(), HOUR)).build().expect("an account");
    let capacity = group.shared("capacity", quota(PLENTY.into(), HOUR)).build().expect("a capacity");
    Meter::new(account.by_bytes(|name: &String| KeyRead::Found(name.as_bytes()))).and(&capacity).expect("one group")
}

fn ask(meter: &Meter<String>, name: &String) {
    assert!(matches!(meter.ask(name, 1_u64), Asked::Answered(Ok(_))));
}

struct Peer {
    keyed: DefaultKeyedRateLimiter<String>,
    direct: DefaultDirectRateLimiter,
}

impl Peer {
    fn ask(&self, name: &String) {
        assert!(self.keyed.check_key(name).is_ok() && self.direct.check().is_ok());
    }
}

/// Nanoseconds of each decision, over all threads together.
fn each(accounts: &[String], threads: usize, decide: &(dyn Fn(&String) + Sync)) -> f64 {
    let spent = time(|| {
        thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    let (first, rest) = accounts.split_at(accounts.len() * thread / threads);
                    for _ in 0..ROUNDS {
                        rest.iter().chain(first).for_each(decide);
                    }
                });
            }
        });
    });
    nanos_per(accounts.len() * ROUNDS * threads, spent)
}
