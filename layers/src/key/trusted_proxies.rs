//! Whose address a request comes from, past proxies that are trusted and up to those that are not.

use std::net::IpAddr;
use std::ops::ControlFlow;

use http::header::HeaderName;
use http::request::Parts;
use ipnet::{IpNet, Ipv4Net};
use tower_quota_core::{ConfigError, Key};

use super::address::address;
use super::client_key::ClientKey;
use super::forwarded;
use super::header::header_name;

/// Which proxies are believed, and in which header they say whom they speak for.
///
/// Only the configured header is read, and only of peers that are trusted: all its lines in the order in which they were
/// sent, from the right. What stands further left was written by somebody who is not trusted.
#[derive(Clone, Debug)]
pub struct TrustedProxies {
    trust: Trust,
    header: Header,
    key: ClientKey,
}

#[derive(Clone, Debug)]
enum Trust {
    Nobody,
    /// So many proxies, the peer among them.
    Hops(u8),
    Networks(Vec<IpNet>),
}

#[derive(Clone, Debug)]
enum Header {
    /// `X-Forwarded-For`, or another of its form.
    Addresses(HeaderName),
    /// RFC 7239.
    Forwarded,
}

/// More entries are not looked at: nobody has as many proxies.
const MOST_ENTRIES: usize = 64;

impl TrustedProxies {
    /// No proxy: the peer is the client.
    pub fn none() -> Self {
        Self::of(Trust::Nobody)
    }

    /// So many proxies in a row, whatever their addresses: behind one, the client is the last entry of the header; behind
    /// two, the one before it. A request with fewer entries than that comes from the peer itself. With 0, the peer is the
    /// client.
    pub fn hops(proxies: u8) -> Self {
        Self::of(if proxies == 0 { Trust::Nobody } else { Trust::Hops(proxies) })
    }

