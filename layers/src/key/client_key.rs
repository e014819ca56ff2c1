//! The key that a client's address is counted under.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tower_quota_core::{ConfigError, Key};

/// What of an address tells clients apart: of IPv4 all, of IPv6 a prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientKey {
    ipv6_prefix: u8,
    unwraps_translated: bool,
}

impl Default for ClientKey {
    fn default() -> Self {
        Self { ipv6_prefix: 64, unwraps_translated: false }
    }
}

impl ClientKey {
    pub(super) fn ipv6_prefix(self, bits: u8) -> Result<Self, ConfigError> {
        if !(1..=128).contains(&bits) {
            return Err(ConfigError::new("key.ipv6_prefix", format!("{bits} bits are no prefix: use 1 to 128")));
        }
        Ok(Self { ipv6_prefix: bits, ..self })
    }

    pub(super) fn unwrap_translated(self) -> Self {
        Self { unwraps_translated: true, ..self }
    }

    pub(super) fn of(self, address: IpAddr) -> Key {
        let address = match address.to_canonical() {
            IpAddr::V4(address) => return Key::new(address.octets()),
            IpAddr::V6(address) => address,
        };
        if let Some(address) = self.translated(address) {
            return Key::new(address.octets());
        }
        let mask = u128::MAX << (128 - u32::from(self.ipv6_prefix));
        Key::new((address.to_bits() & mask).to_be_bytes())
    }

    fn translated(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        if !self.unwraps_translated {
            return None;
        }
        let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
        match address.segments() {
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some(v4(high, low)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t19_one_host_is_one_key_however_its_address_is_written() {
        let key = |of: &ClientKey, address: &str| of.of(address.parse().unwrap());
        let (plain, unwrapping) = (ClientKey::default(), ClientKey::default().unwrap_translated());
        let v4 = |address: &str| Key::new(address.parse::<Ipv4Addr>().unwrap().octets());
        for mapped in ["::ffff:1.2.3.4", "::ffff:102:304", "0:0:0:0:0:FFFF:0102:0304", "1.2.3.4"] {
            assert_eq!(key(&plain, mapped), v4("1.2.3.4"), "{mapped}");
        }
        let of_prefix = key(&plain, "2001:db8:1234:5678::");
        for same in ["2001:db8:1234:5678::1.2.3.4", "2001:db8:1234:5678:aaaa::1", "2001:DB8:1234:5678:0::"] {
            assert_eq!(key(&plain, same), of_prefix, "{same}");
        }
        assert_ne!(key(&plain, "2001:db8:1234:5679::1"), of_prefix);
        assert_eq!(key(&plain, "::1"), key(&plain, "0:0:0:0:0:0:0:1"));
        let (one, other) = ("64:ff9b::808:808", "64:ff9b::909:909");
        assert_eq!(key(&plain, one), key(&plain, other), "one translator");
        assert_eq!((key(&unwrapping, one), key(&unwrapping, other)), (v4("8.8.8.8"), v4("9.9.9.9")));
        assert_eq!(key(&unwrapping, "2002:cb00:7107::1"), v4("203.0.113.7"));
        let whole = ClientKey::default().ipv6_prefix(128).unwrap();
        assert_ne!(key(&whole, "2001:db8::1"), key(&whole, "2001:db8::2"));
        let wide = ClientKey::default().ipv6_prefix(48).unwrap();
        assert_eq!(key(&wide, "2001:db8:1:1::1"), key(&wide, "2001:db8:1:2::1"));
    }
}
