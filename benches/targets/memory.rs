//! P7: resident memory for each of a million accounts seen once, beside governor's keyed limiter; and that a flood of ten
//! million keys leaves no more behind than the store may hold. Each is measured in a process of its own.

use std::fs;
use std::num::NonZeroU32;
use std::process::Command;
use std::sync::Arc;

use governor::RateLimiter;
use tower_quota::{Group, HOUR, Key, MemoryStore, Meter, Quota};

use crate::measure::Row;

/// Tells a process of this program to measure, and what.
pub(crate) const RESIDENT: &str = "resident";
const ACCOUNTS: u64 = 1_000_000;

pub(crate) fn run() {
    let [ours, flood, peer] = ["ours", "flood", "peer"].map(|what| resident(what) / ACCOUNTS as f64);
    let row = Row {
        id: "P7",
        what: "resident for each of 1 M accounts seen once",
        baseline: "governor keyed by String",
        unit: "B",
        target: 0.95,
    };
    row.print(ours, peer, ours / peer);
    let row = Row {
        id: "P7",
        what: "resident after 10 M keys, for each of the 1 M that the store may hold",
        baseline: "after 1 M keys",
        unit: "B",
        target: 1.05,
    };
    row.print(flood, ours, flood / ours);
}

/// What a process of its own measures, in bytes.
fn resident(what: &str) -> f64 {
    let program = std::env::current_exe().expect("a program");
    let output = Command::new(program).args([RESIDENT, what]).output().expect("a process");
    let text = String::from_utf8(output.stdout).expect("a number");
    text.trim().parse().unwrap_or_else(|_| panic!("{what} was not measured: this needs /proc/self/statm"))
}

/// Prints by how many bytes this process grows.
pub(crate) fn print_resident(what: &str) {
    match what {
        "peer" => {
            let limiter = RateLimiter::keyed(governor::Quota::per_hour(NonZeroU32::new(30).expect("30")));
            print_growth(|| (0..ACCOUNTS).for_each(|account| assert!(limiter.check_key(&name(account)).is_ok())));
        }
        "flood" => print_growth_of_store(10 * ACCOUNTS),
        _ => print_growth_of_store(ACCOUNTS),
    }
}

fn print_growth_of_store(accounts: u64) {
    let store = Arc::new(MemoryStore::new());
    let group = Group::new("bench", Arc::clone(&store)).expect("a group");
    let axis = group.per_key("account", Quota::fixed_window(30, HOUR)).build().expect("an axis");
    let meter = Meter::new(axis.by(|name: &String| Key::from(name)));
    print_growth(|| {
        for account in 0..accounts {
            assert!(meter.ask(&name(account), 1_u64).answered().is_some_and(|outcome| outcome.is_ok()));
        }
    });
    assert_eq!(store.states(), 1_000_000);
}

fn name(account: u64) -> String {
    format!("account-{account:08}")
}

fn print_growth(work: impl FnOnce()) {
    let before = resident_now();
    work();
    println!("{}", resident_now() - before);
}

fn resident_now() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").expect("Linux's /proc");
    let resident = pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    resident.expect("the second number") * 4_096
}
