//! A recorder of metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// What counters count while it is the recorder.
#[derive(Clone, Default)]
pub(crate) struct Counted(Arc<Mutex<BTreeMap<String, u64>>>);

impl Counted {
    /// All counters, such as `name group=a axis=b`, and what they have counted.
    pub(crate) fn all(&self) -> Vec<(String, u64)> {
        self.0.lock().unwrap().clone().into_iter().collect()
    }
}

struct Slot {
    counted: Counted,
    name: String,
}

impl CounterFn for Slot {
    fn increment(&self, by: u64) {
        *self.counted.0.lock().unwrap().entry(self.name.clone()).or_default() += by;
    }

    fn absolute(&self, value: u64) {
        self.counted.0.lock().unwrap().insert(self.name.clone(), value);
    }
}

impl Recorder for Counted {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        let name = key.name().to_owned() + &labels.collect::<String>();
        Counter::from_arc(Arc::new(Slot { counted: self.clone(), name }))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
