//! Python's grpcio, another implementation of gRPC than tonic.

use std::time::Duration;

use tower_quota::{GlobalCapacityLayer, Group, HOUR, MemoryStore, Quota, QuotaLayer, UserQuotaLayer, key};

use super::script;
use crate::grpc::service::{Echoes, serve};
use crate::support::group;

fn quotas(group: &Group, account: Quota, in_all: u64) -> QuotaLayer {
    let account = group.per_key("account", account).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(in_all, HOUR)).build().unwrap();
    let account = UserQuotaLayer::new(&account, key::header("x-account").unwrap());
    account.and(GlobalCapacityLayer::new(&capacity)).unwrap()
}

#[tokio::test]
async fn it_is_told_code_message_and_details() {
    let hour = |limit| Quota::fixed_window(limit, HOUR).unwrap();
    for (account, in_all, refused) in [
        (1, 10, "RESOURCE_EXHAUSTED; The quota is used up; 3600000 ms; account"),
        (10, 1, "UNAVAILABLE; The service has no capacity left; 3600000 ms; capacity"),
    ] {
        let url = serve(quotas(&group().0, hour(account), in_all), Echoes::at_once());
        let address = url.strip_prefix("http://").unwrap();
        assert_eq!(script("grpcio_call.py", &[address, "2"]).await, ["OK", refused]);
    }
}

#[tokio::test]
async fn its_retry_policy_waits_as_long_as_it_is_told() {
    let layer = |period| {
        let group = Group::new("test", MemoryStore::new()).unwrap();
        quotas(&group, Quota::fixed_window(1, period).unwrap(), 1_000)
    };
    let url = serve(layer(Duration::from_millis(500)).grpc_pushback(), Echoes::at_once());
    let address = url.strip_prefix("http://").unwrap();
    assert_eq!(script("grpcio_call.py", &[address, "4", "retry"]).await, ["OK"; 4]);

    // By its own idea of a wait, all attempts are over too early.
    let url = serve(layer(HOUR), Echoes::at_once());
    let refused = script("grpcio_call.py", &[url.strip_prefix("http://").unwrap(), "2", "retry"]).await;
    assert!(refused[1].starts_with("RESOURCE_EXHAUSTED"), "{refused:?}");
}
