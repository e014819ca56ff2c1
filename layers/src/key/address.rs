//! Addresses as proxies write them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An entry of `X-Forwarded-For`: an address, with or without a port. Zones, ports that are none, and anything else that
/// is no address are `None`.
pub(super) fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address);
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let address = address.parse::<Ipv6Addr>().ok()?;
        return (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(IpAddr::V6(address));
    }
    let (address, port) = text.rsplit_once(':')?;
    let address = address.parse::<Ipv4Addr>().ok()?;
    is_port(port).then_some(IpAddr::V4(address))
}

pub(super) fn is_port(text: &str) -> bool {
    (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}
