//! Calls that are let through are answered as if there were no layers.

use futures_util::stream;
use tonic::metadata::MetadataMap;
use tonic::{Response, Status, Streaming};
use tower::ServiceBuilder;
use tower::layer::util::Identity;
use tower_quota::{
    BackoffLayer, ConcurrencyLayer, Cooldown, CooldownLayer, GlobalCapacityLayer, HOUR, LimitFields, Quota, QuotaLayer,
    ReadWriteSplitLayer, UserQuotaLayer, key,
};

use super::echo::Message;
use super::service::{Client, Echoes, FAILING, behind, by};
use crate::support::group;

fn message(text: &str) -> Message {
    Message { text: text.to_owned(), repeat: 3 }
}

/// What a client sees of a call, in order: metadata, messages, trailers, and how it ended.
type Seen = Vec<String>;

/// All but the time of the answer, and the fields that were asked for.
fn metadata(map: &MetadataMap) -> Seen {
    let headers = map.clone().into_headers();
    let lines = headers.iter().map(|(name, value)| format!("{name}: {value:?}"));
    let mut lines: Seen = lines.filter(|line| !line.starts_with("date") && !line.starts_with("ratelimit")).collect();
    lines.sort();
    lines
}

fn failed(status: &Status) -> Seen {
    let mut seen = vec![format!("{:?} {:?} {:?}", status.code(), status.message(), status.details())];
    seen.extend(metadata(status.metadata()));
    seen
}

fn one(answer: Result<Response<Message>, Status>) -> Seen {
    match answer {
        Ok(response) => {
            let mut seen = metadata(response.metadata());
            seen.push(format!("{:?}", response.get_ref()));
            seen
        }
        Err(status) => failed(&status),
    }
}

async fn many(answer: Result<Response<Streaming<Message>>, Status>) -> Seen {
    let response = match answer {
        Ok(response) => response,
        Err(status) => return failed(&status),
    };
    let mut seen = metadata(response.metadata());
    let mut messages = response.into_inner();
    loop {
        match messages.message().await {
            Ok(Some(message)) => seen.push(format!("{message:?}")),
            Ok(None) => break,
            Err(status) => return [seen, failed(&status)].concat(),
        }
    }
    seen.extend(messages.trailers().await.unwrap().iter().flat_map(metadata));
    seen
}

/// All kinds of calls, each with a good and a bad end.
async fn all_calls(mut client: Client) -> Vec<Seen> {
    let mut seen = Vec::new();
    for text in ["hello", FAILING] {
        let messages = || stream::iter([message("first"), message("second"), message(text)]);
        seen.push(one(client.unary(by("alice", message(text))).await));
        seen.push(one(client.client_stream(by("alice", messages())).await));
        seen.push(many(client.server_stream(by("alice", message(text))).await).await);
        seen.push(many(client.bidi(by("alice", messages())).await).await);
    }
    seen
}

fn quota() -> QuotaLayer {
    let (group, _clock) = group();
    let account = group.per_key("account", Quota::fixed_window(1_000, HOUR)).build().unwrap();
    let capacity = group.shared("capacity", Quota::fixed_window(1_000, HOUR)).build().unwrap();
    let account = UserQuotaLayer::new(&account, key::header("x-account").unwrap());
    account.and(GlobalCapacityLayer::new(&capacity)).unwrap()
}

#[tokio::test]
async fn t28_t29_status_trailers_messages_and_errors_are_the_same() {
    let bare = all_calls(behind(Identity::new(), Echoes::at_once()).await).await;
    assert!(bare.iter().all(|seen| !seen.is_empty()) && bare.len() == 8);
    let failures = bare.iter().filter(|seen| seen.iter().any(|part| part.contains("half way"))).count();
    assert_eq!(failures, 4, "{bare:#?}");

    let (group, _clock) = group();
    let key = || key::header("x-account").unwrap();
    let rule = Cooldown::after_attempts(1_000).rest(HOUR);
    let cooldown = CooldownLayer::new(&group.cooldown("school", rule).build().unwrap(), key());
    let backoff = BackoffLayer::new(&group.backoff("upstream").build().unwrap(), key());
    let told = quota().limit_fields(LimitFields::draft_11());

    assert_eq!(all_calls(behind(quota(), Echoes::at_once()).await).await, bare);
    assert_eq!(all_calls(behind(told.clone(), Echoes::at_once()).await).await, bare);
    assert_eq!(all_calls(behind(ConcurrencyLayer::new(4), Echoes::at_once()).await).await, bare);
    assert_eq!(all_calls(behind(cooldown.clone(), Echoes::at_once()).await).await, bare);
    assert_eq!(all_calls(behind(backoff.clone(), Echoes::at_once()).await).await, bare);
    let split = ReadWriteSplitLayer::new(quota(), quota());
    assert_eq!(all_calls(behind(split, Echoes::at_once()).await).await, bare);
    let all = ServiceBuilder::new().layer(told).layer(cooldown).layer(backoff).layer(ConcurrencyLayer::new(4));
    assert_eq!(all_calls(behind(all, Echoes::at_once()).await).await, bare);
}
