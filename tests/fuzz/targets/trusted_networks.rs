//! Networks of trusted proxies as text: what is no network is told, and what is one is used.

#![no_main]

use http::Request;
use libfuzzer_sys::fuzz_target;
use tower_quota::KeyRead;
use tower_quota::key::{self, PeerAddr, TrustedProxies};

fuzz_target!(|text: &str| {
    match TrustedProxies::networks(text.split(',')) {
        Ok(trusted) => {
            let request = Request::builder()
                .extension(PeerAddr([10, 0, 0, 5].into()))
                .header("x-forwarded-for", "203.0.113.50")
                .body(())
                .unwrap();
            assert!(matches!(key::client_ip(trusted).read(&request.into_parts().0), KeyRead::Found(_)));
        }
        Err(error) => assert_eq!(error.field(), "key.trusted"),
    }
});