    /// Proxies in these networks, such as `10.0.0.0/8` or `2001:db8::/32`, or at a single address: the client is the first
    /// entry from the right that is in none of them. If all are, it is the leftmost.
    ///
    /// # Errors
    ///
    /// `key.trusted` of what is no network.
    pub fn networks<'n>(networks: impl IntoIterator<Item = &'n str>) -> Result<Self, ConfigError> {
        let network = |text: &str| {
            let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            network.map(unmapped).map_err(|_| {
                ConfigError::new("key.trusted", format!("{text:?} is no network: use 10.0.0.0/8, or a single address"))
            })
        };
        Ok(Self::of(Trust::Networks(networks.into_iter().map(network).collect::<Result<_, _>>()?)))
    }

    fn of(trust: Trust) -> Self {
        let header = Header::Addresses(HeaderName::from_static("x-forwarded-for"));
        Self { trust, header, key: ClientKey::default() }
    }

    /// Reads `Forwarded` (RFC 7239) instead of `X-Forwarded-For`.
    pub fn forwarded(mut self) -> Self {
        self.header = Header::Forwarded;
        self
    }

    /// Reads another header of the form of `X-Forwarded-For`, such as `X-Real-IP` or `CF-Connecting-IP`.
    ///
    /// # Errors
    ///
    /// `key.header` if HTTP allows no header of this name.
    pub fn header(mut self, name: &str) -> Result<Self, ConfigError> {
        self.header = Header::Addresses(header_name(name)?);
        Ok(self)
    }

    /// How many bits of an IPv6 address are one client: 64 by default, which is what one host gets; 1 to 128.
    ///
    /// # Errors
    ///
    /// `key.ipv6_prefix` of anything else.
    pub fn ipv6_prefix(mut self, bits: u8) -> Result<Self, ConfigError> {
        self.key = self.key.ipv6_prefix(bits)?;
        Ok(self)
    }

    /// Takes addresses of NAT64 (`64:ff9b::/96`) and 6to4 (`2002::/16`) for the IPv4 addresses that they carry. Otherwise
    /// all clients behind one translator are one prefix.
    pub fn unwrap_translated(mut self) -> Self {
        self.key = self.key.unwrap_translated();
        self
    }

    /// The client's address, as far as the peer and those it is trusted to speak for tell it; `None` if one of them tells
    /// something else.
    pub(super) fn client(&self, peer: IpAddr, parts: &Parts) -> Option<IpAddr> {
        let peer = peer.to_canonical();
        match &self.trust {
            Trust::Nobody => Some(peer),
            Trust::Hops(hops) => {
                let (mut left, mut client) = (*hops, Some(peer));
                self.walk(parts, |entry| {
                    left -= 1;
                    if left > 0 {
                        return ControlFlow::Continue(());
                    }
                    client = entry;
                    ControlFlow::Break(())
                });
                client
            }
            Trust::Networks(networks) => {
                let is_trusted = |address: IpAddr| networks.iter().any(|network| network.contains(&address));
                if !is_trusted(peer) {
                    return Some(peer);
                }
                let mut client = Some(peer);
                self.walk(parts, |entry| {
                    // What is no address stops the walk, and nobody further left is believed.
                    client = entry;
                    if entry.is_some_and(is_trusted) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
                client
            }
        }
    }

    /// Goes through the entries of the header from the right: addresses, or `None` for what is none. Too many of them are
    /// as good as none.
    fn walk(&self, parts: &Parts, mut see: impl FnMut(Option<IpAddr>) -> ControlFlow<()>) {
        let mut left = MOST_ENTRIES;
        let mut see_counted = |entry: Option<IpAddr>| {
            if left == 0 {
                let _ = see(None);
                return ControlFlow::Break(());
            }
            left -= 1;
            see(entry.map(|address| address.to_canonical()))
        };
        match &self.header {
            Header::Addresses(name) => {
                for line in parts.headers.get_all(name).iter().rev() {
                    for entry in line.as_bytes().rsplit(|byte| *byte == b',') {
                        let entry = entry.trim_ascii();
                        if !entry.is_empty() && see_counted(address(entry)).is_break() {
                            return;
                        }
                    }
                }
            }
            Header::Forwarded => {
                for line in parts.headers.get_all(http::header::FORWARDED).iter().rev() {
                    let Some(elements) = forwarded::elements(line.as_bytes()) else {
                        let _ = see_counted(None);
                        return;
                    };
                    for element in elements.iter().rev() {
                        if see_counted(*element).is_break() {
                            return;
                        }
                    }
                }
            }
        }
    }

    /// An address as the key it is counted under: IPv4 whole, IPv6 by its prefix.
    pub(super) fn key(&self, address: IpAddr) -> Key {
        self.key.of(address)
    }
}

/// A network of IPv4 addresses written as IPv6 (`::ffff:10.0.0.0/104`), as peers are compared: as IPv4.
fn unmapped(network: IpNet) -> IpNet {
    match network {
        IpNet::V6(mapped) if mapped.prefix_len() >= 96 => {
            let address = mapped.network().to_ipv4_mapped();
            let network = address.and_then(|address| Ipv4Net::new(address, mapped.prefix_len() - 96).ok());
            network.map_or(IpNet::V6(mapped), IpNet::V4)
        }
        network => network,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    const PEER: &str = "10.0.0.5";

    fn parts(header: &str, lines: &[&[u8]]) -> Parts {
        let mut request = Request::new(());
        for line in lines {
            let value = HeaderValue::from_bytes(line).unwrap();
            request.headers_mut().append(HeaderName::from_bytes(header.as_bytes()).unwrap(), value);
        }
        request.into_parts().0
    }

    fn ten() -> TrustedProxies {
        TrustedProxies::networks(["10.0.0.0/8"]).unwrap()
    }

    fn client(trusted: &TrustedProxies, peer: &str, header: &str, lines: &[&[u8]]) -> String {
        let client = trusted.client(peer.parse().unwrap(), &parts(header, lines));
        client.map_or_else(|| PEER.to_owned(), |client| client.to_string())
    }

    #[test]
    fn a_network_is_the_same_however_it_is_written() {
        for text in ["10.0.0.0/8", "::ffff:10.0.0.0/104", "::ffff:a00:0/104", "10.0.0.5", "::ffff:10.0.0.5"] {
            let trusted = TrustedProxies::networks([text]).unwrap();
            assert_eq!(client(&trusted, PEER, "x-forwarded-for", &[b"203.0.113.50"]), "203.0.113.50", "{text}");
        }
    }

    #[test]
    fn t17_the_rightmost_entry_that_is_not_trusted_is_the_client() {
        let cases: [(&str, &[&[u8]], &str); 14] = [
            (PEER, &[b"198.51.100.1, 203.0.113.50"], "203.0.113.50"),
            (PEER, &[b"203.0.113.7, 10.0.0.9"], "203.0.113.7"),
            (PEER, &[b"203.0.113.7", b"198.51.100.42"], "198.51.100.42"),
            ("203.0.113.99", &[b"198.51.100.1"], "203.0.113.99"),
            (PEER, &[b"evil"], PEER),
            (PEER, &[b"203.0.113.50, evil"], PEER),
            (PEER, &[b"203.0.113.50, unknown"], PEER),
            (PEER, &[b"203.0.113.50,"], "203.0.113.50"),
            (PEER, &[b", , ,"], PEER),
            (PEER, &[b""], PEER),
            (PEER, &[b"\xff"], PEER),
            (PEER, &[b"10.1.1.1, 10.0.0.9"], "10.1.1.1"),
            (PEER, &[b"evil, 203.0.113.50"], "203.0.113.50"),
            (PEER, &[], PEER),
        ];
        for (peer, lines, expected) in cases {
            assert_eq!(client(&ten(), peer, "x-forwarded-for", lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn t17_proxies_may_be_counted_instead() {
        let cases: [(u8, &[&[u8]], &str); 6] = [
            (0, &[b"203.0.113.7"], PEER),
            (1, &[b"198.51.100.1, 203.0.113.7"], "203.0.113.7"),
            (2, &[b"198.51.100.1, 203.0.113.7"], "198.51.100.1"),
            (2, &[b"203.0.113.7"], PEER),
            (2, &[b"evil, 203.0.113.7"], PEER),
            (1, &[], PEER),
        ];
        for (hops, lines, expected) in cases {
            assert_eq!(
                client(&TrustedProxies::hops(hops), PEER, "x-forwarded-for", lines),
                expected,
                "{hops} {lines:?}"
            );
        }
        assert_eq!(client(&TrustedProxies::none(), PEER, "x-forwarded-for", &[b"203.0.113.7"]), PEER);
    }

    #[test]
    fn t17_a_header_of_thousands_of_entries_costs_no_more_than_a_few() {
        let many = vec![&b"10.0.0.1"[..]; 5_000].join(&b", "[..]);
        assert_eq!(client(&ten(), PEER, "x-forwarded-for", &[&many]), PEER);
        let long = vec![b'x'; 64 << 10];
        assert_eq!(client(&ten(), PEER, "x-forwarded-for", &[&long]), PEER);
        assert_eq!(client(&ten(), PEER, "x-forwarded-for", &[&many, b"203.0.113.7"]), "203.0.113.7");
    }

    #[test]
    fn t19_addresses_that_are_written_otherwise_are_trusted_alike() {
        let mapped = client(&ten(), "::ffff:10.0.0.5", "x-forwarded-for", &[b"203.0.113.7, ::ffff:10.0.0.9"]);
        assert_eq!(mapped, "203.0.113.7");
        let v6 = TrustedProxies::networks(["2001:db8::/32", "192.0.2.1"]).unwrap();
        assert_eq!(client(&v6, "2001:db8::5", "x-forwarded-for", &[b"203.0.113.7, 192.0.2.1"]), "203.0.113.7");
    }

    #[test]
    fn t20_forwarded_is_read_as_its_grammar_says() {
        let trusted = ten().forwarded();
        let cases: [(&[u8], &str); 24] = [
            (b"for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
            (b"FOR=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
            (b"for=192.0.2.43, for=198.51.100.17", "198.51.100.17"),
            (b"for=198.51.100.17;by=10.0.0.1, for=10.0.0.9", "198.51.100.17"),
            (b"for=\"192.0.2.1:_p\"", "192.0.2.1"),
            (b"for=\"[2001:db8::1]:_p\"", "2001:db8::1"),
            (b"for=\"192.0.2.1:80\"", "192.0.2.1"),
            (b"for=\"\\192.0.2.1\"", "192.0.2.1"),
            (b"proto=https;host=\"a, b;c\";for=192.0.2.60", "192.0.2.60"),
            (b", ,for=192.0.2.60,", "192.0.2.60"),
            (b"for=_hidden", PEER),
            (b"for=\"_gazonk\"", PEER),
            (b"for=unknown", PEER),
            (b"by=10.0.0.1;host=x", PEER),
            (b"for=2001:861:3a42::f585", PEER),
            (b"for=unknown:abc", PEER),
            (b"for=_node:99999", PEER),
            (b"for: 198.51.100.2;proto: https", PEER),
            (b"for=\"198.51.100.1, 203.0.113.9\"", PEER),
            (b"for=\"198.51.100.1", PEER),
            (b"for=\"198.51.100.1\\\"", PEER),
            (b"for=192.0.2.1;for=192.0.2.2", PEER),
            (b"for=\"192.0.2.1:99999\"", PEER),
            (b"for=", PEER),
        ];
        for (line, expected) in cases {
            let text = String::from_utf8_lossy(line).into_owned();
            assert_eq!(client(&trusted, PEER, "forwarded", &[line]), expected, "{text}");
        }
        // The proxy's own line counts, whatever its client has sent before it.
        assert_eq!(client(&trusted, PEER, "forwarded", &[b"for=\"", b"for=192.0.2.60"]), "192.0.2.60");
    }

    #[test]
    fn t20_only_the_configured_header_is_read() {
        let mut both = parts("x-forwarded-for", &[b"203.0.113.7"]);
        both.headers.append("forwarded", HeaderValue::from_static("for=192.0.2.60"));
        both.headers.append("x-real-ip", HeaderValue::from_static("198.51.100.1"));
        let client = |trusted: TrustedProxies| trusted.client(PEER.parse().unwrap(), &both).unwrap().to_string();
        assert_eq!(client(ten()), "203.0.113.7");
        assert_eq!(client(ten().forwarded()), "192.0.2.60");
        assert_eq!(client(ten().header("X-Real-IP").unwrap()), "198.51.100.1");
    }

    #[test]
    fn what_is_no_network_header_or_prefix_is_told() {
        let field = |result: Result<TrustedProxies, ConfigError>| result.unwrap_err().field().to_owned();
        for wrong in ["", "10.0.0.0/33", "10.0.0", "localhost", "10.0.0.0/8 "] {
            assert_eq!(field(TrustedProxies::networks([wrong])), "key.trusted", "{wrong:?}");
        }
        assert_eq!(field(ten().header("x forwarded")), "key.header");
        assert_eq!(field(ten().ipv6_prefix(0)), "key.ipv6_prefix");
        assert_eq!(field(ten().ipv6_prefix(129)), "key.ipv6_prefix");
    }
}
