//! P11: whether a decision costs more, the more accounts there are. First with the same ten thousand accounts at work in a
//! store that holds ten thousand, and in one that holds a million: the decision's own work. Then with all of a million at
//! work, where each waits for memory that no cache holds: beside the same decision among ten thousand and one such wait.
//! Much of both is the processor's search for pages: with large ones it takes less (on Linux with glibc,
//! `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`).

use std::hint::black_box;

use tower_quota::{Asked, Group, HOUR, KeyRead, MemoryStore, Meter, Quota};

use crate::measure::{Row, accounts, nanos_per, shuffled, time};

const FEW: usize = 10_000;
const MANY: usize = 1_000_000;

pub(crate) fn run() {
    let names = accounts(MANY);
    let (many, few) = (store_of(&names), store_of(&names[..FEW]));
    let few_names = || each(&few, &names[..FEW]);

    let row = Row {
        id: "P11",
        what: "a decision among 1 M accounts, 10 k of them at work",
        baseline: "among 10 k",
        unit: "ns",
        target: 1.5,
    };
    row.compare(|| each(&many, &names[..FEW]), few_names);

    let memory = Memory::new();
    let row = Row {
        what: "a decision among 1 M accounts, all of them at work",
        baseline: "among 10 k, and a read of cold memory",
        ..row
    };
    row.compare(|| each(&many, &names), || few_names() + memory.each_read());
}

/// As many cache lines as accounts, which tell each the next one to read.
struct Memory(Vec<Line>);

#[derive(Clone)]
#[repr(align(64))]
struct Line {
    next: usize,
}

impl Memory {
    fn new() -> Self {
        let order = shuffled(MANY);
        let mut lines = vec![Line { next: 0 }; MANY];
        for (at, next) in order.iter().zip(order.iter().cycle().skip(1)) {
            lines[*at].next = *next;
        }
        Self(lines)
    }

    /// Nanoseconds of each of so many reads, one after the other.
    fn each_read(&self) -> f64 {
        let spent = time(|| black_box((0..MANY).fold(0, |at, _| self.0[at].next)));
        nanos_per(MANY, spent)
    }
}

/// A meter whose store holds these accounts.
fn store_of(names: &[String]) -> Meter<String> {
    let group = Group::new("bench", MemoryStore::new()).expect("a group");
    let account = group.per_key("account", Quota::fixed_window(1 << 40, HOUR)).build().expect("an account");
    let capacity = group.shared("capacity", Quota::fixed_window(1 << 40, HOUR)).build().expect("a capacity");
    let meter = Meter::new(account.by_bytes(|name: &String| KeyRead::Found(name.as_bytes())))
        .and(&capacity)
        .expect("one group");
    each(&meter, names);
    meter
}

/// Nanoseconds of each of so many decisions on these accounts in turn.
fn each(meter: &Meter<String>, names: &[String]) -> f64 {
    let spent = time(|| {
        for name in names.iter().cycle().take(MANY) {
            assert!(matches!(meter.ask(name, 1_u64), Asked::Answered(Ok(_))));
        }
    });
    nanos_per(MANY, spent)
}
