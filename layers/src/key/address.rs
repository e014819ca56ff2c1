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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t18_an_entry_may_carry_a_port_that_is_none_of_the_key() {
        for (entry, expected) in [
            ("203.0.113.7:49152", Some("203.0.113.7")),
            ("203.0.113.7:49153", Some("203.0.113.7")),
            ("[2001:db8::1]:443", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("2001:db8::1:443", Some("2001:db8::1:443")),
            ("203.0.113.7:", None),
            ("203.0.113.7:99999", None),
            ("203.0.113.7:+80", None),
            ("203.0.113.7:abc", None),
            ("203.0.113.7:0000080", None),
            ("[203.0.113.7]:80", None),
            ("[2001:db8::1", None),
            ("2001:db8::1]", None),
            ("[2001:db8::1]443", None),
            ("010.0.0.1", None),
            ("0x7f.1", None),
            ("127.1", None),
            ("1.2.3", None),
            ("fe80::1%eth0", None),
            ("fe80::1%25eth0", None),
            ("[fe80::1%eth0.100]:80", None),
            ("", None),
        ] {
            let read = address(entry.as_bytes()).map(|address| address.to_string());
            assert_eq!(read.as_deref(), expected, "{entry}");
        }
    }
}
