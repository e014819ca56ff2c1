//! Forwarding headers: whatever a client sends, it cannot choose whom it is counted as.
//!
//! The first byte chooses the header; each line of the rest is a line of it.

#![no_main]

use std::net::IpAddr;

use http::{HeaderValue, Request};
use libfuzzer_sys::fuzz_target;
use tower_quota::KeyRead;
use tower_quota::key::{self, PeerAddr, TrustedProxies};

const PROXY: [u8; 4] = [10, 0, 0, 5];
const CLIENT: &str = "203.0.113.50";

fuzz_target!(|input: (bool, &[u8])| {
    let (is_forwarded, sent) = input;
    let (name, told) = if is_forwarded { ("forwarded", "for=") } else { ("x-forwarded-for", "") };
    let lines = || sent.split(|byte| *byte == b'\n').filter_map(|line| HeaderValue::from_bytes(line).ok());
    let configured = |trusted: TrustedProxies| if is_forwarded { trusted.forwarded() } else { trusted };
    let read = |trusted: &TrustedProxies, peer: IpAddr, lines: Vec<HeaderValue>| {
        let mut request = Request::builder().extension(PeerAddr(peer)).body(()).unwrap();
        for line in lines {
            request.headers_mut().append(name, line);
        }
        key::client_ip(trusted.clone()).read(&request.into_parts().0)
    };
    let of = |address: &str| read(&TrustedProxies::none(), address.parse().unwrap(), Vec::new());
    let with = |last: &[String]| lines().chain(last.iter().map(|line| line.parse().unwrap())).collect();

    let networks = configured(TrustedProxies::networks(["10.0.0.0/8"]).unwrap());
    let (one_hop, two_hops) = (configured(TrustedProxies::hops(1)), configured(TrustedProxies::hops(2)));
    for trusted in [&networks, &one_hop, &two_hops] {
        assert!(matches!(read(trusted, PROXY.into(), lines().collect()), KeyRead::Found(_)));
    }

    // A stranger is not believed.
    assert_eq!(read(&networks, "192.0.2.7".parse().unwrap(), lines().collect()), of("192.0.2.7"));
    // What a proxy adds in a line of its own is what counts.
    let added = [format!("{told}{CLIENT}")];
    assert_eq!(read(&networks, PROXY.into(), with(&added)), of(CLIENT));
    assert_eq!(read(&one_hop, PROXY.into(), with(&added)), of(CLIENT));
    let by_two = [added[0].clone(), format!("{told}198.51.100.2")];
    assert_eq!(read(&two_hops, PROXY.into(), with(&by_two)), of(CLIENT));
    // A proxy that adds to the last line instead cannot be made to say anything else, either.
    let mut joined: Vec<HeaderValue> = lines().collect();
    let last = joined.pop().map_or_else(Vec::new, |line| line.as_bytes().to_vec());
    joined.push(HeaderValue::from_bytes(&[&last, &b", "[..], added[0].as_bytes()].concat()).unwrap());
    let read = read(&networks, PROXY.into(), joined);
    assert!(read == of(CLIENT) || is_forwarded && read == of("10.0.0.5"), "{read:?}");
});
