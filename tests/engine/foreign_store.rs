//! A store of somebody else's, written against the public contract: fixed windows that never end, in one locked map.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tower_quota::{
    Answer, ChargeError, Demand, Finding, Group, HOUR, Key, Meter, MissingKey, Owner, Question, Quota, Report, Store,
    StoreErrorKind, Verdict,
};

use crate::support::{charge, now, used};

#[derive(Default)]
struct Forever {
    used: Mutex<HashMap<String, u64>>,
}

impl Forever {
    fn name(demand: &Demand<'_>) -> String {
        let owner = match demand.owner() {
            Owner::Key(key) => format!("{:?}", key.as_bytes()),
            other => format!("{other:?}"),
        };
        let terms = demand.terms();
        format!("{} {} {} {owner}", terms.group(), terms.axis(), terms.quota().period().as_secs())
    }
}

impl Store for Forever {
    fn decide(&self, question: &Question<'_>) -> Answer<Verdict> {
        let mut counters = self.used.lock().unwrap();
        let used = |demand: &Demand<'_>| counters.get(&Self::name(demand)).copied().unwrap_or(0);
        let fits =
            |demand: &Demand<'_>| demand.terms().units() <= demand.terms().quota().limit().saturating_sub(used(demand));
        let demands = question.demands();
        let admitted = demands.iter().all(fits);
        let reports: Vec<_> = demands
            .iter()
            .map(|demand| {
                let wait = (!fits(demand)).then_some(Duration::from_secs(9));
                let used = used(demand) + if admitted { demand.terms().units() } else { 0 };
                Report::new(demand.terms(), Finding { used, wait, reset: HOUR, above_watermark: used > 1 })
            })
            .collect();
        if admitted {
            for demand in demands {
                *counters.entry(Self::name(demand)).or_default() += demand.terms().units();
            }
        }
        Answer::Ready(Ok(Verdict::from_reports(reports)))
    }

    fn reset(&self, question: &Question<'_>) -> Answer<()> {
        for demand in question.demands() {
            self.used.lock().unwrap().remove(&Self::name(demand));
        }
        Answer::Ready(Ok(()))
    }
}

#[test]
fn a_store_can_be_written_elsewhere() {
    let group = Group::new("other", Forever::default()).unwrap();
    let account = group.per_key("account", Quota::fixed_window(3, HOUR)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(4, HOUR)).build().unwrap();
    let read = account.by(|name: &Option<String>| name.as_ref().map(Key::from));
    let meter =
        Meter::new(read.missing_key(MissingKey::Anonymous("fixed 1/h".parse().unwrap()))).and(&capacity).unwrap();
    let (alice, nobody) = (Some("alice".to_owned()), None);

    let verdict = charge(&meter, &alice, 2).unwrap();
    assert!(verdict.reports().iter().all(|report| report.is_above_watermark() && report.reset() == HOUR));
    charge(&meter, &nobody, 1).unwrap();
    let Err(ChargeError::Refused(verdict)) = charge(&meter, &alice, 2) else { panic!("both are full") };
    assert_eq!((verdict.refused_by().unwrap().axis(), verdict.wait()), ("account", Duration::from_secs(9)));
    assert!(matches!(charge(&meter, &alice, 5), Err(ChargeError::Never(_))));
    assert_eq!(used(&meter, &alice), [(2, 1), (3, 1)]);
    assert_eq!(used(&meter, &nobody), [(1, 0), (3, 1)]);
    // It does not know how to settle a charge, and says so.
    let reserved = now(meter.reserve(&alice, 0).into_future()).unwrap();
    let Err(ChargeError::Store(error)) = now(reserved.cancel()) else { panic!("nothing is given back") };
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    now(account.reset(&Key::from("alice"))).unwrap();
    now(capacity.reset()).unwrap();
    assert_eq!(used(&meter, &alice), [(0, 3), (0, 4)]);
}
