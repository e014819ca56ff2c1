//! The shared store, over real servers.

mod cluster;
mod conformance;
mod deadline;
mod outcome;
mod processes;
mod script;
mod server;
mod stored;
mod tls;
mod watermark;

use tower_quota::{CountedBy, Group, HOUR, Key, Meter, OnStoreFailure, PerKeyAxis, Quota, RedisStore, SharedAxis};

/// What a wish-list service counts, over one store.
struct Items {
    account: PerKeyAxis,
    capacity: SharedAxis,
    both: Meter<str>,
}

impl Items {
    fn over(store: RedisStore, per_account: u64, in_all: u64) -> Self {
        Self::with_policy(store, per_account, in_all, OnStoreFailure::Open)
    }

    fn with_policy(store: RedisStore, per_account: u64, in_all: u64, policy: OnStoreFailure) -> Self {
        let group = Group::builder("item").on_store_failure(policy).build(store).unwrap();
        let account = group.per_key("account", Quota::fixed_window(per_account, HOUR)).build().unwrap();
        let capacity = group.shared("capacity", Quota::fixed_window(in_all, HOUR)).build().unwrap();
        let both = Meter::new(account.by(|name: &str| Key::from(name))).and(&capacity).unwrap();
        Self { account, capacity, both }
    }

    /// Units used on both axes, by the store.
    async fn used(&self, name: &str) -> [u64; 2] {
        let verdict = self.both.charge(name, 0).await.unwrap();
        assert_eq!(verdict.counted_by(), CountedBy::Store);
        [verdict.reports()[0].used(), verdict.reports()[1].used()]
    }

    /// Whether a charge was admitted, and by whom it was counted.
    async fn charge(&self, name: &str) -> Result<CountedBy, tower_quota::ChargeError> {
        self.both.charge(name, 1).await.map(|verdict| verdict.counted_by())
    }
}
