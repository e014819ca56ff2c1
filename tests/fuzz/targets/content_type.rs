//! The content type that tells calls of gRPC: whatever it is, a refusal is one, in either form.

#![no_main]

use futures_util::FutureExt;
use http::{HeaderValue, Request, Response};
use libfuzzer_sys::fuzz_target;
use tower::{Layer, ServiceExt, service_fn};
use tower_quota::{GlobalCapacityLayer, Group, HOUR, MemoryStore, Quota, QuotaLayer};

fuzz_target!(|content_type: &[u8]| {
    let Ok(value) = HeaderValue::from_bytes(content_type) else { return };
    let group = Group::new("fuzz", MemoryStore::new()).unwrap();
    let closed = group.shared("closed", Quota::fixed_window(0, HOUR)).build().unwrap();
    let service = QuotaLayer::from(GlobalCapacityLayer::new(&closed)).layer(service_fn(|_: Request<String>| async {
        Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    }));
    let request = Request::post("/").header("content-type", value).body(String::new()).unwrap();
    let response = service.oneshot(request).now_or_never().unwrap().unwrap();
    let is_call = response.headers().contains_key("grpc-status");
    assert_eq!(response.status(), if is_call { 200 } else { 503 });
    let starts_so = content_type.get(..16).is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"));
    assert!(starts_so || !is_call);
});
