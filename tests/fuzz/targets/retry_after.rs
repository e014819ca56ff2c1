//! An upstream's `Retry-After`: whatever it says, the pause is one that was allowed.
//!
//! The first byte chooses the status. Of the lines of the rest, the first is the `Date`, and each other one a `Retry-After`.

#![no_main]

use std::convert::Infallible;
use std::time::Duration;

use futures_util::FutureExt;
use http::{HeaderValue, Request, Response};
use libfuzzer_sys::fuzz_target;
use tower::{Layer, ServiceExt, service_fn};
use tower_quota::testing::FakeClock;
use tower_quota::{BackoffLayer, Group, MemoryStore, Rejection, key};

const LONGEST: Duration = Duration::from_secs(600);

fuzz_target!(|input: (u8, &[u8])| {
    let (status, told) = input;
    let status = [200, 429, 503, 500][usize::from(status % 4)];
    let group = Group::new("fuzz", MemoryStore::with_clock(FakeClock::new())).unwrap();
    let axis = group.backoff("upstream").at_most(LONGEST).build().unwrap();
    let service = BackoffLayer::new(&axis, key::constant("upstream")).layer(service_fn(async |_: Request<()>| {
        let mut response = Response::builder().status(status).body(String::new()).unwrap();
        let lines = told.split(|byte| *byte == b'\n').map(HeaderValue::from_bytes);
        for (line, name) in lines.zip(std::iter::once("date").chain(std::iter::repeat("retry-after"))) {
            if let Ok(value) = line {
                response.headers_mut().append(name, value);
            }
        }
        Ok::<_, Infallible>(response)
    }));
    let call = || service.clone().oneshot(Request::new(())).now_or_never().unwrap().unwrap();
    assert!(Rejection::of(&call()).is_none());
    let second = call();
    let paused = Rejection::of(&second).map(|rejection| rejection.retry_after().unwrap());
    assert!(paused.is_none_or(|pause| (Duration::from_secs(1)..=LONGEST).contains(&pause)), "{paused:?}");
    assert!(paused.is_some() || status != 429);
    assert!(paused.is_none() || status == 429 || status == 503);
});
